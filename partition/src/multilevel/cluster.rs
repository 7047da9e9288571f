//! Clusters of vertices that belong together; one step of coarsening contracts them.
//!
//! Returns a label for each vertex, below the number of vertices; vertices of one label are one
//! cluster. No cluster weighs more than the limit unless it is one vertex. With a partition to
//! respect, no cluster reaches over two parts. Idea: size-constrained label propagation
//! (Meyerhenke, Sanders, Schulz, "Partitioning complex networks via size-constrained clustering",
//! 2014): in some rounds, every vertex joins the cluster with room to which it has most arc weight.
//! Then single vertices that want to join the same full cluster are put together, like in two-hop
//! matching (LaSalle et al., 2015): otherwise the leaves of a hub would never shrink. Every thread
//! count gives the same clusters: vertices are handled in batches, whose members all see the state
//! before the batch and then join in order. A batch takes short runs of vertices, with gaps,
//! because neighbours in the input's order are often neighbours in the graph, and two that move at
//! once may swap. Cost: O(m) per round, parallel except for joining, which is O(n); 8 bytes per
//! vertex, 12 on a small level, and 4 for each constraint.

use rayon::prelude::*;

use super::graph::Graph;
use super::label_weights::{InRuns, LabelWeights, Pool};
use crate::VertexWeights;
use crate::scramble::scramble;

/// Vertices of a stretch, at most.
const STRETCH: usize = 1 << 16;
/// Batches of a stretch.
const STRIDE: usize = 8;
/// Neighbouring vertices that are in one batch.
const RUN: usize = 16;
/// Vertices that one task handles together.
const TASK: usize = 512;
/// A round that moves fewer than one vertex in this many is the last.
const SETTLED: usize = 50;
/// Two-hop clustering begins where more than this share of the vertices is still a cluster.
const MANY_LEFT: f64 = 0.4;
/// Vertices that two-hop clustering puts together at most.
const TWO_HOP_SIZE: u32 = 4;

/// Input of the clustering.
pub(super) struct Clustering<'a, G> {
    pub graph: &'a G,
    pub weights: &'a VertexWeights,
    /// Most that a cluster may weigh, for each constraint.
    pub limits: Vec<u64>,
    /// Rounds of label propagation.
    pub rounds: usize,
    /// Whether vertices choose by degree and never swap clusters. On large levels of an R-MAT graph
    /// of 16 million edges that made the cut half a percent larger.
    pub small: bool,
    pub seed: u64,
    /// Parts that clusters must not join.
    pub within: Option<&'a [u16]>,
}

/// Clusters so far.
struct Clusters {
    labels: Vec<u32>,
    /// Weight of each cluster, interleaved as vertex weights are.
    loads: Vec<u32>,
}

