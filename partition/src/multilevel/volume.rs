//! Refinement by rows exchanged, in place of edges cut.
//!
//! Input as for label propagation. The expected rows never grow, no part grows beyond its capacity, no vertex leaves its server.
//! Split parallelism sends a row to another rank once in a layer, however many of its targets read it. So a cut edge costs less the
//! more others of the same source end in the same part. Let c(u, p) be how often pre-sampling drew an edge
//! from u to a target in p, and d the layers of mini-batches that it drew. If draws are independent, a layer reads u in p with probability
//! f(c) = 1 - exp(-c / d):
//!
//! ```text
//! expected rows of a layer = sum over vertices u and parts p other than u's of f(c(u, p))
//! ```
//!
//! Where edges are seldom drawn f is linear, and this is the cut. Where all are always drawn (`--weights unit`), f is 1, and this is
//! METIS's communication volume. Idea: a vertex moves where the sum falls most: its own terms change, and those of its in-neighbours.
//! Rounds, batches and second looks are those of [`move_in_rounds`]; the finest level alone is refined, since a
//! cluster has no row. Numbers are integers, so the result does not depend on the number of threads.
//! Cost: O(m · k) the first round; 8 · n · k bytes.

use std::sync::atomic::{AtomicU64, Ordering};

use gsplit_store::{Topology, Unit};
use rayon::prelude::*;

use super::cycles::Cycles;
use super::graph::Graph;
use super::refine::{Moves, move_in_rounds};
use crate::loads::Loads;
use crate::{Problem, VertexWeights};

/// Lowers the expected rows of `parts` and says by how much.
pub(super) fn refine<G: Graph>(problem: &Problem<'_>, graph: &G, cycles: &Cycles<'_>, parts: &mut [u16]) {
    let weights = &problem.weights;
    let mut loads = Loads::of(cycles.layout, weights, parts);
    let capacities = cycles.capacities(&loads, problem.epsilon);
    let stage = cycles.progress.stage("refine by rows exchanged", Some(parts.len() as u64), Unit::Items("vertices"));
    let mut moves = PartReads::new(problem, &capacities, parts);
    let before = moves.rows(parts);
    move_in_rounds((graph, weights), &mut moves, cycles.effort.refine_rounds, parts, &mut loads);
    let after = moves.rows(parts);
    stage.advance(parts.len() as u64);
    drop(stage);
    let [before, after] = [before, after].map(|rows| rows as f64 / ONE);
    let what =
        if problem.edge_counts.is_some() { "expected rows of a layer" } else { "rows of a layer of the whole graph" };
    cycles
        .progress
        .note(&format!("note: {what} that cross: {before:.0} by the cut, {after:.0} after refining by them"));
}

/// Rows in [`ReadTable`]'s integers.
const ONE: f64 = (1u64 << 30) as f64;
/// e to the power of minus this is nothing.
const CERTAIN: f64 = 20.0;
/// Entries of a table, at most.
const TABLE_LOG2: u32 = 16;

/// f, by counts: a table, between whose entries lies a line.
struct ReadTable {
    table: Vec<i64>,
    /// Counts from one entry to the next: 2 to this power.
    step_log2: u32,
}

impl ReadTable {
    /// For counts of `draws` layers of mini-batches; `None` where a count of 1 is certain.
    fn new(draws: Option<u64>) -> Self {
        let Some(draws) = draws else { return Self { table: vec![0, ONE as i64], step_log2: 0 } };
        let last = (CERTAIN * draws as f64).ceil() as u64 + 1;
        let step_log2 = (u64::BITS - last.leading_zeros()).saturating_sub(TABLE_LOG2);
        let entry = |i: u64| ((1.0 - (-((i << step_log2) as f64) / draws as f64).exp()) * ONE).round() as i64;
        Self { table: (0..=(last >> step_log2) + 1).map(entry).collect(), step_log2 }
    }

    #[inline]
    fn of(&self, count: u64) -> i64 {
        let (at, rest) = ((count >> self.step_log2) as usize, (count & ((1 << self.step_log2) - 1)) as i64);
        match self.table.get(at..at + 2) {
            Some(pair) => pair[0] + (((pair[1] - pair[0]) * rest) >> self.step_log2),
            None => self.table.last().copied().unwrap_or(0),
        }
    }
}

/// How often each part reads each vertex.
struct PartReads<'a> {
    drawn: Drawn<'a>,
    weights: &'a VertexWeights,
    capacities: &'a [u64],
    expected: ReadTable,
    /// c(u, p), vertex by vertex.
    reads: Vec<u64>,
    parts: usize,
}

