//! Refinement by moves that may first cost something: Fiduccia and Mattheyses (1982), for k parts.
//!
//! Input as for label propagation; the cut never grows, no part grows beyond its capacity, and no vertex leaves its server.
//! Idea: always make the move that gains most, even if it loses, each vertex at most once; when nothing better was seen for
//! a while go back to the best state. The next pass begins there. A move into a full part waits until a vertex leaves it. It climbs out of local optima that label propagation
//! stays in. Sequential, so it is kept for graphs with few vertices; how much of each vertex's arc weight leads to each part
//! is kept in a table.
//! Cost: O((n + moved arcs) · k) a pass, 8 · n · k bytes.

use std::collections::BinaryHeap;

use rayon::prelude::*;

use super::graph::Graph;
use crate::VertexWeights;
use crate::loads::Loads;

/// A pass ends after this many moves without a better state, at least.
const LEAST_PATIENCE: usize = 200;
/// A pass ends after one vertex in this many moved without a better state.
const PATIENCE: usize = 40;

/// Vertices that are tried again when another leaves a part that they wait for.
const LET_IN: usize = 4;

/// Vertices that one task handles together.
const ROWS_PER_TASK: usize = 512;

/// A state of refinement.
pub(super) struct Fm<'a, G> {
    graph: &'a G,
    weights: &'a VertexWeights,
    capacities: &'a [u64],
    parts: &'a mut [u16],
    loads: &'a mut Loads,
    /// Arc weight from each vertex to each part.
    ties: Vec<i64>,
    moved: Vec<bool>,
}

impl<'a, G: Graph> Fm<'a, G> {
    /// Prepares to move vertices in `parts`, whose loads are `loads`.
    pub fn new(
        graph: &'a G,
        weights: &'a VertexWeights,
        capacities: &'a [u64],
        parts: &'a mut [u16],
        loads: &'a mut Loads,
    ) -> Self {
        let k = loads.num_parts();
        let mut ties = vec![0; parts.len() * k];
        let state = &*parts;
        ties.par_chunks_mut(k).with_min_len(ROWS_PER_TASK).zip(0..parts.len() as u32).for_each(|(row, v)| {
            graph.for_each(v, |u, weight| row[state[u as usize] as usize] += i64::from(weight));
        });
        let moved = vec![false; parts.len()];
        Self { graph, weights, capacities, parts, loads, ties, moved }
    }

    /// Runs at most `passes` passes; the weight by which the cut has fallen.
    pub fn run(mut self, passes: usize) -> u64 {
        let mut gained = 0;
        for _ in 0..passes {
            let gain = self.pass();
            gained += gain;
            if gain == 0 {
                break;
            }
        }
        gained as u64
    }

    fn pass(&mut self) -> i64 {
        self.moved.fill(false);
        let mut queue = self.near_moves();
        // The most that an entry of each vertex promises: one that promises enough is put right when it is taken.
        let mut promised = vec![i64::MIN; self.parts.len()];
        queue.iter().for_each(|entry| promised[entry.vertex() as usize] = entry.gain());
        // Those that wait for room in each part.
        let mut waiting = vec![BinaryHeap::new(); self.loads.num_parts()];
        let patience = LEAST_PATIENCE.max(self.parts.len() / PATIENCE);
        let (mut log, mut best, mut sum, mut best_sum) = (Vec::new(), 0, 0, 0);
        while let Some(entry) = queue.pop() {
            let (v, to) = (entry.vertex(), entry.part());
            let from = self.parts[v as usize];
            if self.moved[v as usize] || from == to || self.loads.sizes()[from as usize] <= 1 {
                continue;
            }
            let gain = self.gain(v, to);
            if gain < entry.gain() {
                promised[v as usize] = gain;
                queue.push(Entry::new(gain, v, to));
                continue;
            }
            if !self.has_room(to, v) {
                waiting[to as usize].push(Entry::new(gain, v, to));
                promised[v as usize] = i64::MIN;
                if let Some((gain, to)) = self.best(v, |part| self.has_room(part, v)) {
                    promised[v as usize] = gain;
                    queue.push(Entry::new(gain, v, to));
                }
                continue;
            }
            log.push((v, from));
            self.moved[v as usize] = true;
            self.shift(v, to, |fm, u| {
                if let Some((gain, part)) = fm.hope(u, from, to).filter(|&(gain, _)| gain > promised[u as usize]) {
                    promised[u as usize] = gain;
                    queue.push(Entry::new(gain, u, part));
                }
            });
            self.let_in(from, &mut waiting[from as usize], &mut queue);
            sum += gain;
            if sum > best_sum {
                (best_sum, best) = (sum, log.len());
            } else if log.len() > best + patience {
                break;
            }
        }
        for (v, from) in log.drain(best..).rev() {
            self.shift(v, from, |_, _| {});
        }
        best_sum
    }

