//! Load of each part, kept up to date as vertices move.
//!
//! Input: the vertex weights, one or several numbers for each vertex, one for each constraint of
//! balance. Cost: O(constraints) a question or a move.

use std::ops::Range;

use crate::{Layout, VertexWeights};

/// Load of each part.
#[derive(Clone, Debug)]
pub(crate) struct Loads {
    layout: Layout<'static>,
    /// Target of each part over the mean.
    targets: Vec<f64>,
    largest_target: f64,
    constraints: usize,
    /// Mean load of a part, one per constraint.
    means: Vec<f64>,
    /// Interleaved as the vertex weights are.
    loads: Vec<u64>,
    sizes: Vec<u64>,
}

impl Loads {
    /// Parts with nothing in them, to share the total of `weights`.
    pub(crate) fn empty(layout: Layout<'_>, weights: &VertexWeights) -> Self {
        let parts = layout.parts();
        let means =
            weights.totals().iter().map(|&total| total.max(1) as f64 / f64::from(parts)).collect();
        let constraints = weights.constraints();
        let (loads, sizes) = (vec![0; parts as usize * constraints], vec![0; parts as usize]);
        let targets: Vec<f64> = (0..parts as u16).map(|part| layout.target(part)).collect();
        let largest_target = targets.iter().copied().fold(1.0, f64::max);
        Self {
            layout: Layout::new(parts, layout.servers()),
            targets,
            largest_target,
            constraints,
            means,
            loads,
            sizes,
        }
    }

    /// Load that `part` is to have, over the mean.
    #[inline]
    pub(crate) fn target(&self, part: u16) -> f64 {
        self.targets[part as usize]
    }

    /// The loads under `assignment`.
    pub(crate) fn of(layout: Layout<'_>, weights: &VertexWeights, assignment: &[u16]) -> Self {
        let mut loads = Self::empty(layout, weights);
        (0..).zip(assignment).for_each(|(v, &part)| loads.add(part, weights.of(v)));
        loads
    }

    pub(crate) fn num_parts(&self) -> usize {
        self.sizes.len()
    }

    /// The parts that a vertex of `part` may move to without leaving its server.
    #[inline]
    pub(crate) fn siblings(&self, part: u16) -> Range<u16> {
        self.layout.siblings(part)
    }

    /// Load of a server, one number per constraint.
    pub(crate) fn of_server(&self, server: u16) -> Vec<u64> {
        let mut sums = vec![0; self.constraints];
        for part in self.layout.parts_of(server) {
            sums.iter_mut().zip(self.row(part)).for_each(|(sum, load)| *sum += load);
        }
        sums
    }

