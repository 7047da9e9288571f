//! Split parallelism on a mini-batch under one map.
//!
//! Returns: counts of one mini-batch. Idea: a vertex is computed by its owner at every layer that it is in, with all of its
//! sampled in-edges, and its feature row is loaded by its owner. A layer's exchange moves the row of a source to every other
//! rank that owns a destination of it, once: those ranks are collected as bits of a word, 64 parts at a time.
//! Cost: O(edges) for every 64 parts; 10 bytes a vertex of a layer's mixed frontier.

use super::sample::{Layer, MiniBatch};
use crate::Layout;

/// Counts of one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SplitLayer {
    /// Sampled edges whose ends have different owners.
    pub cross: u64,
    /// Sampled edges whose ends have owners on different servers.
    pub cross_servers: u64,
    /// Rows that ranks receive from others: pairs of a vertex and a rank that reads but does not own it. At the last layer
    /// they are feature rows.
    pub exchanged: u64,
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
    /// Most sampled edges of a part over all layers.
    pub max_edges: u64,
    /// Most vertices that a part computes over all layers.
    pub max_vertices: u64,
    /// Most feature rows that a part loads.
    pub max_input: u64,
}

/// Counts `batch` under `assignment`, and the sampled edges of each part over all layers.
pub(super) fn split_parallel(batch: &MiniBatch, assignment: &[u16], layout: Layout) -> (SplitCounts, Vec<u64>) {
    let parts = layout.parts();
    let zeros = vec![0u64; parts as usize];
    let (mut all_edges, mut all_vertices, mut input) = (zeros.clone(), zeros.clone(), zeros.clone());
    let mut counts = SplitCounts::default();
    for layer in &batch.layers {
        let owner: Vec<u16> = layer.mixed_frontier.iter().map(|&v| assignment[v as usize]).collect();
        let (mut edges, mut vertices) = (zeros.clone(), zeros.clone());
        let (mut cross, mut cross_servers) = (0, 0);
        for (i, &mine) in owner[..layer.num_vertices()].iter().enumerate() {
            let sources = layer.sources_of(i);
            edges[mine as usize] += sources.len() as u64;
            vertices[mine as usize] += 1;
            cross += sources.iter().filter(|&&u| owner[u as usize] != mine).count() as u64;
            let here = layout.siblings(mine);
            cross_servers += sources.iter().filter(|&&u| !here.contains(&owner[u as usize])).count() as u64;
        }
        add(&mut all_edges, &edges);
        add(&mut all_vertices, &vertices);
        counts.layers.push(SplitLayer {
            cross,
            cross_servers,
            exchanged: rows_exchanged(layer, &owner, parts),
            max_edges: heaviest(&edges),
            max_vertices: heaviest(&vertices),
        });
    }
    batch.input().iter().for_each(|&v| input[assignment[v as usize] as usize] += 1);
    counts.max_edges = heaviest(&all_edges);
    counts.max_vertices = heaviest(&all_vertices);
    counts.max_input = heaviest(&input);
    (counts, all_edges)
}

/// Pairs of a vertex of the mixed frontier and a part that reads it but does not own it. `owner` is that of each position.
fn rows_exchanged(layer: &Layer, owner: &[u16], parts: u32) -> u64 {
    let mut readers = vec![0u64; owner.len()];
    let mut rows = 0;
    for first in (0..parts).step_by(64) {
        readers.fill(0);
        for (i, &mine) in owner[..layer.num_vertices()].iter().enumerate() {
            let Some(bit) = u32::from(mine).checked_sub(first).filter(|&bit| bit < 64) else { continue };
            for &u in layer.sources_of(i) {
                if owner[u as usize] != mine {
                    readers[u as usize] |= 1 << bit;
                }
            }
        }
        rows += readers.iter().map(|readers| u64::from(readers.count_ones())).sum::<u64>();
    }
    rows
}

fn add(sums: &mut [u64], more: &[u64]) {
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

fn heaviest(loads: &[u64]) -> u64 {
    loads.iter().copied().max().unwrap_or(0)
}
