//! The loss of a mini-batch of edges, on one rank.
//!
//! Rows of the pairs' ends come like those of any layer: from this rank itself, or, under a
//! partition map, from their owners by an [`Exchange`] above the last layer. Pairs are drawn in
//! [`HostPairs`].

use std::ops::Range;

use gsplit_kernels::Communicator;
use gsplit_kernels::schedule::Step;
use gsplit_sample::links::{EdgeBatch, HostPairs};
use gsplit_sample::{Ownership, Seeds};
use tch::Tensor;

use super::LinkSplit;
use crate::model::{DropoutKey, Model, Pairs};
use crate::operator::{from_rows, to_rows};
use crate::task::Loss;
use crate::{Exchange, Result};

/// Pairs that a mini-batch of edges learns.
pub struct LinkBatch {
    /// Number of rows that are read: for this rank's pairs, and under a partition map for other
    /// ranks' requests.
    read: usize,
    /// Sources and targets of this rank's pairs, as positions among these rows: an edge, then its
    /// negatives, and so on.
    pairs: [Vec<u32>; 2],
    /// Index of the first pair in the global mini-batch.
    first: usize,
    /// Number of negatives of each edge.
    negatives: usize,
    /// Brings the rows of ends that others own.
    exchange: Exchange,
    /// Number of pairs of the global mini-batch.
    total: usize,
}

impl LinkBatch {
    /// This rank's share of the mini-batch of `edges` (positions in the training graph), of which
    /// its group has the range `of_group`, with `negatives` each, and the seeds that it has to
    /// compute. Collective under a partition map.
    pub fn new(
        split: &LinkSplit,
        edges: &[u32],
        of_group: Range<usize>,
        negatives: usize,
        step: Step,
        ownership: Ownership<'_>,
        comm: &dyn Communicator,
    ) -> Result<(Seeds, Self)> {
        let batch = EdgeBatch { edges, of_group, negatives };
        let (seeds, HostPairs { ends: pairs, first, exchange }) =
            HostPairs::new(split, &batch, step, ownership, comm)?;
        let (rows, total) = (seeds.local.len(), batch.num_pairs());
        let read = exchange.as_ref().map_or(rows, |exchange| exchange.read.len());
        let exchange =
            exchange.map_or(Exchange::Identity, |exchange| Exchange::of_host(exchange, rows).0);
        Ok((seeds, Self { read, pairs, first, negatives, exchange, total }))
    }

    /// Number of pairs of the global mini-batch, edges and negatives.
    pub fn num_pairs(&self) -> usize {
        self.total
    }

    /// Loss of `rows`, f32 `[seeds, dim]`, scored by the pair scorer of `model`, and gradient of
    /// `scale` times the loss; the gradients of the scorer's parameters are added to them.
    /// Collective under a partition map.
    pub fn loss(
        &self,
        model: &Model,
        rows: &Tensor,
        dropout: DropoutKey,
        scale: f32,
        comm: &dyn Communicator,
    ) -> Result<Loss> {
        let (seeds, dim) = (rows.size()[0] as usize, rows.size()[1] as usize);
        let mut read = to_rows(rows)?;
        read.resize(self.read * dim, 0.0);
        self.exchange.forward(comm, &mut read, dim)?;
        let [sources, targets] = &self.pairs;
        let pairs =
            Pairs { ends: [sources, targets], negatives: self.negatives, first: self.first };
        let mut scored =
            model.pair_scorer().loss(read, dim, pairs, scale / self.total as f32, Some(dropout))?;
        self.exchange.backward(comm, &mut scored.gradient, dim)?;
        scored.gradient.truncate(seeds * dim);
        Ok(Loss {
            numbers: Some(Tensor::from_slice(&[
                scored.loss / self.total as f64,
                scored.correct as f64,
            ])),
            counted: sources.len() as u64,
            gradient: match seeds {
                0 => None,
                _ => Some(from_rows(scored.gradient, seeds, dim)?.f_to_device(rows.device())?),
            },
        })
    }
}
