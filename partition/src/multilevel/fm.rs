//! Refinement by moves that may first cost something: Fiduccia and Mattheyses (1982), for k parts.
//!
//! Input as for label propagation; the cut never grows, no part grows beyond its capacity, and no
//! vertex leaves its server. Idea: always make the move that gains most, even if it loses, each
//! vertex at most once; when nothing better was seen for a while go back to the best state. The
//! next pass begins there. A move into a full part waits until a vertex leaves it. It climbs out of
//! local optima that label propagation stays in. Sequential, so it is kept for graphs with few
//! vertices; how much of each vertex's arc weight leads to each part is kept in a table, for those
//! parts that it touches. Cost: O(m + moved arcs · parts that their ends touch) a pass, 8 bytes an
//! arc at most.

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
    ties: TieTable,
    moved: Vec<bool>,
}

/// Arc weight from each vertex to each part that it touches.
struct TieTable {
    /// Slots of all vertices: weight and, in the lowest 16 bits, part.
    slots: Vec<u64>,
    /// First slot of each vertex. It has one for each neighbour, but not more than there are parts.
    starts: Vec<usize>,
    /// Slots of each vertex that are taken.
    taken: Vec<u32>,
}

impl TieTable {
    fn new<G: Graph>(graph: &G, parts: &[u16], num_parts: usize) -> Self {
        let n = parts.len() as u32;
        let mut starts = Vec::with_capacity(parts.len() + 1);
        starts.push(0);
        starts.extend((0..n).scan(0, |end, v| {
            *end += graph.degree(v).min(num_parts);
            Some(*end)
        }));
        let mut table = Self {
            slots: vec![0; starts.last().copied().unwrap_or(0)],
            starts,
            taken: vec![0; parts.len()],
        };
        (0..n).for_each(|v| graph.for_each(v, |u, weight| table.add(v, parts[u as usize], weight)));
        table
    }

    #[inline]
    fn of(&self, v: u32) -> &[u64] {
        let start = self.starts[v as usize];
        &self.slots[start..start + self.taken[v as usize] as usize]
    }

    fn weight(&self, v: u32, part: u16) -> i64 {
        self.of(v).iter().find(|&&slot| slot as u16 == part).map_or(0, |slot| (slot >> 16) as i64)
    }

    fn add(&mut self, v: u32, part: u16, weight: u32) {
        let start = self.starts[v as usize];
        let taken = &mut self.taken[v as usize];
        let row = &mut self.slots[start..];
        match row[..*taken as usize].iter_mut().find(|slot| **slot as u16 == part) {
            Some(slot) => *slot += u64::from(weight) << 16,
            None => {
                row[*taken as usize] = u64::from(weight) << 16 | u64::from(part);
                *taken += 1;
            }
        }
    }

    fn subtract(&mut self, v: u32, part: u16, weight: u32) {
        let start = self.starts[v as usize];
        let taken = self.taken[v as usize] as usize;
        let row = &mut self.slots[start..start + taken];
        if let Some(at) = row.iter().position(|slot| *slot as u16 == part) {
            row[at] -= u64::from(weight) << 16;
            if row[at] >> 16 == 0 {
                row[at] = row[taken - 1];
                self.taken[v as usize] -= 1;
            }
        }
    }
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
        let ties = TieTable::new(graph, parts, loads.num_parts());
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
        // The most that an entry of each vertex promises: one that promises enough is put right
        // when it is taken.
        let mut promised = vec![i64::MIN; self.parts.len()];
        queue.iter().for_each(|entry| promised[entry.vertex() as usize] = entry.gain());
        // The vertices that wait for room in each part.
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
                if let Some((gain, part)) =
                    fm.hope(u, from, to).filter(|&(gain, _)| gain > promised[u as usize])
                {
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

    /// The best moves of vertices that are tied to another part at least half as much as to their
    /// own.
    fn near_moves(&self) -> BinaryHeap<Entry> {
        let vertices = (0..self.parts.len() as u32).into_par_iter().with_min_len(ROWS_PER_TASK);
        let moves = vertices.filter_map(|v| {
            let (gain, to) = self.best(v, |_| true)?;
            let own = self.ties.weight(v, self.parts[v as usize]);
            (2 * (gain + own) >= own).then(|| Entry::new(gain, v, to))
        });
        BinaryHeap::from(moves.collect::<Vec<_>>())
    }

    /// Queues some of the vertices that wait for room in `part`, which a vertex has left.
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

    fn gain(&self, v: u32, to: u16) -> i64 {
        self.ties.weight(v, to) - self.ties.weight(v, self.parts[v as usize])
    }

    /// The best move of `v` to a part that is open, and its gain.
    fn best(&self, v: u32, is_open: impl Fn(u16) -> bool) -> Option<(i64, u16)> {
        let own = self.parts[v as usize];
        let siblings = self.loads.siblings(own);
        let (mut most, mut best, mut inside) = (0, own, 0);
        for &slot in self.ties.of(v) {
            let (tie, part) = ((slot >> 16) as i64, slot as u16);
            if part == own {
                inside = tie;
            } else if (tie > most || tie == most && part < best)
                && siblings.contains(&part)
                && is_open(part)
            {
                (most, best) = (tie, part);
            }
        }
        (best != own).then(|| (most - inside, best))
    }

    /// Gain of a move of `u`, if a neighbour's move from one part to another may have raised it.
    fn hope(&self, u: u32, from: u16, to: u16) -> Option<(i64, u16)> {
        let own = self.parts[u as usize];
        if self.moved[u as usize] || own == to || !self.loads.siblings(own).contains(&to) {
            return None;
        }
        if own == from { self.best(u, |_| true) } else { Some((self.gain(u, to), to)) }
    }

    /// Moves `v`, and reports each neighbour.
    fn shift(&mut self, v: u32, to: u16, mut tell: impl FnMut(&Self, u32)) {
        let from = std::mem::replace(&mut self.parts[v as usize], to);
        self.loads.move_weight(from, to, self.weights.of(v));
        let graph = self.graph;
        graph.for_each(v, |u, weight| {
            // Remove first, so that there is a slot to insert.
            self.ties.subtract(u, from, weight);
            self.ties.add(u, to, weight);
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
