//! Cycles: coarsen, cut, carry back and refine, and again.

use gsplit_store::{Progress, Stage, Unit};
use rayon::prelude::*;

use super::Quality;
use super::cluster::Clustering;
use super::contract::{Level, NONE, contract};
use super::fm::Fm;
use super::graph::Graph;
use super::initial::{cut, initial};
use super::refine::{Cut, move_in_rounds};
use super::servers::initial_within;
use crate::loads::Loads;
use crate::repair::balance_within_servers;
use crate::scramble::scramble;
use crate::spread::spread;
use crate::{Layout, VertexWeights};

/// How much work to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Rounds of clustering on each level.
    cluster_rounds: usize,
    /// Rounds of label propagation refinement on each level.
    pub refine_rounds: usize,
    /// Initial cuts.
    tries: u64,
    /// FM refines levels where vertices times parts are at most this many ...
    fm_size: usize,
    /// ... and arcs at most this many.
    fm_arcs: u64,
    /// Passes of FM on a level.
    fm_passes: usize,
    /// Repetitions of the whole.
    cycles: usize,
}

impl Effort {
    pub fn of(quality: Quality) -> Self {
        let default = Self {
            cluster_rounds: 2,
            refine_rounds: 5,
            tries: 2,
            fm_size: 1 << 21,
            fm_arcs: 1 << 24,
            fm_passes: 2,
            cycles: 0,
        };
        match quality {
            Quality::Fast => Self { refine_rounds: 2, tries: 1, fm_size: 1 << 16, fm_passes: 1, ..default },
            Quality::Default => default,
            Quality::High => Self {
                cluster_rounds: 3,
                refine_rounds: 8,
                fm_size: 1 << 25,
                fm_arcs: 1 << 26,
                fm_passes: 3,
                cycles: 2,
                ..default
            },
        }
    }
}

/// Arcs of a small level, at most: its vertices choose in the order of their degrees.
const SMALL: u64 = 1 << 23;
/// A coarse graph keeps this many arcs, a GiB, or a quarter of the finer one's, where there is room.
const MAX_COARSE_ARCS: u64 = 1 << 27;
/// Coarsening ends at this many vertices a part ...
const COARSEST_PER_PART: usize = 400;
/// ... but not below this many in all.
const COARSEST: usize = 3000;
/// Coarsening ends when a level keeps more than this share of the vertices.
pub(super) const LEAST_SHRINKAGE: f64 = 0.95;
/// A cluster may weigh this many times ε of a part. Larger clusters make fewer levels and find more of what belongs
/// together; smaller ones are easier to balance.
const CLUSTER_SHARE: f64 = 2.0;
/// The same on small levels, whose further levels cost little: the cut of com-DBLP is 1 % smaller.
const SMALL_CLUSTER_SHARE: f64 = 1.0;
/// Share of ε that may be used above the finest level. What is left lets the finest level make its moves, which are the
/// most valuable: on an R-MAT graph with counters that alone lowers the cut by 2 %.
const COARSE_EPSILON: f64 = 0.15;

/// Most arcs of a coarse graph that is made of one of `arcs`, where there is room.
pub(super) fn default_max_arcs(arcs: u64) -> u64 {
    MAX_COARSE_ARCS.max(arcs / 4)
}

/// The cycles of one partition: its layout and balance, and the effort to spend.
#[derive(Clone, Copy)]
pub(super) struct Cycles<'a> {
    pub layout: Layout<'a>,
    pub epsilon: f64,
    pub seed: u64,
    pub effort: Effort,
    /// Most arcs of all coarse graphs together.
    pub max_arcs: u64,
    pub progress: &'a dyn Progress,
}

