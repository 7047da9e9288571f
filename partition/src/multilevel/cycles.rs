//! Cycles: coarsen, cut, carry back and refine, and again.

use gsplit_store::{Progress, Stage, Unit};
use rayon::prelude::*;

use super::Quality;
use super::cluster::Clustering;
use super::contract::{Level, NONE, contract};
use super::fm::Fm;
use super::graph::Graph;
use super::initial::{self, Halving, cut};
use super::jet::Jet;
use super::pieces::join_pieces;
use super::refine::{Cut, move_in_rounds};
use super::servers::initial_within;
use crate::loads::{Loads, capacity};
use crate::repair::balance_within_servers;
use crate::scramble::scramble;
use crate::spread::spread;
use crate::{Layout, VertexWeights};

/// How much work to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Rounds of clustering on each level.
    cluster_rounds: usize,
    /// Vertices per part at which coarsening ends, and at which bundles are cut once a level has
    /// them, unless parts are small.
    coarsest_per_part: usize,
    /// Rounds of label propagation refinement on each level.
    pub refine_rounds: usize,
    /// Initial cuts.
    tries: u64,
    /// FM refines levels where vertices times parts, [`FM_PARTS`] at most, are at most this many
    /// ...
    fm_size: usize,
    /// ... and arcs at most this many.
    fm_arcs: u64,
    /// Passes of FM on a level.
    fm_passes: usize,
    /// Jet refines levels of at most this many arcs.
    jet_arcs: u64,
    /// Repetitions of the whole.
    cycles: usize,
}

impl Effort {
    pub fn of(quality: Quality) -> Self {
        let default = Self {
            cluster_rounds: 2,
            coarsest_per_part: 240,
            refine_rounds: 5,
            tries: 2,
            fm_size: 1 << 21,
            fm_arcs: 1 << 24,
            fm_passes: 2,
            jet_arcs: 0,
            cycles: 0,
        };
        match quality {
            Quality::Fast => {
                Self { refine_rounds: 2, tries: 1, fm_size: 1 << 16, fm_passes: 1, ..default }
            }
            Quality::Default => default,
            Quality::High => Self {
                cluster_rounds: 3,
                coarsest_per_part: 160,
                refine_rounds: 8,
                fm_size: 1 << 25,
                fm_arcs: 1 << 26,
                tries: 8,
                fm_passes: 3,
                jet_arcs: SMALL,
                cycles: 2,
            },
        }
    }
}

/// Arcs of a small level, at most: its vertices choose in the order of their degrees.
const SMALL: u64 = 1 << 23;
/// A coarse graph keeps this many arcs, a GiB, or a quarter of the finer one's, where there is
/// room.
const MAX_COARSE_ARCS: u64 = 1 << 27;
/// Coarsening does not go below this many vertices.
const COARSEST: usize = 3000;
/// A thin graph has this many arcs a vertex at most: paths, trees, meshes, roads. Its clusters are
/// uneven and its cuts follow lines of many vertices, so that they have to be moved on many levels.
const THIN_ARCS: u64 = 6;
/// Clusters of a thin graph weigh this many times the mean vertex of their level at most.
pub(super) const THIN_GROWTH: f64 = 3.0;
/// FM takes a vertex to touch this many parts at most ...
const FM_PARTS: usize = 8;
/// ... and of small parts this many, so that it refines levels of twice the size: it is a smaller
/// share of the time there.
const FM_SMALL_PARTS: usize = 4;
/// Passes of FM over a thin graph, or between small parts, at least: there they cost little. (On
/// ogbn-arxiv in 64 parts eight took half as long again as two, for 0.1 % of the cut.)
const FM_CHEAP_PASSES: usize = 8;
/// A small part has fewer vertices than this in the end.
const SMALL_PART: usize = 100;
/// Bundles of small parts are cut where a level has this many vertices a part: so more levels than
/// the finest move vertices between the parts themselves. The cuts of com-DBLP and a grid in 4,096
/// are 0.5 % smaller.
const VERTICES_PER_SMALL_PART: usize = 60;
/// Parts of the coarsest graph, where there are more in the end.
const FIRST_PARTS: u32 = 16;
/// Coarsening ends when a level keeps more than this share of the vertices.
pub(super) const LEAST_SHRINKAGE: f64 = 0.95;
/// A cluster may weigh this many times ε of a part. Larger clusters make fewer levels and find more
/// of what belongs together; smaller ones are easier to balance.
const CLUSTER_SHARE: f64 = 2.0;
/// The same factor on small levels, whose further levels cost little: the cut of com-DBLP is 1 %
/// smaller.
const SMALL_CLUSTER_SHARE: f64 = 1.0;
/// Share of ε that may be used above the finest level of a graph, unless it is thin or refined by
/// Jet, which passes through full parts. The rest lets the finest level make its moves, which are
/// the most valuable: on an R-MAT graph with counters this by itself lowers the cut by 2 %.
const COARSE_EPSILON: f64 = 0.15;

