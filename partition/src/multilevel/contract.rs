//! Contraction: every cluster becomes a vertex of the next coarser graph.
//!
//! Returns the coarse graph, its vertex weights, and the coarse vertex of each vertex. A coarse
//! pair weighs the sum of the arcs between its clusters; arcs inside a cluster disappear. Vertices
//! without a neighbour have no coarse vertex ([`NONE`]): they cost no cut wherever they go. Coarse
//! vertices are numbered by their clusters' labels. Idea: one pass; each task sums the arcs of a
//! run of clusters in a table and appends them to a segment of its own. Where the coarse graph
//! would exceed its limit of arcs, pairs are sampled, with a probability in proportion to their
//! weight up to a threshold, and sampled pairs below it get that weight: the expectation of every
//! cut is unchanged (edge sparsification as in Goranci et al., and for partitioning Gottesbüren et
//! al., "Linear-time multilevel graph partitioning via edge sparsification", 2025). So a graph
//! without clusters cannot fill the memory. A graph that memory does not hold is read in order
//! instead ([`in_order`](super::in_order)). Cost: O(m), parallel; 8 bytes per arc of the coarse
//! graph, and 12 per vertex.

use rayon::prelude::*;

use super::graph::{Coarse, Graph, Segment};
use super::in_order::InOrder;
use super::label_weights::{InRuns, LabelWeights, Pool};
use crate::VertexWeights;
use crate::scramble::scramble;

/// The coarse vertex of a vertex that has no neighbour.
pub(super) const NONE: u32 = u32::MAX;
/// Segments of a coarse graph, at least: enough to share unequal ones between threads.
const SEGMENTS: usize = 128;
/// Rows of a segment, at least: a task of fewer costs more than it saves.
const LEAST_ROWS: usize = 256;

/// One segment in this many is counted before pairs are sampled.
pub(super) const SEGMENTS_PER_PROBE: usize = 32;
/// Largest threshold below which pairs are sampled.
const MAX_THRESHOLD: usize = 1 << 14;

/// A coarser graph.
pub(super) struct Level {
    pub graph: Coarse,
    pub weights: VertexWeights,
    /// The coarse vertex of each vertex of the finer graph, or [`NONE`].
    pub coarse_of: Vec<u32>,
}

/// Contracts the clusters that `labels` names, one label below n for each vertex. The coarse graph
/// has about `max_arcs` arcs at most; which ones depends on `seed`.
pub(super) fn contract<G: Graph>(
    graph: &G,
    weights: &VertexWeights,
    labels: Vec<u32>,
    max_arcs: u64,
    seed: u64,
) -> Level {
    let (coarse_of, clusters) = number(graph, labels);
    let weights = sum_weights(weights, &coarse_of, clusters);
    if graph.is_read_in_order() {
        let graph = InOrder::new(graph, &coarse_of, clusters, seed).contract(max_arcs);
        return Level { graph, weights, coarse_of };
    }
    let (starts, members) = group(&coarse_of, clusters);
    let rows_log2 = segment_log2(clusters);
    let contraction = Contraction {
        graph,
        coarse_of: &coarse_of,
        starts,
        members,
        rows_log2,
        pool: Pool::default(),
        seed,
    };
    let threshold = if graph.num_arcs() <= max_arcs { 1 } else { contraction.probe(max_arcs) };
    let firsts: Vec<usize> = contraction.firsts().collect();
    let segments = firsts
        .into_par_iter()
        .with_max_len(1)
        .map(|first| contraction.segment(first, threshold))
        .collect();
    drop(contraction);
    Level { graph: Coarse::new(rows_log2, segments), weights, coarse_of }
}

/// Rows of a segment, as a power of two, in a coarse graph of `rows` rows.
pub(super) fn segment_log2(rows: usize) -> u32 {
    (rows / SEGMENTS).max(LEAST_ROWS).ilog2()
}

/// Input of a contraction.
struct Contraction<'a, G> {
    graph: &'a G,
    coarse_of: &'a [u32],
    /// Start of each cluster's members.
    starts: Vec<u32>,
    members: Vec<u32>,
    rows_log2: u32,
    pool: Pool<LabelWeights>,
    seed: u64,
}

