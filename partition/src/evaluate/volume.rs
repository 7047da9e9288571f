//! What all ranks together do with a mini-batch, where they may do some of it several times.
//!
//! Returns: rows loaded, edges computed and rows exchanged, summed over the ranks. Idea: a vertex draws the same in-edges on every
//! rank, as in `gsplit train`, so what a rank computes is what its seeds reach in the mini-batch. Every vertex carries the set of
//! ranks that have it, as bits of a word, 64 ranks at a time, and passes it on to its sampled in-neighbours; where the layer is
//! split its owner alone keeps it, and sends its row to the others. Draws of each rank's own, as in DGL, have the same expectation: a
//! micro-batch alone cannot tell the two apart.
//! Cost: O(edges) for every 64 ranks; 16 bytes a vertex.

use super::sample::MiniBatch;

/// How the ranks share a mini-batch.
#[derive(Clone, Copy)]
pub(super) enum Sharing<'a> {
    /// Each has an equal share of the seeds and computes all they need: data parallelism.
    Equal,
    /// Each has the seeds that it owns by this map, and the lowest layers, so many, read rows from their owners
    /// (`--split-layers`).
    Owned(&'a [u16], usize),
}

/// Sums over the ranks of one mini-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Feature rows loaded: distinct input vertices of each rank.
    pub rows: u64,
    /// Edges computed.
    pub edges: u64,
    /// Rows that ranks receive from others in one forward pass.
    pub exchanged: u64,
}

/// Counts `batch` on `ranks` ranks.
pub(super) fn count(batch: &MiniBatch, ranks: u32, sharing: Sharing<'_>) -> Counts {
    let mut counts = Counts::default();
    for first in (0..ranks).step_by(64) {
        let here = first..ranks.min(first + 64);
        let bit_of = |owner: u16| if here.contains(&owner.into()) { 1u64 << (u32::from(owner) - first) } else { 0 };
        let mut having = vec![0u64; batch.num_seeds()];
        match sharing {
            Sharing::Equal => {
                let from = |rank: u32| (having.len() as u64 * u64::from(rank) / u64::from(ranks)) as usize;
                let shares: Vec<_> = here.clone().map(|rank| from(rank)..from(rank + 1)).collect();
                (0..).zip(shares).for_each(|(bit, share)| having[share].fill(1 << bit));
            }
            Sharing::Owned(map, _) => {
                let seeds = batch.seeds().iter().map(|&v| bit_of(map[v as usize]));
                having = seeds.collect();
            }
        }
        for (depth, layer) in batch.layers.iter().enumerate() {
            // What a vertex is given at this layer it computes at the next one only.
            let mut below = having.clone();
            below.resize(layer.mixed.len(), 0);
            for (i, &ranks) in having.iter().enumerate() {
                let sources = layer.sources_of(i);
                counts.edges += sources.len() as u64 * u64::from(ranks.count_ones());
                sources.iter().for_each(|&u| below[u as usize] |= ranks);
            }
            match sharing {
                Sharing::Owned(map, split_layers) if depth + split_layers >= batch.layers.len() => {
                    for (ranks, &v) in below.iter_mut().zip(&layer.mixed) {
                        let owner = bit_of(map[v as usize]);
                        counts.exchanged += u64::from((*ranks & !owner).count_ones());
                        *ranks = owner;
                    }
                }
                _ => {}
            }
            having = below;
        }
        counts.rows += having.iter().map(|ranks| u64::from(ranks.count_ones())).sum::<u64>();
    }
    counts
}
