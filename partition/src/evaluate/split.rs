//! Cross edges of split parallelism on a mini-batch under one map, and how even the ranks' work is
//! at each layer.
//!
//! Returns: counts of one mini-batch; [`volume`](super::volume) has those of rows, and of all
//! layers together. Idea: a vertex is computed by its owner at every layer that it is in, with all
//! of its sampled in-edges. Cost: O(edges).

use super::sample::MiniBatch;
use crate::Layout;

/// Counts of one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SplitLayer {
    /// Sampled edges whose ends have different owners.
    pub cross: u64,
    /// Sampled edges whose ends have owners on different servers.
    pub cross_servers: u64,
    /// Most sampled edges of a part, each counted for the owner of its destination.
    pub max_edges: u64,
    /// Most vertices that a part computes.
    pub max_vertices: u64,
}

/// Counts of one mini-batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SplitCounts {
    /// From the seeds' layer downwards.
    pub layers: Vec<SplitLayer>,
    /// Most vertices that a part computes over all layers.
    pub max_vertices: u64,
}

/// Counts `batch` under `assignment`, and the sampled edges of each part over all layers.
pub(super) fn split_parallel(
    batch: &MiniBatch,
    assignment: &[u16],
    layout: Layout,
) -> (SplitCounts, Vec<u64>) {
    let zeros = vec![0u64; layout.parts() as usize];
    let (mut all_edges, mut all_vertices) = (zeros.clone(), zeros.clone());
    let mut counts = SplitCounts::default();
    for layer in &batch.layers {
        let owner: Vec<u16> =
            layer.mixed_frontier.iter().map(|&v| assignment[v as usize]).collect();
        let (mut edges, mut vertices) = (zeros.clone(), zeros.clone());
        let (mut cross, mut cross_servers) = (0, 0);
        for (i, &mine) in owner[..layer.num_vertices()].iter().enumerate() {
            let sources = layer.sources_of(i);
            edges[mine as usize] += sources.len() as u64;
            vertices[mine as usize] += 1;
            cross += sources.iter().filter(|&&u| owner[u as usize] != mine).count() as u64;
            let here = layout.siblings(mine);
            cross_servers +=
                sources.iter().filter(|&&u| !here.contains(&owner[u as usize])).count() as u64;
        }
        add(&mut all_edges, &edges);
        add(&mut all_vertices, &vertices);
        let (max_edges, max_vertices) = (heaviest(&edges), heaviest(&vertices));
        counts.layers.push(SplitLayer { cross, cross_servers, max_edges, max_vertices });
    }
    counts.max_vertices = heaviest(&all_vertices);
    (counts, all_edges)
}

fn add(sums: &mut [u64], more: &[u64]) {
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

fn heaviest(loads: &[u64]) -> u64 {
    loads.iter().copied().max().unwrap_or(0)
}