impl<G: Graph> Clustering<'_, G> {
    /// The cluster of each vertex.
    pub fn run(&self) -> Vec<u32> {
        let n = self.graph.num_vertices();
        let mut state = Clusters {
            labels: (0..n as u32).collect(),
            loads: (0..n as u32).flat_map(|v| self.weights.of(v).iter().copied()).collect(),
        };
        let pool = Pool::default();
        let order = self.order();
        for round in 0..self.rounds {
            let moved = self.round(
                &mut state,
                self.seed.wrapping_add(scramble(round as u64)),
                &order,
                &pool,
            );
            if moved * SETTLED < n {
                break;
            }
        }
        self.join_left_over(&mut state);
        state.labels
    }

    /// The vertices as they choose: on a small graph by degree, in powers of two, so that a vertex
    /// with few neighbours joins the cluster that it has before a hub takes the room. Empty on a
    /// larger one, whose rows are read in order.
    fn order(&self) -> Vec<u32> {
        if !self.small {
            return Vec::new();
        }
        let mut buckets: [Vec<u32>; 33] = [const { Vec::new() }; 33];
        for v in 0..self.graph.num_vertices() as u32 {
            buckets[(u32::BITS - (self.graph.degree(v) as u32).leading_zeros()) as usize].push(v);
        }
        buckets.concat()
    }

    /// Lets every vertex choose once; how many moved.
    fn round(
        &self,
        state: &mut Clusters,
        seed: u64,
        order: &[u32],
        pool: &Pool<LabelWeights>,
    ) -> usize {
        let n = state.labels.len();
        let stretch = STRETCH.min(n).next_multiple_of(STRIDE * RUN);
        let mut stretches: Vec<usize> = (0..n.div_ceil(stretch)).collect();
        stretches.sort_unstable_by_key(|&s| scramble(seed ^ s as u64));
        let mut wanted = vec![0; stretch / STRIDE];
        let mut moved = 0;
        for s in stretches {
            let turn = (scramble(seed ^ !(s as u64)) % STRIDE as u64) as usize;
            for batch in 0..STRIDE {
                let first = s * stretch + (batch + turn) % STRIDE * RUN;
                let end = n.min((s + 1) * stretch);
                let vertex = |i: usize| {
                    let at = first + i / RUN * RUN * STRIDE + i % RUN;
                    (at < end).then(|| order.get(at).copied().unwrap_or(at as u32))
                };
                wanted.par_chunks_mut(TASK).enumerate().for_each(|(task, wanted)| {
                    pool.with(LabelWeights::default, |by_label| {
                        for (i, wanted) in wanted.iter_mut().enumerate() {
                            let Some(v) = vertex(task * TASK + i) else { break };
                            if let Some(next) = vertex(task * TASK + i + 1) {
                                self.graph.fetch_ahead(next, &state.labels);
                            }
                            *wanted = self.choose(state, v, seed, by_label);
                        }
                    });
                });
                for (i, &to) in wanted.iter().enumerate() {
                    moved += usize::from(vertex(i).is_some_and(|v| self.join(state, v, to)));
                }
            }
        }
        moved
    }

    /// The cluster that `v` prefers at the moment: its own unless another is better.
    fn choose(
        &self,
        state: &Clusters,
        v: u32,
        seed: u64,
        by_label: &mut InRuns<LabelWeights>,
    ) -> u32 {
        let own = state.labels[v as usize];
        self.gather(state, v, by_label);
        let salt = (scramble(seed ^ u64::from(v)) >> 32) as u32;
        let rank =
            |(label, weight): (u32, u32)| (weight, (label ^ salt).wrapping_mul(0x9e37_79b1), label);
        let ranks = || by_label.iter().map(rank);
        let fits = |label| label == own || self.fits(state, v, label);
        let first = ranks().max().unwrap_or((0, 0, own));
        // Mostly the first fits: then one load is read, not that of every label that is the best so
        // far.
        if fits(first.2) {
            return first.2;
        }
        let better = |best, rank: (u32, u32, u32)| {
            if rank > best && rank < first && fits(rank.2) { rank } else { best }
        };
        ranks().fold((0, 0, own), better).2
    }

    /// Sums the arcs of `v` by cluster.
    #[inline]
    fn gather(&self, state: &Clusters, v: u32, by_label: &mut InRuns<LabelWeights>) {
        by_label.clear(self.graph.degree(v), state.labels.len());
        by_label.fill(|runs| match self.within {
            None => self.graph.for_each(v, |u, weight| runs.add(state.labels[u as usize], weight)),
            Some(parts) => self.graph.for_each(v, |u, weight| {
                if parts[u as usize] == parts[v as usize] {
                    runs.add(state.labels[u as usize], weight);
                }
            }),
        });
    }

    fn load<'s>(&self, state: &'s Clusters, label: u32) -> &'s [u32] {
        let constraints = self.weights.constraints();
        &state.loads[label as usize * constraints..(label as usize + 1) * constraints]
    }

    /// Whether the cluster has room for `v`.
    #[inline]
    fn fits(&self, state: &Clusters, v: u32, label: u32) -> bool {
        let sums = self.load(state, label).iter().zip(self.weights.of(v)).zip(&self.limits);
        sums.into_iter()
            .all(|((&load, &weight), &limit)| u64::from(load) + u64::from(weight) <= limit)
    }

    /// Moves `v` if there is still room.
    fn join(&self, state: &mut Clusters, v: u32, to: u32) -> bool {
        let from = state.labels[v as usize];
        if from == to {
            return false;
        }
        // The other vertex may have moved meanwhile, perhaps to the cluster of `v`: two that swap
        // are still apart.
        let left = self.small && state.labels[to as usize] != to;
        let empty = left && self.load(state, to).iter().all(|&load| load == 0);
        if empty || !self.fits(state, v, to) {
            return false;
        }
        let constraints = self.weights.constraints();
        for (c, &weight) in self.weights.of(v).iter().enumerate() {
            state.loads[from as usize * constraints + c] -= weight;
            state.loads[to as usize * constraints + c] += weight;
        }
        state.labels[v as usize] = to;
        true
    }

    /// Two-hop clustering, where too little has shrunk.
    fn join_left_over(&self, state: &mut Clusters) {
        let n = state.labels.len();
        let mut sizes = vec![0u32; n];
        state.labels.iter().for_each(|&label| sizes[label as usize] += 1);
        let clusters = sizes.iter().filter(|&&size| size > 0).count();
        if clusters as f64 <= MANY_LEFT * n as f64 {
            return;
        }
        let alone =
            |v: u32| sizes[state.labels[v as usize] as usize] == 1 && self.graph.degree(v) > 0;
        let favourite = |by_label: &mut InRuns<LabelWeights>, v: u32| {
            if !alone(v) {
                return None;
            }
            self.gather(state, v, by_label);
            let best = by_label.iter().filter(|&(label, _)| label != state.labels[v as usize]);
            best.map(|(label, weight)| (weight, label)).max().map(|(_, label)| (label, v))
        };
        let vertices = (0..n as u32).into_par_iter().with_min_len(TASK);
        let mut pairs: Vec<(u32, u32)> =
            vertices.map_init(InRuns::default, favourite).flatten().collect();
        pairs.par_sort_unstable();
        let mut open: Option<(u32, u32, u32)> = None;
        for (favourite, v) in pairs {
            open = match open {
                Some((label, of, size))
                    if of == favourite
                        && size < TWO_HOP_SIZE
                        && self.joins_same(state, v, label) =>
                {
                    Some((label, of, size + 1))
                }
                _ => Some((state.labels[v as usize], favourite, 1)),
            };
        }
    }

    /// Joins `v` to a cluster in which it may have no neighbour, if both are in the same part.
    fn joins_same(&self, state: &mut Clusters, v: u32, label: u32) -> bool {
        // The label of a cluster of one is its vertex's own, or that of a vertex in the same part.
        let same = self.within.is_none_or(|parts| parts[label as usize] == parts[v as usize]);
        same && self.join(state, v, label)
    }
}