impl<G: Graph> Contraction<'_, G> {
    fn num_clusters(&self) -> usize {
        self.starts.len() - 1
    }

    /// The first cluster of each segment.
    fn firsts(&self) -> impl Iterator<Item = usize> {
        (0..self.num_clusters()).step_by(1 << self.rows_log2)
    }

    /// The rows from `first` on, of pairs that are kept under `threshold`.
    fn segment(&self, first: usize, threshold: u32) -> Segment {
        self.pool.with(LabelWeights::default, |by_label| self.fill(first, threshold, by_label))
    }

    fn fill(&self, first: usize, threshold: u32, by_label: &mut InRuns<LabelWeights>) -> Segment {
        let mut segment = Segment::default();
        for cluster in first..self.num_clusters().min(first + (1 << self.rows_log2)) {
            let members =
                &self.members[self.starts[cluster] as usize..self.starts[cluster + 1] as usize];
            by_label
                .clear(members.iter().map(|&v| self.graph.degree(v)).sum(), self.num_clusters());
            by_label.fill(|runs| {
                for (i, &v) in members.iter().enumerate() {
                    self.graph
                        .fetch_ahead(members.get(i + 1).copied().unwrap_or(NONE), self.coarse_of);
                    self.graph.for_each(v, |u, weight| {
                        let other = self.coarse_of[u as usize];
                        if other != cluster as u32 {
                            runs.add(other, weight);
                        }
                    });
                }
            });
            match threshold {
                1 => segment.arcs.extend(by_label.iter()),
                _ => {
                    segment.arcs.extend(by_label.iter().filter_map(|arc| {
                        sample(cluster as u32, arc.0, arc.1, threshold, self.seed)
                    }))
                }
            }
            segment.ends.push(segment.arcs.len() as u32);
        }
        segment.arcs.shrink_to_fit();
        segment
    }

    /// The least threshold that leaves about `max_arcs`, judged by a few segments.
    fn probe(&self, max_arcs: u64) -> u32 {
        let firsts: Vec<usize> = self.firsts().step_by(SEGMENTS_PER_PROBE).collect();
        let probes = firsts.into_par_iter().with_max_len(1).map(|first| self.segment(first, 1));
        threshold(&probes.collect::<Vec<_>>(), self.num_clusters(), max_arcs)
    }
}

/// The arc from `cluster`, if it is kept under a threshold and a seed, with the weight that it then
/// has; the same for both ends of a pair.
pub(super) fn sample(
    cluster: u32,
    other: u32,
    weight: u32,
    threshold: u32,
    seed: u64,
) -> Option<(u32, u32)> {
    let pair = u64::from(cluster.min(other)) << 32 | u64::from(cluster.max(other));
    let draw = scramble(pair ^ seed) >> 32;
    let kept = weight >= threshold || draw * u64::from(threshold) < u64::from(weight) << 32;
    kept.then_some((other, weight.max(threshold)))
}

/// The least threshold that leaves about `max_arcs` arcs of a graph with this number of clusters,
/// estimated from some of its rows.
pub(super) fn threshold(probes: &[Segment], clusters: usize, max_arcs: u64) -> u32 {
    let (mut counts, mut rows) = (vec![0u64; MAX_THRESHOLD + 1], 0);
    for segment in probes {
        segment
            .arcs
            .iter()
            .for_each(|&(_, weight)| counts[MAX_THRESHOLD.min(weight as usize)] += 1);
        rows += segment.ends.len();
    }
    let allowed = max_arcs as f64 * rows as f64 / clusters.max(1) as f64;
    let expected = |threshold: usize| {
        let kept = counts
            .iter()
            .enumerate()
            .map(|(weight, &count)| count as f64 * f64::min(1.0, weight as f64 / threshold as f64));
        kept.sum::<f64>()
    };
    (1..MAX_THRESHOLD).find(|&threshold| expected(threshold) <= allowed).unwrap_or(MAX_THRESHOLD)
        as u32
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
    labels.par_iter_mut().with_min_len(4096).for_each(|label| *label = number[*label as usize]);
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