/// Most arcs of a coarse graph that is made of one of `arcs`, where there is room.
pub(super) fn default_max_arcs(arcs: u64) -> u64 {
    MAX_COARSE_ARCS.max(arcs / 4)
}

/// Whether the graph has few arcs a vertex.
pub(super) fn is_thin<G: Graph>(graph: &G) -> bool {
    graph.num_arcs() <= THIN_ARCS * graph.num_vertices() as u64
}

/// Whether the parts are small when the graph is cut into this number.
pub(super) fn are_small<G: Graph>(graph: &G, parts: u32) -> bool {
    graph.num_vertices() < SMALL_PART * parts as usize
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
    /// Whether the finest graph is thin.
    pub thin: bool,
    /// Whether the finest graph has few vertices a part.
    pub small_parts: bool,
    pub progress: &'a dyn Progress,
}

impl<'a> Cycles<'a> {
    /// The part of each vertex, on the server that `servers` names, if given. With `start`, parts
    /// to improve, there are no initial cuts, and at least one cycle.
    pub fn partition<G: Graph>(
        &self,
        graph: &G,
        weights: &VertexWeights,
        start: Option<&[u16]>,
        servers: Option<&[u16]>,
    ) -> Vec<u16> {
        let cycles = self.effort.cycles;
        match start {
            Some(start) => self.improve(graph, weights, start.to_vec(), cycles.max(1)),
            None => self.improve(graph, weights, self.first(graph, weights, servers), cycles),
        }
    }

    /// Coarsens, cuts, and carries back; with `servers`, each within its own.
    fn first<G: Graph>(
        &self,
        graph: &G,
        weights: &VertexWeights,
        servers: Option<&[u16]>,
    ) -> Vec<u16> {
        let levels = self.coarsen(graph, weights, servers, 0);
        let servers = servers.map(|servers| carry_down_all(servers, &levels));
        let loose = self.thin || graph.num_arcs() <= self.effort.jet_arcs;
        let tight = if loose { self.epsilon } else { COARSE_EPSILON * self.epsilon };
        let layout =
            self.layout_of(levels.last().map_or(graph.num_vertices(), |level| level.weights.len()));
        let coarsest = match levels.last() {
            Some(level) => {
                self.cut_coarsest(&level.graph, &level.weights, servers.as_deref(), layout, tight)
            }
            None => self.cut_coarsest(graph, weights, servers.as_deref(), layout, self.epsilon),
        };
        self.carry_back(graph, weights, levels, coarsest, layout, tight)
    }

