//! Refinement by moves that may first cost something: Fiduccia and Mattheyses (1982), for k parts.
//!
//! Input as for label propagation; the cut never grows, no part grows beyond its capacity, and no vertex leaves its server.
//! Idea: always make the move that gains most, even if it loses, each vertex at most once; when nothing better was seen for
//! a while go back to the best state. The next pass begins there. It climbs out of local optima that label propagation
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
        let vertices = (0..self.parts.len() as u32).into_par_iter().with_min_len(ROWS_PER_TASK);
        let moves = vertices.filter_map(|v| self.best(v).map(|(gain, _)| (gain, v)));
        let mut queue = BinaryHeap::from(moves.collect::<Vec<_>>());
        // The most that an entry of each vertex promises: one that promises enough is put right when it is taken.
        let mut promised = vec![i64::MIN; self.parts.len()];
        queue.iter().for_each(|&(gain, v)| promised[v as usize] = gain);
        let patience = LEAST_PATIENCE.max(self.parts.len() / PATIENCE);
        let (mut log, mut best, mut sum, mut best_sum) = (Vec::new(), 0, 0, 0);
        while let Some((hoped, v)) = queue.pop() {
            if self.moved[v as usize] {
                continue;
            }
            promised[v as usize] = i64::MIN;
            let Some((gain, to)) = self.best(v) else { continue };
            if gain < hoped {
                promised[v as usize] = gain;
                queue.push((gain, v));
                continue;
            }
            log.push((v, self.parts[v as usize]));
            self.moved[v as usize] = true;
            self.shift(v, to);
            sum += gain;
            if sum > best_sum {
                (best_sum, best) = (sum, log.len());
            } else if log.len() > best + patience {
                break;
            }
            let graph = self.graph;
            graph.for_each(v, |u, _| {
                if !self.moved[u as usize]
                    && let Some((gain, _)) = self.best(u)
                    && gain > promised[u as usize]
                {
                    promised[u as usize] = gain;
                    queue.push((gain, u));
                }
            });
        }
        for (v, from) in log.drain(best..).rev() {
            self.shift(v, from);
        }
        best_sum
    }

    /// The best move of `v` that there is room for, and its gain.
    fn best(&self, v: u32) -> Option<(i64, u16)> {
        let k = self.loads.num_parts();
        let own = self.parts[v as usize];
        let ties = &self.ties[v as usize * k..(v as usize + 1) * k];
        if self.loads.sizes()[own as usize] <= 1 {
            return None;
        }
        let weight = self.weights.of(v);
        let open =
            |&(part, tie): &(u16, &i64)| *tie > 0 && part != own && self.loads.has_room(part, weight, self.capacities);
        let rank = |&(part, tie): &(u16, &i64)| (*tie, std::cmp::Reverse(part));
        let siblings = self.loads.siblings(own);
        let here = siblings.start as usize..siblings.end as usize;
        let (part, tie) = siblings.zip(&ties[here]).filter(open).max_by_key(rank)?;
        Some((tie - ties[own as usize], part))
    }

    /// Moves `v`, and tells its neighbours.
    fn shift(&mut self, v: u32, to: u16) {
        let k = self.loads.num_parts();
        let from = std::mem::replace(&mut self.parts[v as usize], to);
        self.loads.move_weight(from, to, self.weights.of(v));
        let ties = &mut self.ties;
        self.graph.for_each(v, |u, weight| {
            let row = &mut ties[u as usize * k..(u as usize + 1) * k];
            row[from as usize] -= i64::from(weight);
            row[to as usize] += i64::from(weight);
        });
    }
}