impl Cycles<'_> {
    /// The part of each vertex. With `start`, parts to improve, there are no initial cuts, and one cycle at least.
    pub fn partition<G: Graph>(&self, graph: &G, weights: &VertexWeights, start: Option<&[u16]>) -> Vec<u16> {
        let cycles = self.effort.cycles;
        match start {
            Some(start) => self.improve(graph, weights, start.to_vec(), cycles.max(1)),
            None => self.improve(graph, weights, self.first(graph, weights, None), cycles),
        }
    }

    /// The part of each vertex, on the server that `servers` names.
    pub fn partition_within<G: Graph>(&self, graph: &G, weights: &VertexWeights, servers: &[u16]) -> Vec<u16> {
        self.improve(graph, weights, self.first(graph, weights, Some(servers)), self.effort.cycles)
    }

    /// Coarsens, cuts, and carries back; with `servers`, each within its own.
    fn first<G: Graph>(&self, graph: &G, weights: &VertexWeights, servers: Option<&[u16]>) -> Vec<u16> {
        let levels = self.coarsen(graph, weights, servers, 0);
        let servers = servers.map(|servers| carry_down_all(servers, &levels));
        let tight = COARSE_EPSILON * self.epsilon;
        let coarsest = match levels.last() {
            Some(level) => self.cut_coarsest(&level.graph, &level.weights, servers.as_deref(), tight),
            None => self.cut_coarsest(graph, weights, servers.as_deref(), self.epsilon),
        };
        self.carry_back(graph, weights, levels, coarsest, tight)
    }

    /// V-cycles: coarsens `parts` with the graph, and carries them back.
    fn improve<G: Graph>(&self, graph: &G, weights: &VertexWeights, mut parts: Vec<u16>, cycles: usize) -> Vec<u16> {
        for cycle in 0..cycles {
            let levels = self.coarsen(graph, weights, Some(&parts), 1 + cycle as u64);
            let coarsest = carry_down_all(&parts, &levels);
            let improved = self.carry_back(graph, weights, levels, coarsest, self.epsilon);
            // A coarse graph that was sampled may have promised too much.
            if self.rank(graph, weights, &improved) < self.rank(graph, weights, &parts) {
                parts = improved;
            }
        }
        parts
    }

    /// Rank of a partition, less is better: first its distance from balance, then its cut.
    fn rank<G: Graph>(&self, graph: &G, weights: &VertexWeights, parts: &[u16]) -> (f64, u64) {
        let imbalance = Loads::of(self.layout, weights, parts).imbalance();
        ((imbalance - 1.0 - self.epsilon).max(0.0), cut(graph, parts))
    }

    /// Ever smaller graphs; with `within`, none of whose clusters reaches over two parts.
    pub fn coarsen<G: Graph>(
        &self,
        graph: &G,
        weights: &VertexWeights,
        within: Option<&[u16]>,
        cycle: u64,
    ) -> Vec<Level> {
        let enough = (COARSEST_PER_PART * self.parts() as usize).max(COARSEST);
        let mut levels: Vec<Level> = Vec::new();
        let mut within = within.map(<[u16]>::to_vec);
        loop {
            let seed = scramble(self.seed ^ scramble(cycle << 32 | levels.len() as u64));
            // The next takes half of what the others leave, so that there is always room for one more.
            let held = levels.iter().map(|level| level.graph.num_arcs()).sum::<u64>();
            let max_arcs = self.max_arcs.saturating_sub(held) / 2;
            let size = levels.last().map_or(graph.num_vertices(), |level| level.weights.len());
            let stage = (size > enough).then(|| self.stage(&format!("coarsen level {}", levels.len()), size));
            let (before, level) = match levels.last() {
                None if graph.num_vertices() > enough => {
                    (graph.num_vertices(), self.step((graph, weights), within.as_deref(), seed, (enough, max_arcs)))
                }
                Some(last) if last.weights.len() > enough => {
                    let of_last = (&last.graph, &last.weights);
                    (last.weights.len(), self.step(of_last, within.as_deref(), seed, (enough, max_arcs)))
                }
                _ => break,
            };
            let after = level.weights.len();
            stage.iter().for_each(|stage| stage.advance(before as u64));
            if after as f64 > LEAST_SHRINKAGE * before as f64 || after == 0 {
                break;
            }
            within = within.map(|parts| carry_down(&parts, &level));
            levels.push(level);
        }
        levels
    }

    /// One level down: to about `enough` vertices where that can be, and to `max_arcs` arcs at most.
    fn step<G: Graph>(
        &self,
        (graph, weights): (&G, &VertexWeights),
        within: Option<&[u16]>,
        seed: u64,
        (enough, max_arcs): (usize, u64),
    ) -> Level {
        let small = graph.num_arcs() <= SMALL;
        let cluster_share = if small { SMALL_CLUSTER_SHARE } else { CLUSTER_SHARE };
        // A cluster is a small share of a part, so that parts of equal weight can be made of them; and of a graph that
        // is small enough next time.
        let smallest = self.layout.targets().unwrap_or_default().iter().copied().fold(1.0, f64::min);
        let share = |&total: &u64| {
            let of_part = cluster_share * self.epsilon * smallest * total as f64 / f64::from(self.parts());
            let of_coarsest = 2.0 * total as f64 / enough as f64;
            (of_part.max(of_coarsest) as u64).clamp(1, u64::from(u32::MAX))
        };
        let limits = weights.totals().iter().map(share).collect();
        let labels =
            Clustering { graph, weights, limits, rounds: self.effort.cluster_rounds, small, seed, within }.run();
        contract(graph, weights, labels, default_max_arcs(graph.num_arcs()).min(max_arcs), seed)
    }

    fn cut_coarsest<G: Graph>(
        &self,
        graph: &G,
        weights: &VertexWeights,
        servers: Option<&[u16]>,
        epsilon: f64,
    ) -> Vec<u16> {
        match servers {
            None => self.best_initial(graph, weights, epsilon),
            Some(servers) => initial_within(self, graph, weights, servers, epsilon),
        }
    }

    /// The best of several cuts of the coarsest graph, refined to `epsilon`.
    pub fn best_initial<G: Graph>(&self, graph: &G, weights: &VertexWeights, epsilon: f64) -> Vec<u16> {
        let stage = self.progress.stage("initial cuts", Some(self.effort.tries), Unit::Items("cuts"));
        let tries = (0..self.effort.tries).into_par_iter().map(|attempt| {
            let seed = scramble(self.seed.wrapping_add(scramble(attempt)));
            let mut parts = initial(graph, weights, self.layout, self.epsilon, seed);
            self.refine(graph, weights, &mut parts, epsilon);
            stage.advance(1);
            (self.rank(graph, weights, &parts), attempt, parts)
        });
        let best = tries.min_by(|(a, i, _), (b, j, _)| a.0.total_cmp(&b.0).then((a.1, i).cmp(&(b.1, j))));
        best.map(|(_, _, parts)| parts).unwrap_or_default()
    }

    /// From the coarsest level's parts to the finest's, refined on every level, above the finest to `coarse_epsilon`;
    /// levels go as they are done.
    fn carry_back<G: Graph>(
        &self,
        graph: &G,
        weights: &VertexWeights,
        mut levels: Vec<Level>,
        mut parts: Vec<u16>,
        coarse_epsilon: f64,
    ) -> Vec<u16> {
        let mut known = String::new();
        while let Some(Level { graph: coarse, weights: loads, coarse_of }) = levels.pop() {
            let stage = self.stage(&format!("refine level {}{known}", levels.len() + 1), parts.len());
            self.refine(&coarse, &loads, &mut parts, coarse_epsilon);
            stage.advance(parts.len() as u64);
            known = format!(", cut {}", cut(&coarse, &parts));
            drop((coarse, loads));
            let finer = levels.last().map_or(weights, |finer| &finer.weights);
            parts = carry_up(self.layout, &coarse_of, finer, &parts);
        }
        let stage = self.stage(&format!("refine level 0{known}"), parts.len());
        self.refine(graph, weights, &mut parts, self.epsilon);
        stage.advance(parts.len() as u64);
        parts
    }

    fn stage(&self, name: &str, vertices: usize) -> Box<dyn Stage> {
        self.progress.stage(name, Some(vertices as u64), Unit::Items("vertices"))
    }

    /// Makes `parts` balanced and its cut small, by single moves; those that lower the cut fill no part above 1 + `epsilon`.
    fn refine<G: Graph>(&self, graph: &G, weights: &VertexWeights, parts: &mut [u16], epsilon: f64) {
        balance_within_servers(parts, graph, weights, self.layout, self.epsilon);
        let mut loads = Loads::of(self.layout, weights, parts);
        let capacities = self.capacities(weights, &loads, epsilon);
        let Effort { refine_rounds: rounds, fm_size, fm_arcs, fm_passes, .. } = self.effort;
        let mut moves = Cut { graph, weights, capacities: &capacities, parts: self.parts() as usize };
        move_in_rounds((graph, weights), &mut moves, rounds, parts, &mut loads);
        if parts.len() * self.parts() as usize <= fm_size && graph.num_arcs() <= fm_arcs {
            Fm::new(graph, weights, &capacities, parts, &mut loads).run(fm_passes);
        }
    }

    /// Most that each part may carry. An `epsilon` tighter than that of the whole is one over the mean of its server: above
    /// the finest level a server that carries a little more than the others keeps room to move in.
    pub fn capacities(&self, weights: &VertexWeights, loads: &Loads, epsilon: f64) -> Vec<u64> {
        let of_server = |server: u16| {
            let (totals, parts) = match epsilon < self.epsilon {
                true => (loads.of_server(server), self.layout.per_server()),
                false => (weights.totals().to_vec(), self.parts()),
            };
            // Over the mean of those parts.
            let mean = if epsilon < self.epsilon { self.layout.server_target(server) } else { 1.0 };
            let of_part = |part: u16| {
                let target = self.layout.target(part) / mean;
                let capacity = |&total: &u64| (total as f64 / f64::from(parts) * target * (1.0 + epsilon)) as u64;
                totals.iter().map(capacity).collect::<Vec<u64>>()
            };
            self.layout.parts_of(server).flat_map(of_part).collect::<Vec<u64>>()
        };
        (0..self.layout.servers() as u16).flat_map(of_server).collect()
    }

    fn parts(&self) -> u32 {
        self.layout.parts()
    }
}

