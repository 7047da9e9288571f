//! Refinement by label propagation: rounds of single moves, each to the part that most of a
//! vertex's arc weight leads to.
//!
//! Input: a part for each vertex, and the loads of the parts. No part grows beyond its capacity, no
//! vertex leaves its server, and the cut never grows. Idea: in rounds, each vertex that has
//! something to gain (or that makes the parts more even at no cost) moves. Candidates are found in
//! parallel, batch by batch; then each is checked again, in order, with the parts at that moment.
//! So every move is a true gain, and the result does not depend on the number of threads. From the
//! second round on, only neighbours of moved vertices are checked. Cost: O(m) in the first round; 1
//! byte per vertex.

use rayon::prelude::*;

use super::graph::Graph;
use super::label_weights::{InRuns, Pool, Sums};
use crate::VertexWeights;
use crate::loads::Loads;

/// Vertices of a batch.
const BATCH: usize = 1 << 15;
/// Vertices that one task handles together.
const TASK: usize = 512;
/// A round that gains less than one part in this many of what all rounds gained is the last.
const SETTLED: u64 = 50;

/// Moves vertices in `parts` and keeps `loads` up to date, in at most `rounds` rounds. Returns by
/// how much the cut fell.
pub(super) fn move_in_rounds<G: Graph>(
    moves: &Cut<'_, G>,
    rounds: usize,
    parts: &mut [u16],
    loads: &mut Loads,
) -> u64 {
    let mut active = vec![true; parts.len()];
    let mut wanted = vec![false; BATCH.min(parts.len())];
    let mut own = InRuns::new(Ties::new(moves.parts));
    let pool = Pool::default();
    let mut gained = 0;
    for _ in 0..rounds {
        let before = gained;
        for first in (0..parts.len()).step_by(BATCH) {
            let batch = first..parts.len().min(first + BATCH);
            let wanted = &mut wanted[..batch.len()];
            let (now, state, looked_at) = (&*loads, &*parts, &active[batch.clone()]);
            let tasks = wanted.par_chunks_mut(TASK).zip(looked_at.par_chunks(TASK)).enumerate();
            tasks.for_each(|(task, (wanted, active))| {
                pool.with(
                    || Ties::new(moves.parts),
                    |ties| {
                        for (i, (wanted, &active)) in wanted.iter_mut().zip(active).enumerate() {
                            let v = (first + task * TASK + i) as u32;
                            moves.graph.fetch_ahead(v + 1, state);
                            *wanted = active && moves.best(v, state, now, ties).is_some();
                        }
                    },
                );
            });
            active[batch].fill(false);
            for v in (0..)
                .zip(&*wanted)
                .filter(|&(_, &wanted)| wanted)
                .map(|(i, _): (u32, _)| first as u32 + i)
            {
                if let Some((to, gain)) = moves.best(v, parts, loads, &mut own) {
                    let from = std::mem::replace(&mut parts[v as usize], to);
                    loads.move_weight(from, to, moves.weights.of(v));
                    moves.graph.for_each(v, |u, _| active[u as usize] = true);
                    gained += gain;
                }
            }
        }
        if (gained - before) * SETTLED <= gained {
            break;
        }
    }
    gained
}

/// Moves that lower the cut, or make the parts more even at no cost.
pub(super) struct Cut<'a, G> {
    pub graph: &'a G,
    pub weights: &'a VertexWeights,
    /// Most that each part may carry, for each constraint.
    pub capacities: &'a [u64],
    /// Number of parts.
    pub parts: usize,
}

/// Arc weight of one vertex by part.
pub(super) struct Ties {
    sums: Vec<u64>,
    touched: Vec<u16>,
}

impl Ties {
    pub fn new(parts: usize) -> Self {
        Self { sums: vec![0; parts], touched: Vec::new() }
    }

    /// Parts and their sums.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> {
        self.touched.iter().map(|&part| (part, self.sums[part as usize]))
    }

    pub fn clear(&mut self) {
        self.touched.drain(..).for_each(|part| self.sums[part as usize] = 0);
    }
}

impl Sums for Ties {
    #[inline]
    fn add(&mut self, part: u32, weight: u32) {
        let sum = &mut self.sums[part as usize];
        if *sum == 0 {
            self.touched.push(part as u16);
        }
        *sum += u64::from(weight);
    }
}

impl<G: Graph> Cut<'_, G> {
    /// The best part for `v` to go to, and by how much the cut falls.
    fn best(
        &self,
        v: u32,
        parts: &[u16],
        loads: &Loads,
        ties: &mut InRuns<Ties>,
    ) -> Option<(u16, u64)> {
        ties.clear();
        ties.fill(|runs| {
            self.graph.for_each(v, |u, weight| runs.add(u32::from(parts[u as usize]), weight))
        });
        let own = parts[v as usize];
        let inside = ties.sums[own as usize];
        let weight = self.weights.of(v);
        let siblings = loads.siblings(own);
        let mut best: Option<(u64, u16)> = None;
        for &part in &ties.touched {
            let sum = ties.sums[part as usize];
            if part == own || sum < inside || best.is_some_and(|best| sum < best.0) {
                continue;
            }
            if !siblings.contains(&part) || !loads.has_room(part, weight, self.capacities) {
                continue;
            }
            let lighter = |than: u16| loads.fullness(part) < loads.fullness(than);
            if best.is_none_or(|(most, other)| sum > most || lighter(other)) {
                best = Some((sum, part));
            }
        }
        let (sum, part) = best.filter(|_| loads.sizes()[own as usize] > 1)?;
        let worth = sum > inside || loads.fullness_with(part, weight) < loads.fullness(own);
        worth.then_some((part, sum - inside))
    }
}