    /// Layout of the parts of a graph of `size` vertices: bundles where all parts would be too
    /// small.
    fn layout_of(&self, size: usize) -> Layout<'a> {
        let (servers, all) = (self.layout.servers(), self.layout.per_server());
        let per_part =
            if self.small_parts { VERTICES_PER_SMALL_PART } else { self.effort.coarsest_per_part };
        let fitting = (size / per_part) as u32 / servers;
        let most = fitting.max(FIRST_PARTS);
        self.layout.bundles(if most >= all { all } else { 1 << most.ilog2() })
    }

    /// V-cycles: coarsens `parts` with the graph, and carries them back.
    fn improve<G: Graph>(
        &self,
        graph: &G,
        weights: &VertexWeights,
        mut parts: Vec<u16>,
        cycles: usize,
    ) -> Vec<u16> {
        for cycle in 0..cycles {
            let levels = self.coarsen(graph, weights, Some(&parts), 1 + cycle as u64);
            let coarsest = carry_down_all(&parts, &levels);
            let improved =
                self.carry_back(graph, weights, levels, coarsest, self.layout, self.epsilon);
            // A coarse graph that was sampled may have promised too much.
            if self.rank(graph, weights, self.layout, &improved)
                < self.rank(graph, weights, self.layout, &parts)
            {
                parts = improved;
            }
        }
        parts
    }

    /// Rank of a partition, less is better: first its distance from balance, then its cut.
    fn rank<G: Graph>(
        &self,
        graph: &G,
        weights: &VertexWeights,
        layout: Layout<'a>,
        parts: &[u16],
    ) -> (f64, u64) {
        let loads = Loads::of(layout, weights, parts);
        (loads.total_excess(&loads.capacities(self.epsilon)), cut(graph, parts))
    }

    /// Ever smaller graphs; with `within`, none of whose clusters reaches over two parts.
    pub fn coarsen<G: Graph>(
        &self,
        graph: &G,
        weights: &VertexWeights,
        within: Option<&[u16]>,
        cycle: u64,
    ) -> Vec<Level> {
        let kept = |parts: &[u16]| parts.iter().max().map_or(0, |&most| usize::from(most) + 1);
        let least = within.map_or(0, kept).max(self.layout_of(0).parts() as usize);
        let enough = (self.effort.coarsest_per_part * least).max(COARSEST);
        let mut levels: Vec<Level> = Vec::new();
        let mut within = within.map(<[u16]>::to_vec);
        loop {
            let size = levels.last().map_or(graph.num_vertices(), |level| level.weights.len());
            if size <= enough {
                break;
            }
            let seed = scramble(self.seed ^ scramble(cycle << 32 | levels.len() as u64));
            // The next takes half of the rest, so that there is always room for one more.
            let held = levels.iter().map(|level| level.graph.num_arcs()).sum::<u64>();
            let max_arcs = self.max_arcs.saturating_sub(held) / 2;
            let (stage, parts) =
                (self.stage(&format!("coarsen level {}", levels.len()), size), within.as_deref());
            let level = match levels.last() {
                None => self.step(graph, weights, parts, seed, enough, max_arcs),
                Some(last) => self.step(&last.graph, &last.weights, parts, seed, enough, max_arcs),
            };
            let after = level.weights.len();
            stage.advance(size as u64);
            if after as f64 > LEAST_SHRINKAGE * size as f64 || after == 0 {
                break;
            }
            within = within.map(|parts| carry_down(&parts, &level));
            levels.push(level);
        }
        levels
    }

    /// One level down: to about `enough` vertices where that can be, and to `max_arcs` arcs at
    /// most.
    fn step<G: Graph>(
        &self,
        graph: &G,
        weights: &VertexWeights,
        within: Option<&[u16]>,
        seed: u64,
        enough: usize,
        max_arcs: u64,
    ) -> Level {
        let small = graph.num_arcs() <= SMALL;
        let cluster_share = if small { SMALL_CLUSTER_SHARE } else { CLUSTER_SHARE };
        // A cluster is a small share of a part, so that parts of equal weight can be made of them;
        // and of a graph that is small enough next time.
        let layout = self.layout_of(graph.num_vertices());
        let parts = f64::from(layout.parts());
        let smallest =
            (0..layout.parts() as u16).map(|part| layout.target(part)).fold(1.0, f64::min);
        let smallest = if layout.targets().is_some() { smallest } else { 1.0 };
        let share = |&total: &u64| {
            let of_part = cluster_share * self.epsilon * smallest * total as f64 / parts;
            let of_coarsest = 2.0 * total as f64 / enough as f64;
            let grown = if self.thin {
                THIN_GROWTH * total as f64 / graph.num_vertices() as f64
            } else {
                f64::MAX
            };
            (of_part.max(of_coarsest).min(grown) as u64).clamp(1, u64::from(u32::MAX))
        };
        let limits = weights.totals().iter().map(share).collect();
        let labels = Clustering {
            graph,
            weights,
            limits,
            rounds: self.effort.cluster_rounds,
            small,
            seed,
            within,
        }
        .run();
        contract(graph, weights, labels, default_max_arcs(graph.num_arcs()).min(max_arcs), seed)
    }

    fn cut_coarsest<G: Graph>(
        &self,
        graph: &G,
        weights: &VertexWeights,
        servers: Option<&[u16]>,
        layout: Layout<'a>,
        epsilon: f64,
    ) -> Vec<u16> {
        match servers {
            None => self.best_initial(graph, weights, layout, epsilon),
            Some(servers) => initial_within(self, graph, weights, servers, layout, epsilon),
        }
    }

    /// The best of several cuts of the coarsest graph to `layout`, refined to `epsilon`.
    pub fn best_initial<G: Graph>(
        &self,
        graph: &G,
        weights: &VertexWeights,
        layout: Layout<'a>,
        epsilon: f64,
    ) -> Vec<u16> {
        let capacities = self.capacities_of_one(weights);
        let halving = self.halving(layout.parts(), &capacities, initial::TRIES);
        let stage =
            self.progress.stage("initial cuts", Some(self.effort.tries), Unit::Items("cuts"));
        let tries = (0..self.effort.tries).into_par_iter().map(|attempt| {
            let seed = scramble(self.seed.wrapping_add(scramble(attempt)));
            let mut parts = halving.run(graph, weights, seed);
            self.refine(graph, weights, layout, &mut parts, epsilon);
            stage.advance(1);
            (self.rank(graph, weights, layout, &parts), attempt, parts)
        });
        let best =
            tries.min_by(|(a, i, _), (b, j, _)| a.0.total_cmp(&b.0).then((a.1, i).cmp(&(b.1, j))));
        best.map(|(_, _, parts)| parts).unwrap_or_default()
    }

    /// Cuts to `bundles`; one part in the end carries `capacities` at most.
    fn halving<'b>(&'b self, bundles: u32, capacities: &'b [u64], tries: u64) -> Halving<'b> {
        Halving { bundles, layout: self.layout.on_one_server(), capacities, thin: self.thin, tries }
    }

    /// Most that one part may carry in the end, one number for each constraint.
    fn capacities_of_one(&self, weights: &VertexWeights) -> Vec<u64> {
        let share = 1.0 / f64::from(self.parts());
        weights.totals().iter().map(|&total| capacity(total as f64 * share, self.epsilon)).collect()
    }

    /// From the coarsest level's parts to the finest's, refined on every level, above the finest to
    /// `coarse_epsilon`. Bundles are cut as soon as a level has the vertices for it. Levels go as
    /// they are done.
    fn carry_back<G: Graph>(
        &self,
        graph: &G,
        weights: &VertexWeights,
        mut levels: Vec<Level>,
        mut parts: Vec<u16>,
        mut layout: Layout<'a>,
        coarse_epsilon: f64,
    ) -> Vec<u16> {
        let mut known = String::new();
        while let Some(Level { graph: coarse, weights: loads, coarse_of }) = levels.pop() {
            let stage =
                self.stage(&format!("refine level {}{known}", levels.len() + 1), parts.len());
            self.refine(&coarse, &loads, layout, &mut parts, coarse_epsilon);
            let next = self.layout_of(parts.len());
            layout = self.unbundle(&coarse, &loads, &mut parts, layout, next, coarse_epsilon);
            stage.advance(parts.len() as u64);
            known = format!(", cut {}", cut(&coarse, &parts));
            drop((coarse, loads));
            let finer = levels.last().map_or(weights, |finer| &finer.weights);
            parts = carry_up(layout, &coarse_of, finer, &parts);
        }
        let stage = self.stage(&format!("refine level 0{known}"), parts.len());
        self.refine(graph, weights, layout, &mut parts, self.epsilon);
        self.unbundle(graph, weights, &mut parts, layout, self.layout, self.epsilon);
        if graph.num_arcs() <= self.effort.fm_arcs {
            let loads = Loads::of(self.layout, weights, &parts);
            join_pieces(graph, weights, &self.capacities(&loads, self.epsilon), &mut parts, loads);
        }
        stage.advance(parts.len() as u64);
        parts
    }

    /// Cuts the bundles of a layout into the bundles of the next, and refines; returns the new
    /// layout of `parts`.
    fn unbundle<G: Graph>(
        &self,
        graph: &G,
        weights: &VertexWeights,
        parts: &mut [u16],
        layout: Layout<'a>,
        next: Layout<'a>,
        epsilon: f64,
    ) -> Layout<'a> {
        // A V-cycle begins with all parts.
        if next.parts() <= layout.parts() {
            return layout;
        }
        let seed = scramble(self.seed ^ u64::from(next.parts()));
        let capacities = self.capacities_of_one(weights);
        let halving = self.halving(next.per_server(), &capacities, initial::TRIES_OF_BUNDLE);
        initial::unbundle(graph, weights, parts, layout, next, halving, seed);
        self.refine(graph, weights, next, parts, epsilon);
        next
    }

    fn stage(&self, name: &str, vertices: usize) -> Box<dyn Stage> {
        self.progress.stage(name, Some(vertices as u64), Unit::Items("vertices"))
    }

    /// Makes `parts` of `layout` balanced and its cut small, by single moves; moves that lower the
    /// cut fill no part above 1 + `epsilon`.
    fn refine<G: Graph>(
        &self,
        graph: &G,
        weights: &VertexWeights,
        layout: Layout<'a>,
        parts: &mut [u16],
        epsilon: f64,
    ) {
        balance_within_servers(parts, graph, weights, layout, self.epsilon);
        let mut loads = Loads::of(layout, weights, parts);
        let capacities = self.capacities(&loads, epsilon);
        let Effort { refine_rounds: rounds, fm_size, fm_arcs, fm_passes, .. } = self.effort;
        let moves = Cut { graph, weights, capacities: &capacities, parts: layout.parts() as usize };
        move_in_rounds(&moves, rounds, parts, &mut loads);
        if graph.num_arcs() <= self.effort.jet_arcs && !graph.is_read_in_order() {
            Jet::new(graph, weights, &capacities, parts, &mut loads).run();
        }
        let touched = if self.small_parts { FM_SMALL_PARTS } else { FM_PARTS };
        if parts.len() * (layout.parts() as usize).min(touched) <= fm_size
            && graph.num_arcs() <= fm_arcs
        {
            let passes = if self.thin || self.small_parts {
                fm_passes.max(FM_CHEAP_PASSES)
            } else {
                fm_passes
            };
            Fm::new(graph, weights, &capacities, parts, &mut loads).run(passes);
        }
    }

    /// Most that each part may carry. An `epsilon` tighter than that of the whole is one over the
    /// mean of its server: above the finest level a server that carries a little more than the
    /// others keeps room to move in.
    pub fn capacities(&self, loads: &Loads, epsilon: f64) -> Vec<u64> {
        let layout = loads.layout();
        if epsilon >= self.epsilon || layout.servers() == 1 {
            return loads.capacities(epsilon);
        }
        let of_server = |server: u16| {
            let totals = loads.of_server(server);
            let all: f64 = layout.parts_of(server).map(|part| loads.target(part)).sum();
            let of_part = |part: u16| {
                let share = loads.target(part) / all;
                totals
                    .iter()
                    .map(|&total| capacity(total as f64 * share, epsilon))
                    .collect::<Vec<u64>>()
            };
            layout.parts_of(server).flat_map(of_part).collect::<Vec<u64>>()
        };
        (0..layout.servers() as u16).flat_map(of_server).collect()
    }

    fn parts(&self) -> u32 {
        self.layout.parts()
    }
}

