//! A mini-batch of edges, on one rank.
//!
//! Every rank takes an equal share of the mini-batch's edges and draws their negatives, keyed by the edge. Rows of the pairs'
//! ends come like those of any layer: from this rank itself, or, under a partition map, from their owners through an
//! [`Exchange`] above the last layer.

use std::ops::Range;

use gsplit_kernels::schedule::Step;
use gsplit_kernels::{Communicator, Draws, ExcludedEdges, Stream, unique};
use gsplit_sample::{HostShuffle, Ownership, Seeds};
use tch::Tensor;

use super::LinkSplit;
use crate::model::{DropoutKey, Model, Pairs};
use crate::operator::{from_rows, to_rows};
use crate::task::Loss;
use crate::{Exchange, Result};

/// Pairs that a mini-batch of edges is to learn.
pub struct LinkBatch {
    /// Rows that are read: of the ends of this rank's pairs, and under a partition map of what others ask for.
    read: usize,
    /// Sources and targets of this rank's pairs, as positions among these: an edge, then its negatives, and so on.
    pairs: [Vec<u32>; 2],
    /// Number of the first pair in the global mini-batch.
    first: usize,
    /// Negatives of each edge.
    negatives: usize,
    /// Brings the rows of ends that others own.
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
        step: Step,
        ownership: Ownership<'_>,
        comm: &dyn Communicator,
    ) -> Result<(Seeds, Self)> {
        let kinds = split.kinds();
        let key = step.key(Stream::Negatives, 0);
        let (mut sources, mut targets) = (Vec::new(), Vec::new());
        let (rank, ranks) = (comm.rank(), comm.size());
        let at = |rank: usize| of_group.start + of_group.len() * rank / ranks;
        let portion = at(rank)..at(rank + 1);
        let first = portion.start * (1 + negatives);
        for &edge in &batch[portion] {
            let (source, target) = split.ends(edge);
            let mut draws = Draws::new(&key, edge);
            sources.extend(std::iter::repeat_n(source, 1 + negatives));
            targets.push(target);
            let others = kinds.of(target);
            targets.extend((0..negatives).map(|_| others.start + draws.below(others.len() as u32)));
        }
        let (ends, positions) = unique(&[&sources, &targets]);
        let (local, read, positions, exchange) = match ownership {
            Ownership::Mine => (ends.clone(), ends.len(), positions, Exchange::Identity),
            Ownership::Map(part) => {
                let HostShuffle { frontier, source, exchange } =
                    HostShuffle::new(comm, &ends, |v| part[v as usize] as usize)?;
                let positions = positions.iter().map(|&end| source[end as usize]).collect();
                let (exchange, read) = Exchange::of_host(exchange, frontier.len());
                (frontier, read.len(), positions, exchange)
            }
        };
        let (from, to) = positions.split_at(sources.len());
        let pairs = [from.to_vec(), to.to_vec()];
        let total = batch.len() * (1 + negatives);
        let seeds = Seeds { local, excluded: Some(excluded(split, batch)) };
        Ok((seeds, Self { read, pairs, first, negatives, exchange, total }))
    }

    /// Pairs of the global mini-batch, edges and others.
    pub fn num_pairs(&self) -> usize {
        self.total
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
        let mut read = to_rows(rows)?;
        read.resize(self.read * dim, 0.0);
        self.exchange.forward(comm, &mut read, dim)?;
        let [sources, targets] = &self.pairs;
        let pairs = Pairs { ends: [sources, targets], negatives: self.negatives, first: self.first };
        let mut scored = model.pair_scorer().loss(read, dim, pairs, scale / self.total as f32, Some(dropout))?;
        self.exchange.backward(comm, &mut scored.gradient, dim)?;
        scored.gradient.truncate(seeds * dim);
        Ok(Loss {
            numbers: Some(Tensor::from_slice(&[scored.loss / self.total as f64, scored.correct as f64])),
            counted: sources.len() as u64,
            gradient: match seeds {
                0 => None,
                _ => Some(from_rows(scored.gradient, seeds, dim)?.f_to_device(rows.device())?),
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
