//! A mini-batch of edges, on one rank.
//!
//! Every rank takes an equal share of the mini-batch's edges and draws their negatives, keyed by the edge. Rows of the pairs'
//! ends come like those of any layer: from this rank itself, or, under a partition map, from their owners through an
//! [`Exchange`] above the last layer.

use std::ops::Range;

use gsplit_kernels::{Communicator, Draws, ExcludedEdges, Stream, StreamKey, unique};
use tch::Tensor;

use super::LinkSplit;
use super::scorer::Pairs;
use crate::batch::{Ownership, Seeds};
use crate::model::{DropoutKey, Model};
use crate::step::{from_rows, to_rows};
use crate::task::Loss;
use crate::{Exchange, Result};

/// What a mini-batch of edges is to learn.
pub struct LinkBatch {
    /// Distinct ends of this rank's pairs.
    ends: usize,
    /// Sources and targets of this rank's pairs, as positions among the ends: an edge, then its negatives, and so on.
    pairs: [Vec<u32>; 2],
    /// Number of the first pair in the global mini-batch.
    first: usize,
    /// Negatives of each edge.
    negatives: usize,
    /// From the rows of the seeds to those of the ends.
    exchange: Exchange,
    /// Pairs of the global mini-batch.
    total: usize,
}

impl LinkBatch {
    /// The share of this rank in the mini-batch of the edges `batch` (positions in the training graph), of which its group has those
    /// `of_group`, with `negatives` each, and the vertices that it has to compute. Collective under a partition map.
    pub fn new(
        split: &LinkSplit,
        (batch, of_group): (&[u32], Range<usize>),
        negatives: usize,
        (seed, epoch, step): (u64, u32, u32),
        ownership: Ownership<'_>,
        comm: &dyn Communicator,
    ) -> Result<(Seeds, Self)> {
        let num_vertices = split.graph()?.num_vertices() as u32;
        let key = StreamKey { epoch, step, ..StreamKey::new(seed, Stream::Negatives) };
        let (mut sources, mut targets) = (Vec::new(), Vec::new());
        let (rank, ranks) = (comm.rank(), comm.size());
        let at = |rank: usize| of_group.start + of_group.len() * rank / ranks;
        let share = at(rank)..at(rank + 1);
        let first = share.start * (1 + negatives);
        for &edge in &batch[share] {
            let (source, target) = split.ends(edge);
            let mut draws = Draws::new(&key, edge);
            sources.extend(std::iter::repeat_n(source, 1 + negatives));
            targets.push(target);
            targets.extend((0..negatives).map(|_| draws.below(num_vertices)));
        }
        let (ends, positions) = unique(&[&sources, &targets]);
        let (from, to) = positions.split_at(sources.len());
        let pairs = [from.to_vec(), to.to_vec()];
        let num_ends = ends.len();
        let (local, exchange) = match ownership {
            Ownership::Mine => (ends, Exchange::Identity),
            Ownership::Map(part) => Exchange::shuffle(comm, &ends, |v| part[v as usize] as usize)?,
        };
        let total = batch.len() * (1 + negatives);
        let seeds = Seeds { local, excluded: Some(excluded(split, batch)) };
        Ok((seeds, Self { ends: num_ends, pairs, first, negatives, exchange, total }))
    }

    /// Loss of `rows`, f32 `[seeds, dim]`, scored by that of `model`, and gradient of `scale` times the loss; the scorer's own
    /// parameters get theirs. Collective under a partition map.
    pub fn loss(
        &self,
        model: &Model,
        rows: &Tensor,
        (dropout, scale): (DropoutKey, f32),
        comm: &dyn Communicator,
    ) -> Result<Loss> {
        let (seeds, dim) = (rows.size()[0] as usize, rows.size()[1] as usize);
        let mixed = self.exchange.forward(comm, to_rows(rows)?, dim)?;
        debug_assert_eq!(mixed.len(), self.ends * dim);
        let [sources, targets] = &self.pairs;
        let pairs = Pairs { ends: [sources, targets], negatives: self.negatives, first: self.first };
        let scored = model.pair_scorer().loss(mixed, dim, pairs, scale / self.total as f32, Some(dropout))?;
        let gradient = self.exchange.backward(comm, scored.gradient, dim)?;
        Ok(Loss {
            numbers: Some(Tensor::from_slice(&[scored.loss / self.total as f64, scored.correct as f64])),
            counted: sources.len() as u64,
            gradient: match seeds {
                0 => None,
                _ => Some(from_rows(gradient, seeds, dim)?.f_to_device(rows.device())?),
            },
        })
    }
}

/// The edges of the whole mini-batch and their reverses, which no rank may sample.
fn excluded(split: &LinkSplit, batch: &[u32]) -> ExcludedEdges {
    let both = |&edge: &u32| {
        let (source, target) = split.ends(edge);
        split.positions(source, target).chain(split.positions(target, source))
    };
    ExcludedEdges::new(batch.iter().flat_map(both).collect())
}