/// The drawn edges of a graph.
#[derive(Clone, Copy)]
struct Drawn<'a> {
    topology: &'a Topology,
    counts: Option<&'a [u32]>,
}

impl Drawn<'_> {
    /// Calls `visit` with every other source of `v`'s in-edges once, and with how often its edges were drawn.
    #[inline]
    fn for_each_source(self, v: u32, mut visit: impl FnMut(u32, u64)) {
        let mut e = self.topology.indptr()[v as usize] as usize;
        for same in self.topology.in_neighbours(v).chunk_by(|a, b| a == b) {
            let edges = e..e + same.len();
            e = edges.end;
            let count = self.counts.map_or(1, |counts| counts[edges].iter().map(|&count| u64::from(count)).sum());
            if same[0] != v && count > 0 {
                visit(same[0], count);
            }
        }
    }
}

impl<'a> PartReads<'a> {
    /// Reads under `assignment`, one part for each vertex.
    fn new(problem: &'a Problem<'_>, capacities: &'a [u64], assignment: &[u16]) -> Self {
        let Problem { topology, edge_counts: counts, weights, .. } = problem;
        let drawn = Drawn { topology, counts: *counts };
        let parts = problem.parts as usize;
        let reads: Vec<AtomicU64> = (0..assignment.len() * parts).into_par_iter().map(|_| AtomicU64::new(0)).collect();
        let expected = ReadTable::new(counts.and(Some(problem.draws)));
        let volume = Self { drawn, weights, capacities, expected, reads: Vec::new(), parts };
        (0..assignment.len() as u32).into_par_iter().with_min_len(1024).for_each(|v| {
            let part = assignment[v as usize] as usize;
            // Sums of integers are the same in any order.
            drawn.for_each_source(v, |u, count| {
                reads[u as usize * parts + part].fetch_add(count, Ordering::Relaxed);
            });
        });
        Self { reads: reads.into_iter().map(AtomicU64::into_inner).collect(), ..volume }
    }

    /// Expected rows of a layer of a mini-batch, in [`ONE`]ths.
    fn rows(&self, assignment: &[u16]) -> i64 {
        let of = |(reads, &own): (&[u64], &u16)| {
            let others = reads.iter().enumerate().filter(|&(part, _)| part != own as usize);
            others.map(|(_, &count)| self.expected.of(count)).sum::<i64>()
        };
        self.reads.par_chunks(self.parts).zip(assignment).map(of).sum()
    }

    fn reads_of(&self, u: u32) -> &[u64] {
        &self.reads[u as usize * self.parts..][..self.parts]
    }
}