    /// The best moves of vertices that are tied to another part at least half as much as to their own.
    fn near_moves(&self) -> BinaryHeap<Entry> {
        let vertices = (0..self.parts.len() as u32).into_par_iter().with_min_len(ROWS_PER_TASK);
        let moves = vertices.filter_map(|v| {
            let (gain, to) = self.best(v, |_| true)?;
            let own = self.tie(v, self.parts[v as usize]);
            (2 * (gain + own) >= own).then(|| Entry::new(gain, v, to))
        });
        BinaryHeap::from(moves.collect::<Vec<_>>())
    }

    /// Queues some of those that wait for room in `part`, which a vertex has left.
    fn let_in(&self, part: u16, waiting: &mut BinaryHeap<Entry>, queue: &mut BinaryHeap<Entry>) {
        let mut left = LET_IN;
        while left > 0
            && let Some(entry) = waiting.pop()
        {
            let v = entry.vertex();
            if self.moved[v as usize] || self.parts[v as usize] == part {
                continue;
            }
            let gain = self.gain(v, part);
            let now = Entry::new(gain, v, part);
            if gain < entry.gain() {
                waiting.push(now);
            } else if self.has_room(part, v) {
                queue.push(now);
                left -= 1;
            } else {
                waiting.push(now);
                break;
            }
        }
    }

    fn has_room(&self, part: u16, v: u32) -> bool {
        self.loads.has_room(part, self.weights.of(v), self.capacities)
    }

    /// Arc weight between `v` and a part.
    fn tie(&self, v: u32, part: u16) -> i64 {
        self.ties[v as usize * self.loads.num_parts() + part as usize]
    }

    fn gain(&self, v: u32, to: u16) -> i64 {
        self.tie(v, to) - self.tie(v, self.parts[v as usize])
    }

    /// The best move of `v` to a part that is open, and its gain.
    fn best(&self, v: u32, is_open: impl Fn(u16) -> bool) -> Option<(i64, u16)> {
        let k = self.loads.num_parts();
        let own = self.parts[v as usize];
        let ties = &self.ties[v as usize * k..(v as usize + 1) * k];
        let (mut most, mut best) = (0, own);
        for part in self.loads.siblings(own) {
            let tie = ties[part as usize];
            if tie > most && part != own && is_open(part) {
                (most, best) = (tie, part);
            }
        }
        (best != own).then(|| (most - ties[own as usize], best))
    }

    /// Gain of a move of `u`, if a neighbour's move from one part to another may have raised it.
    fn hope(&self, u: u32, from: u16, to: u16) -> Option<(i64, u16)> {
        let own = self.parts[u as usize];
        if self.moved[u as usize] || own == to || !self.loads.siblings(own).contains(&to) {
            return None;
        }
        if own == from { self.best(u, |_| true) } else { Some((self.gain(u, to), to)) }
    }

    /// Moves `v`, and tells of each neighbour.
    fn shift(&mut self, v: u32, to: u16, mut tell: impl FnMut(&Self, u32)) {
        let k = self.loads.num_parts();
        let from = std::mem::replace(&mut self.parts[v as usize], to);
        self.loads.move_weight(from, to, self.weights.of(v));
        let graph = self.graph;
        graph.for_each(v, |u, weight| {
            let row = &mut self.ties[u as usize * k..(u as usize + 1) * k];
            row[from as usize] -= i64::from(weight);
            row[to as usize] += i64::from(weight);
            tell(self, u);
        });
    }
}

/// A move as one number, so that moves are in the order of their gains, then of their vertices.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(i128);

impl Entry {
    fn new(gain: i64, v: u32, to: u16) -> Self {
        Self(i128::from(gain) << 48 | i128::from(v) << 16 | i128::from(to))
    }

    fn gain(self) -> i64 {
        (self.0 >> 48) as i64
    }

    fn vertex(self) -> u32 {
        (self.0 >> 16) as u32
    }

    fn part(self) -> u16 {
        self.0 as u16
    }
}
