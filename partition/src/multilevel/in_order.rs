//! Contraction of a graph that does not fit into memory: its rows are read in the order of the
//! vertices.
//!
//! Returns the coarse graph, as [`contract`](super::contract::contract) does: the same pairs and
//! weights, where none is sampled. Idea: the members of a cluster are scattered, and a page fault
//! for each would read more than the graph. So all vertices are passed in order, once for some
//! segments of the coarse graph at a time: arcs from these segments' clusters are scattered into
//! rows, which are sorted and summed. Cost: a pass over the graph for every `max_arcs` arcs that it
//! has, and one to probe; 8 bytes an arc of these, and 8 a cluster.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use rayon::prelude::*;

use super::contract::{NONE, SEGMENTS_PER_PROBE, sample, segment_log2, threshold};
use super::graph::{Coarse, Graph, Segment};

/// Vertices that one task handles together.
const ROWS_PER_TASK: usize = 1024;

/// Input of the contraction.
pub(super) struct InOrder<'a, G> {
    graph: &'a G,
    coarse_of: &'a [u32],
    /// Arcs of the members of each cluster.
    arcs: Vec<u32>,
    rows_log2: u32,
    seed: u64,
}

impl<'a, G: Graph> InOrder<'a, G> {
    /// Vertices belong to the `clusters` clusters that `coarse_of` names. Which pairs are sampled
    /// depends on `seed`.
    pub fn new(graph: &'a G, coarse_of: &'a [u32], clusters: usize, seed: u64) -> Self {
        let mut arcs = vec![0u32; clusters];
        for (v, &cluster) in (0..).zip(coarse_of).filter(|&(_, &cluster)| cluster != NONE) {
            let sum = &mut arcs[cluster as usize];
            *sum = sum.saturating_add(graph.degree(v) as u32);
        }
        Self { graph, coarse_of, arcs, rows_log2: segment_log2(clusters), seed }
    }

    /// The coarse graph, of about `max_arcs` arcs at most.
    pub fn contract(&self, max_arcs: u64) -> Coarse {
        let segments = self.arcs.len().div_ceil(1 << self.rows_log2);
        let threshold = match self.graph.num_arcs() <= max_arcs {
            true => 1,
            false => {
                let probes: Vec<usize> = (0..segments).step_by(SEGMENTS_PER_PROBE).collect();
                threshold(&self.segments(&probes, 1), self.arcs.len(), max_arcs)
            }
        };
        let (mut done, mut first) = (Vec::with_capacity(segments), 0);
        while first < segments {
            let mut sum = 0;
            let fits = |&segment: &usize| {
                sum += self.arcs_of(segment);
                sum <= max_arcs
            };
            let end = first + (first..segments).take_while(fits).count().max(1);
            done.extend(self.segments(&(first..end).collect::<Vec<_>>(), threshold));
            first = end;
        }
        Coarse::new(self.rows_log2, done)
    }

    /// The clusters of a segment.
    fn clusters(&self, segment: usize) -> std::ops::Range<usize> {
        segment << self.rows_log2..self.arcs.len().min((segment + 1) << self.rows_log2)
    }

    fn arcs_of(&self, segment: usize) -> u64 {
        self.arcs[self.clusters(segment)].iter().map(|&arcs| u64::from(arcs)).sum()
    }

    /// The segments `wanted`, ascending, of pairs that are kept under `threshold`.
    fn segments(&self, wanted: &[usize], threshold: u32) -> Vec<Segment> {
        // Place of the first cluster of each segment, among those wanted.
        let mut places = vec![NONE; self.arcs.len().div_ceil(1 << self.rows_log2)];
        let (mut starts, mut total) = (Vec::new(), 0u64);
        for &segment in wanted {
            places[segment] = starts.len() as u32;
            for &arcs in &self.arcs[self.clusters(segment)] {
                starts.push(total);
                total += u64::from(arcs);
            }
        }
        let filled: Vec<AtomicU32> = starts.iter().map(|_| AtomicU32::new(0)).collect();
        let slots: Vec<AtomicU64> = (0..total).map(|_| AtomicU64::new(0)).collect();
        (0..self.coarse_of.len() as u32).into_par_iter().with_min_len(ROWS_PER_TASK).for_each(
            |v| {
                let cluster = self.coarse_of[v as usize];
                let place = if cluster == NONE {
                    NONE
                } else {
                    places[(cluster >> self.rows_log2) as usize]
                };
                if place == NONE {
                    return;
                }
                let row = (place + (cluster & ((1 << self.rows_log2) - 1))) as usize;
                self.graph.for_each(v, |u, weight| {
                    let other = self.coarse_of[u as usize];
                    if other != cluster {
                        let at = starts[row] + u64::from(filled[row].fetch_add(1, Relaxed));
                        slots[at as usize]
                            .store(u64::from(other) << 32 | u64::from(weight), Relaxed);
                    }
                });
            },
        );
        let mut slots: Vec<u64> = slots.into_iter().map(AtomicU64::into_inner).collect();
        let (mut tasks, mut rest) = (Vec::with_capacity(wanted.len()), &mut slots[..]);
        for &segment in wanted {
            let (mine, others) = rest.split_at_mut(self.arcs_of(segment) as usize);
            tasks.push((segment, mine));
            rest = others;
        }
        let merged = tasks.into_par_iter().with_max_len(1).map(|(segment, slots)| {
            let (mut merged, mut start) = (Segment::default(), 0);
            for (row, cluster) in (places[segment] as usize..).zip(self.clusters(segment)) {
                let length = filled[row].load(Relaxed) as usize;
                self.merge(
                    cluster as u32,
                    &mut slots[start..start + length],
                    threshold,
                    &mut merged,
                );
                start += self.arcs[cluster] as usize;
            }
            merged.arcs.shrink_to_fit();
            merged
        });
        merged.collect()
    }

    /// Adds the row of `cluster`, whose arcs are in no order, each another cluster and below it a
    /// weight, to `segment`.
    fn merge(&self, cluster: u32, arcs: &mut [u64], threshold: u32, segment: &mut Segment) {
        arcs.sort_unstable();
        for same in arcs.chunk_by(|a, b| a >> 32 == b >> 32) {
            let weight = same.iter().fold(0u32, |sum, &arc| sum.saturating_add(arc as u32));
            let arc = ((same[0] >> 32) as u32, weight);
            segment.arcs.extend(if threshold == 1 {
                Some(arc)
            } else {
                sample(cluster, arc.0, arc.1, threshold, self.seed)
            });
        }
        segment.ends.push(segment.arcs.len() as u32);
    }
}