/// The parts of the coarsest level, each of whose clusters is within one part.
fn carry_down_all(parts: &[u16], levels: &[Level]) -> Vec<u16> {
    levels.iter().fold(parts.to_vec(), |parts, level| carry_down(&parts, level))
}

/// The parts of the coarser graph, each of whose clusters is within one part.
fn carry_down(parts: &[u16], level: &Level) -> Vec<u16> {
    let mut coarse = vec![0; level.weights.len()];
    for (&of, &part) in level.coarse_of.iter().zip(parts).filter(|&(&of, _)| of != NONE) {
        coarse[of as usize] = part;
    }
    coarse
}

/// The parts of the finer graph, which weighs `weights`; vertices without a coarse vertex are
/// spread.
pub(super) fn carry_up(
    layout: Layout<'_>,
    coarse_of: &[u32],
    weights: &VertexWeights,
    coarse: &[u16],
) -> Vec<u16> {
    let part = |&of: &u32| if of == NONE { 0 } else { coarse[of as usize] };
    let mut parts: Vec<u16> = coarse_of.par_iter().with_min_len(4096).map(part).collect();
    let mut left: Vec<u32> =
        (0..).zip(coarse_of).filter(|&(_, &of)| of == NONE).map(|(v, _)| v).collect();
    if !left.is_empty() {
        let mut loads = Loads::empty(layout, weights);
        let placed = (0..).zip(coarse_of).filter(|&(_, &of)| of != NONE);
        placed.for_each(|(v, _)| loads.add(parts[v as usize], weights.of(v)));
        spread(&mut left, weights, &mut loads, &mut parts);
    }
    parts
}
