//! The pairs of a mini-batch of edges, on one rank.
//!
//! Returns: the rank's seeds, which are the ends of its pairs, and the pairs as rows. Input: the
//! edges of the global mini-batch. Idea: every rank takes an equal portion of the edges and draws
//! their negatives, keyed by the edge: targets of the same kind. The rows of the ends come from
//! this rank or, under a partition map, from their owners through a [`HostShuffle`] above the last
//! layer. Cost: one search in `indptr` per edge, memory proportional to the pairs, and under a map
//! a shuffle of ids.

use std::ops::Range;

use gsplit_kernels::schedule::Step;
use gsplit_kernels::{Communicator, Draws, ExcludedEdges, Stream, unique};

use super::LinkSplit;
use crate::{HostExchange, HostShuffle, Ownership, SampleError, Seeds};

/// A global mini-batch of edges.
#[derive(Clone, Debug)]
pub struct EdgeBatch<'b> {
    /// The edges, as positions in the training graph's indices.
    pub edges: &'b [u32],
    /// The portion of the edges that the group of ranks takes; all of them if there is only one
    /// group.
    pub of_group: Range<usize>,
    /// Number of negative pairs drawn for each edge.
    pub negatives: usize,
}

impl EdgeBatch<'_> {
    /// Number of pairs: the edges and their negatives.
    pub fn num_pairs(&self) -> usize {
        self.edges.len() * (1 + self.negatives)
    }

    /// The equal consecutive share of the group's portion that rank `rank` of `ranks` takes.
    pub fn portion(&self, rank: usize, ranks: usize) -> Range<usize> {
        let at = |rank: usize| self.of_group.start + self.of_group.len() * rank / ranks;
        at(rank)..at(rank + 1)
    }

    /// The edges and their reverses, which no rank may sample.
    fn excluded(&self, split: &LinkSplit) -> ExcludedEdges {
        let both = |&edge: &u32| {
            let (source, target) = split.ends(edge);
            split.positions_between(source, target)
        };
        ExcludedEdges::new(self.edges.iter().flat_map(both).collect())
    }
}

/// The pairs of one rank: each edge is followed by its negatives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPairs {
    /// Sources and targets, as positions among the rows that are read.
    pub ends: [Vec<u32>; 2],
    /// Number of the first pair in the global mini-batch.
    pub first: usize,
    /// Rows that move between ranks above the last layer. `None` if the rows of the seeds are read
    /// in place.
    pub exchange: Option<HostExchange>,
}

impl HostPairs {
    /// Returns the pairs of this rank in `batch` and the vertices that it must compute. Under a
    /// partition map this is collective: every rank must call it, even without edges.
    pub fn new(
        split: &LinkSplit,
        batch: &EdgeBatch<'_>,
        step: Step,
        ownership: Ownership<'_>,
        comm: &dyn Communicator,
    ) -> Result<(Seeds, Self), SampleError> {
        let (kinds, negatives) = (split.kinds(), batch.negatives);
        let key = step.key(Stream::Negatives, 0);
        let (mut sources, mut targets) = (Vec::new(), Vec::new());
        let portion = batch.portion(comm.rank(), comm.size());
        let first = portion.start * (1 + negatives);
        for &edge in &batch.edges[portion] {
            let (source, target) = split.ends(edge);
            let mut draws = Draws::new(&key, edge);
            sources.extend(std::iter::repeat_n(source, 1 + negatives));
            targets.push(target);
            let others = kinds.of(target);
            targets.extend((0..negatives).map(|_| others.start + draws.below(others.len() as u32)));
        }
        let (ends, positions) = unique(&[&sources, &targets]);
        let (local, rows, exchange) = match ownership {
            Ownership::Mine => (ends, positions, None),
            Ownership::Map(part) => {
                let HostShuffle { frontier, source, exchange } =
                    HostShuffle::new(comm, &ends, |v| part[v as usize] as usize)?;
                (
                    frontier,
                    positions.iter().map(|&end| source[end as usize]).collect(),
                    Some(exchange),
                )
            }
        };
        let (from, to) = rows.split_at(sources.len());
        let seeds = Seeds { local, excluded: Some(batch.excluded(split)) };
        Ok((seeds, Self { ends: [from.to_vec(), to.to_vec()], first, exchange }))
    }
}
