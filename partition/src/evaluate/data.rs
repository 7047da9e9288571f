//! What data parallelism does with a mini-batch: each rank takes an equal share of the seeds and computes all they need.
//!
//! Returns: feature rows and edges, summed over the ranks. Idea: a vertex draws the same in-edges on every rank, as in
//! `gsplit train --parallelism data`, so a rank's micro-batch is what its seeds reach in the mini-batch. Every vertex carries
//! the set of ranks that have it, as bits of a word, 64 ranks at a time, and passes it on to its sampled in-neighbours. Draws
//! of each rank's own, as in DGL, have the same expectation: a micro-batch alone cannot tell the two apart.
//! Cost: O(edges) for every 64 ranks; 16 bytes a vertex.

use super::sample::MiniBatch;

/// Sums over the ranks of one mini-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DataCounts {
    /// Feature rows loaded: distinct input vertices of each rank.
    pub rows: u64,
    /// Edges computed.
    pub edges: u64,
}

/// Counts `batch` on `ranks` ranks.
pub(super) fn data_parallel(batch: &MiniBatch, ranks: u32) -> DataCounts {
    let (seeds, ranks) = (batch.num_seeds() as u64, u64::from(ranks));
    let share = |rank: u64| (seeds * rank / ranks) as usize..(seeds * (rank + 1) / ranks) as usize;
    let busy: Vec<_> = (0..ranks).map(share).filter(|share| !share.is_empty()).collect();
    let mut counts = DataCounts::default();
    for shares in busy.chunks(64) {
        let mut having = vec![0u64; batch.num_seeds()];
        for (rank, share) in shares.iter().enumerate() {
            having[share.clone()].fill(1 << rank);
        }
        for layer in &batch.layers {
            // What a vertex is given at this layer it computes at the next one only.
            let mut below = having.clone();
            below.resize(layer.mixed.len(), 0);
            for (i, &ranks) in having.iter().enumerate() {
                let sources = layer.sources_of(i);
                counts.edges += sources.len() as u64 * u64::from(ranks.count_ones());
                sources.iter().for_each(|&u| below[u as usize] |= ranks);
            }
            having = below;
        }
        counts.rows += having.iter().map(|ranks| u64::from(ranks.count_ones())).sum::<u64>();
    }
    counts
}