/// The parts of the coarsest level, whose clusters lie in one part each.
fn carry_down_all(parts: &[u16], levels: &[Level]) -> Vec<u16> {
    levels.iter().fold(parts.to_vec(), |parts, level| carry_down(&parts, level))
}

/// The parts of the coarser graph, whose clusters lie in one part each.
fn carry_down(parts: &[u16], level: &Level) -> Vec<u16> {
    let mut coarse = vec![0; level.weights.len()];
    for (&of, &part) in level.coarse_of.iter().zip(parts).filter(|&(&of, _)| of != NONE) {
        coarse[of as usize] = part;
    }
    coarse
}

/// The parts of the finer graph, which weighs `weights`; what has no coarse vertex is spread.
pub(super) fn carry_up(layout: Layout<'_>, coarse_of: &[u32], weights: &VertexWeights, coarse: &[u16]) -> Vec<u16> {
    let part = |&of: &u32| if of == NONE { 0 } else { coarse[of as usize] };
    let mut parts: Vec<u16> = coarse_of.par_iter().with_min_len(4096).map(part).collect();
    let mut left: Vec<u32> = (0..).zip(coarse_of).filter(|&(_, &of)| of == NONE).map(|(v, _)| v).collect();
    if !left.is_empty() {
        let mut loads = Loads::empty(layout, weights);
        let placed = (0..).zip(coarse_of).filter(|&(_, &of)| of != NONE);
        placed.for_each(|(v, _)| loads.add(parts[v as usize], weights.of(v)));
        spread(&mut left, weights, &mut loads, &mut parts);
    }
    parts
}