impl Moves for PartReads<'_> {
    /// Cost of a move of the vertex to each part, in [`ONE`]ths of a row.
    type Scratch = Vec<i64>;

    fn scratch(&self) -> Vec<i64> {
        vec![0; self.parts]
    }

    fn fetch_ahead(&self, v: u32, parts: &[u16]) {
        if (v as usize) < parts.len() {
            let near = self.drawn.topology.in_neighbours(v);
            near.iter().take(64).for_each(|&u| gsplit_kernels::prefetch(&self.reads, u as usize * self.parts));
        }
    }

    fn best(&self, v: u32, parts: &[u16], loads: &Loads, costs: &mut Vec<i64>) -> Option<(u16, u64)> {
        let own = parts[v as usize];
        let (weight, siblings) = (self.weights.of(v), loads.siblings(own));
        if loads.sizes()[own as usize] == 1 {
            return None;
        }
        // Its own row no longer goes where it moves to, and goes to where it was.
        let reads = self.reads_of(v);
        let stays = self.expected.of(reads[own as usize]);
        let mut beyond = false;
        for (part, (cost, &count)) in costs.iter_mut().zip(reads).enumerate() {
            *cost = stays - self.expected.of(count);
            beyond |= part != own as usize && count > 0;
        }
        self.drawn.for_each_source(v, |u, count| {
            let (reads, home) = (self.reads_of(u), parts[u as usize]);
            let mut saved = 0;
            if home != own {
                let now = reads[own as usize];
                saved = self.expected.of(now) - self.expected.of(now.saturating_sub(count));
                beyond = true;
            }
            for (part, (cost, &now)) in costs.iter_mut().zip(reads).enumerate() {
                let more =
                    if part == home as usize { 0 } else { self.expected.of(now + count) - self.expected.of(now) };
                *cost += more - saved;
            }
        });
        if !beyond {
            return None;
        }
        let open = |&part: &u16| part != own && loads.has_room(part, weight, self.capacities);
        let best = siblings.filter(open).min_by_key(|&part| (costs[part as usize], part))?;
        let gain = -costs[best as usize];
        (gain > 0).then_some((best, gain as u64))
    }

    fn moved(&mut self, v: u32, from: u16, to: u16) {
        let (reads, parts) = (&mut self.reads, self.parts);
        self.drawn.for_each_source(v, |u, count| {
            let reads = &mut reads[u as usize * parts..][..parts];
            reads[from as usize] -= count;
            reads[to as usize] += count;
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Objective;
    use crate::multilevel::undirected::Undirected;
    use crate::tests::{draws, random_graph};

    /// The expected rows, by the formula.
    fn oracle(problem: &Problem<'_>, parts: &[u16]) -> f64 {
        let mut reads: BTreeMap<(u32, u16), u64> = BTreeMap::new();
        let mut e = 0;
        for v in 0..parts.len() as u32 {
            for &u in problem.topology.in_neighbours(v) {
                *reads.entry((u, parts[v as usize])).or_default() += problem.edge_counts.map_or(1, |c| c[e].into());
                e += 1;
            }
        }
        let crossing = reads.into_iter().filter(|&((u, part), count)| parts[u as usize] != part && count > 0);
        let certain = problem.edge_counts.is_none();
        let rows = |(_, count)| if certain { 1.0 } else { 1.0 - (-(count as f64) / problem.draws as f64).exp() };
        crossing.map(rows).sum()
    }

    #[test]
    fn moves_gain_what_the_formula_says_and_fill_no_part() {
        let mut moved = 0;
        for seed in 0..60 {
            let graph = random_graph(seed);
            let dataset = graph.dataset();
            let presample = graph.presample(&dataset);
            let n = dataset.num_vertices();
            let mut draws = draws(seed);
            let parts = 2 + draws.below(4);
            let problem = Problem {
                edge_counts: (seed % 3 > 0).then(|| presample.edge()),
                draws: [3, 30, 40_000][seed as usize % 3],
                objective: Objective::Volume,
                seed,
                ..Problem::of(dataset.topology(), parts)
            };
            let finest = Undirected::new(problem.topology, None, u64::MAX, None).unwrap();
            let mut assignment: Vec<u16> = (0..n).map(|_| draws.below(parts) as u16).collect();
            let mut loads = Loads::of(parts, &problem.weights, &assignment);
            let capacities = vec![loads.sizes().iter().max().unwrap() + 1; parts as usize];
            let mut moves = PartReads::new(&problem, &capacities, &assignment);
            let before = moves.rows(&assignment);
            assert!((before as f64 / ONE - oracle(&problem, &assignment)).abs() < 1e-4, "seed {seed}");
            let gained = move_in_rounds((&finest, &problem.weights), &mut moves, 5, &mut assignment, &mut loads);
            let after = moves.rows(&assignment);
            assert_eq!((before - after) as u64, gained, "seed {seed}");
            assert!((after as f64 / ONE - oracle(&problem, &assignment)).abs() < 1e-4, "seed {seed}");
            assert_eq!(after, PartReads::new(&problem, &capacities, &assignment).rows(&assignment), "seed {seed}");
            assert_eq!(Loads::of(parts, &problem.weights, &assignment).sizes(), loads.sizes(), "seed {seed}");
            assert!(loads.sizes().iter().all(|&size| size <= capacities[0]), "seed {seed}: {loads:?}");
            moved += u32::from(gained > 0);
        }
        assert!(moved > 40, "{moved} of 60");
    }

    #[test]
    fn a_table_of_any_length_is_near_the_formula() {
        for draws in [1, 7, 2_700, 5_000_000] {
            let expected = ReadTable::new(Some(draws));
            for count in (0..200).chain((0..60).map(|i| draws * i / 7)) {
                let exact = 1.0 - (-(count as f64) / draws as f64).exp();
                let found = expected.of(count) as f64 / ONE;
                assert!((found - exact).abs() < 1e-6, "{count} of {draws}: {found}, {exact}");
            }
        }
        let certain = ReadTable::new(None);
        assert_eq!([0, 1, 2, 1000].map(|count| certain.of(count) as f64 / ONE), [0.0, 1.0, 1.0, 1.0]);
    }
}
