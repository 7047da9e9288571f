//! Contraction: every cluster becomes a vertex of the next coarser graph.
//!
//! Returns the coarse graph, its vertex weights, and the coarse vertex of each vertex. A coarse pair weighs the sum of the
//! arcs between its clusters; what lies inside a cluster is gone. Vertices without a neighbour have no coarse vertex
//! ([`NONE`]): they cost no cut wherever they go. Coarse vertices are numbered by their clusters' labels.
//! Idea: one pass; each task sums the arcs of a run of clusters in a table and appends them to a segment of its own. Cost: O(m), parallel; 8 bytes an arc of the coarse graph, and 12 a vertex.

use rayon::prelude::*;

use super::graph::{Coarse, Graph, Segment};
use super::tally::Pool;
use crate::VertexWeights;

/// The coarse vertex of a vertex that has no neighbour.
pub(super) const NONE: u32 = u32::MAX;
/// Segments of a coarse graph, at least: enough to share unequal ones between threads.
const SEGMENTS: usize = 128;

/// A coarser graph.
pub(super) struct Level {
    pub graph: Coarse,
    pub weights: VertexWeights,
    /// The coarse vertex of each vertex of the finer graph, or [`NONE`].
    pub coarse_of: Vec<u32>,
}

/// Contracts the clusters that `labels` names, one label below n for each vertex.
pub(super) fn contract<G: Graph>(graph: &G, weights: &VertexWeights, labels: Vec<u32>) -> Level {
    let (coarse_of, clusters) = number(graph, labels);
    let weights = sum_weights(weights, &coarse_of, clusters);
    let (starts, members) = group(&coarse_of, clusters);
    let rows_log2 = (clusters / SEGMENTS).max(1).ilog2();
    let pool = Pool::default();
    let fill = |first: usize| {
        let (mut tally, mut segment) = (pool.take(), Segment::default());
        for cluster in first..clusters.min(first + (1 << rows_log2)) {
            let members = &members[starts[cluster] as usize..starts[cluster + 1] as usize];
            tally.clear(members.iter().map(|&v| graph.degree(v)).sum(), clusters);
            for &v in members {
                graph.for_each(v, |u, weight| {
                    let other = coarse_of[u as usize];
                    if other != cluster as u32 {
                        tally.add(other, weight);
                    }
                });
            }
            segment.arcs.extend(tally.iter());
            segment.ends.push(segment.arcs.len() as u32);
        }
        segment.arcs.shrink_to_fit();
        segment
    };
    let firsts: Vec<usize> = (0..clusters).step_by(1 << rows_log2).collect();
    let segments = firsts.into_par_iter().with_max_len(1).map(fill).collect();
    drop((starts, members));
    Level { graph: Coarse::new(rows_log2, segments), weights, coarse_of }
}

/// Numbers the clusters that have a vertex with a neighbour, in place of their labels.
fn number<G: Graph>(graph: &G, mut labels: Vec<u32>) -> (Vec<u32>, usize) {
    let mut number = vec![NONE; labels.len()];
    for (v, &label) in (0..).zip(&labels) {
        if graph.degree(v) > 0 {
            number[label as usize] = 0;
        }
    }
    let mut next = 0;
    for number in number.iter_mut().filter(|number| **number == 0) {
        *number = next;
        next += 1;
    }
    labels.par_iter_mut().for_each(|label| *label = number[*label as usize]);
    (labels, next as usize)
}

fn sum_weights(weights: &VertexWeights, coarse_of: &[u32], clusters: usize) -> VertexWeights {
    let constraints = weights.constraints();
    let mut sums = vec![0u32; clusters * constraints];
    for (v, &cluster) in (0..).zip(coarse_of).filter(|&(_, &cluster)| cluster != NONE) {
        let start = cluster as usize * constraints;
        let row = &mut sums[start..start + constraints];
        row.iter_mut().zip(weights.of(v)).for_each(|(sum, &weight)| *sum += weight);
    }
    VertexWeights::interleaved(constraints, sums)
}

/// The vertices of each cluster, ascending, and where each cluster's begin.
fn group(coarse_of: &[u32], clusters: usize) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0u32; clusters + 1];
    let placed = || (0u32..).zip(coarse_of).filter(|&(_, &cluster)| cluster != NONE);
    placed().for_each(|(_, &cluster)| starts[cluster as usize + 1] += 1);
    for cluster in 0..clusters {
        starts[cluster + 1] += starts[cluster];
    }
    let mut members = vec![0; starts[clusters] as usize];
    for (v, &cluster) in placed() {
        let cursor = &mut starts[cluster as usize];
        members[*cursor as usize] = v;
        *cursor += 1;
    }
    // Each start has moved to the next one's.
    starts.rotate_right(1);
    starts[0] = 0;
    (starts, members)
}
