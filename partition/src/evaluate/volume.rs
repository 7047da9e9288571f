//! Work of all ranks together on a mini-batch, where they may do some of it several times.
//!
//! Returns: rows loaded, and for each layer vertices and edges computed and rows exchanged, summed
//! over the ranks; and the busiest rank's share of them. Idea: a vertex draws the same in-edges on
//! every rank, as in `gsplit train`, so a rank computes everything that its seeds reach in the
//! mini-batch. Every vertex carries the set of ranks that have it, as bits of a word, 64 ranks at a
//! time, and passes it on to its sampled in-neighbours; where the layer is split only its owner
//! keeps it, and sends its row to the others. If each rank draws its own in-edges, as in DGL, the
//! expectation is the same: a single micro-batch cannot show the difference. Cost: O(edges) for
//! every 64 ranks; 16 bytes per vertex.

use super::sample::MiniBatch;
use crate::Layout;

/// How the ranks share a mini-batch.
#[derive(Clone, Copy)]
pub(super) enum Sharing<'a> {
    /// Each has an equal share of the seeds and computes all they need: data parallelism.
    Equal,
    /// Each rank has the seeds that it owns by this map, and this number of lowest layers reads
    /// rows from their owners (`--split-layers`).
    Owned(&'a [u16], usize),
}

/// Sums over the ranks of one mini-batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// From the seeds' layer downwards.
    pub layers: Vec<LayerCounts>,
    /// Feature rows loaded: distinct input vertices of each rank.
    pub rows: u64,
    /// Most edges that a rank computes over all layers.
    pub most_edges: u64,
    /// Most feature rows that a rank loads.
    pub most_rows: u64,
}

/// Sums over the ranks of one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LayerCounts {
    /// Vertices computed.
    pub vertices: u64,
    /// Edges computed.
    pub edges: u64,
    /// Rows that ranks receive from others in one forward pass.
    pub exchanged: u64,
    /// Received rows that come from another server.
    pub abroad: u64,
}

impl Counts {
    /// Edges computed over all layers.
    pub fn edges(&self) -> u64 {
        self.layers.iter().map(|layer| layer.edges).sum()
    }
}

/// The positions of the bits of `word`.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

/// Counts `batch` on one rank for each part of `layout`.
pub(super) fn count(batch: &MiniBatch, layout: Layout, sharing: Sharing<'_>) -> Counts {
    let ranks = layout.parts();
    let mut counts =
        Counts { layers: vec![LayerCounts::default(); batch.layers.len()], ..Counts::default() };
    for first in (0..ranks).step_by(64) {
        let here = first..ranks.min(first + 64);
        let bit_of = |owner: u16| {
            if here.contains(&owner.into()) { 1u64 << (u32::from(owner) - first) } else { 0 }
        };
        let server_of =
            |owner: u16| layout.siblings(owner).fold(0, |bits, rank| bits | bit_of(rank));
        let servers: Vec<u64> = (0..=u16::MAX).take(ranks as usize).map(server_of).collect();
        let mut having = vec![0u64; batch.num_seeds()];
        let (mut edges, mut rows) = ([0u64; 64], [0u64; 64]);
        match sharing {
            Sharing::Equal => {
                let from =
                    |rank: u32| (having.len() as u64 * u64::from(rank) / u64::from(ranks)) as usize;
                let shares: Vec<_> = here.clone().map(|rank| from(rank)..from(rank + 1)).collect();
                (0..).zip(shares).for_each(|(bit, share)| having[share].fill(1 << bit));
            }
            Sharing::Owned(map, _) => {
                let seeds = batch.seeds().iter().map(|&v| bit_of(map[v as usize]));
                having = seeds.collect();
            }
        }
        for (depth, (layer, sums)) in batch.layers.iter().zip(&mut counts.layers).enumerate() {
            // A vertex that joins at this layer is only computed at the next one.
            let mut below = having.clone();
            below.resize(layer.mixed_frontier.len(), 0);
            for (i, &ranks) in having.iter().enumerate() {
                let sources = layer.sources_of(i);
                sums.vertices += u64::from(ranks.count_ones());
                sums.edges += sources.len() as u64 * u64::from(ranks.count_ones());
                bits(ranks).for_each(|rank| edges[rank] += sources.len() as u64);
                sources.iter().for_each(|&u| below[u as usize] |= ranks);
            }
            match sharing {
                Sharing::Owned(map, split_layers) if depth + split_layers >= batch.layers.len() => {
                    for (ranks, &v) in below.iter_mut().zip(&layer.mixed_frontier) {
                        let owner = bit_of(map[v as usize]);
                        sums.exchanged += u64::from((*ranks & !owner).count_ones());
                        sums.abroad +=
                            u64::from((*ranks & !servers[map[v as usize] as usize]).count_ones());
                        *ranks = owner;
                    }
                }
                _ => {}
            }
            having = below;
        }
        having.iter().for_each(|&ranks| bits(ranks).for_each(|rank| rows[rank] += 1));
        counts.rows += rows.iter().sum::<u64>();
        let most = |of: &[u64]| of.iter().copied().max().unwrap_or(0);
        counts.most_edges = counts.most_edges.max(most(&edges));
        counts.most_rows = counts.most_rows.max(most(&rows));
    }
    counts
}