    /// The layout of the parts, without their targets.
    pub(crate) fn layout(&self) -> Layout<'static> {
        self.layout
    }

    /// Vertices of each part.
    pub(crate) fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    pub(crate) fn add(&mut self, part: u16, weight: &[u32]) {
        self.sizes[part as usize] += 1;
        self.row_mut(part)
            .iter_mut()
            .zip(weight)
            .for_each(|(load, &weight)| *load += u64::from(weight));
    }

    pub(crate) fn remove(&mut self, part: u16, weight: &[u32]) {
        self.sizes[part as usize] -= 1;
        self.row_mut(part)
            .iter_mut()
            .zip(weight)
            .for_each(|(load, &weight)| *load -= u64::from(weight));
    }

    /// Moves what weighs `weight` from one part to another.
    pub(crate) fn move_weight(&mut self, from: u16, to: u16, weight: &[u32]) {
        self.remove(from, weight);
        self.add(to, weight);
    }

    /// Whether `part` can take `weight` and carry no more than its `capacities`, interleaved as the
    /// loads are.
    #[inline]
    pub(crate) fn has_room(&self, part: u16, weight: &[u32], capacities: &[u64]) -> bool {
        let sums =
            self.row(part).iter().zip(weight).zip(&capacities[part as usize * self.constraints..]);
        sums.into_iter().all(|((&load, &weight), &capacity)| load + u64::from(weight) <= capacity)
    }

    fn row_mut(&mut self, part: u16) -> &mut [u64] {
        let start = part as usize * self.constraints;
        &mut self.loads[start..start + self.constraints]
    }

    fn row(&self, part: u16) -> &[u64] {
        let start = part as usize * self.constraints;
        &self.loads[start..start + self.constraints]
    }

    /// Load of `part` over its target, one per constraint.
    fn over_target(&self, part: u16) -> impl Iterator<Item = f64> {
        self.row(part).iter().zip(self.targets_of(part)).map(|(&load, target)| load as f64 / target)
    }

    /// Load that is the target of `part`, one per constraint.
    #[inline]
    fn targets_of(&self, part: u16) -> impl Iterator<Item = f64> {
        let target = self.target(part);
        self.means.iter().map(move |mean| mean * target)
    }

    /// Most that each part may carry, interleaved as the loads are: 1 + `epsilon` times its target,
    /// and not less than the next whole number above it, without which the parts may not hold all
    /// there is.
    pub(crate) fn capacities(&self, epsilon: f64) -> Vec<u64> {
        let parts = 0..self.num_parts() as u16;
        parts
            .flat_map(|part| self.targets_of(part).map(|target| capacity(target, epsilon)))
            .collect()
    }

    /// Whether `part` carries more than its `capacities`.
    #[inline]
    pub(crate) fn is_over(&self, part: u16, capacities: &[u64]) -> bool {
        let capacities = &capacities[part as usize * self.constraints..];
        self.row(part).iter().zip(capacities).any(|(load, capacity)| load > capacity)
    }

    /// Sum of what parts carry above `capacities`, over the means.
    pub(crate) fn total_excess(&self, capacities: &[u64]) -> f64 {
        let nothing = vec![0; self.constraints];
        (0..self.num_parts() as u16).map(|part| self.excess(part, &nothing, 0.0, capacities)).sum()
    }

    /// Rank of `part` by room for more, to compare it with others: the less, the more room it has.
    /// Load over the mean where all targets are equal.
    pub(crate) fn lack_of_room(&self, part: u16) -> f64 {
        self.fullness(part) * self.target(part) + (self.largest_target - self.target(part))
    }

    /// Load of `part` over its target, in its fullest constraint.
    pub(crate) fn fullness(&self, part: u16) -> f64 {
        self.over_target(part).fold(0.0, f64::max)
    }

    /// A vertex's weight over the mean load of a part, in the constraint where that is largest.
    pub(crate) fn portion(&self, weight: &[u32]) -> f64 {
        weight
            .iter()
            .zip(&self.means)
            .map(|(&weight, mean)| f64::from(weight) / mean)
            .fold(0.0, f64::max)
    }

    /// Largest load of a part over its target, in the worst constraint.
    pub(crate) fn imbalance(&self) -> f64 {
        (0..self.num_parts()).map(|part| self.fullness(part as u16)).fold(0.0, f64::max)
    }

    /// Load of `part` over its target with `weight` more, in the constraint where that is largest.
    pub(crate) fn fullness_with(&self, part: u16, weight: &[u32]) -> f64 {
        let loads = self.row(part).iter().zip(weight).zip(self.targets_of(part));
        loads
            .map(|((&load, &weight), target)| (load as f64 + f64::from(weight)) / target)
            .fold(0.0, f64::max)
    }

    /// Load of `part` above its `capacities`, over the means, if its loads changed by `sign *
    /// weight`.
    fn excess(&self, part: u16, weight: &[u32], sign: f64, capacities: &[u64]) -> f64 {
        let capacities = &capacities[part as usize * self.constraints..];
        let one = |(((&load, &weight), &capacity), mean): (((&u64, &u32), &u64), &f64)| {
            ((load as f64 + sign * f64::from(weight)) - capacity as f64).max(0.0) / mean
        };
        self.row(part).iter().zip(weight).zip(capacities).zip(&self.means).map(one).sum()
    }

    /// How much the excess of both parts falls when a vertex of `weight` moves.
    pub(crate) fn relief(&self, from: u16, to: u16, weight: &[u32], capacities: &[u64]) -> f64 {
        let sum = |sign: f64| {
            self.excess(from, weight, -sign, capacities) + self.excess(to, weight, sign, capacities)
        };
        sum(0.0) - sum(1.0)
    }
}

/// Most that a part may carry that is to carry `target`.
pub(crate) fn capacity(target: f64, epsilon: f64) -> u64 {
    ((target * (1.0 + epsilon)) as u64).max(target.ceil() as u64)
}
