//! Partitions that look at no edge: GSplit's "Rand", and hashing.
//!
//! Random: a random permutation dealt out in turn, so that sizes differ by at most one; with
//! targets cut into ranges as long as these are. Hash: each vertex draws its part by itself, so
//! that sizes vary as throws of dice do. A part that stays empty, on tiny graphs or with a tiny
//! target, gets one vertex. Both cut (k - 1)/k of the edges on average. Cost: O(n log n) and O(n).

use gsplit_kernels::{Draws, Stream, StreamKey, permute};
use gsplit_store::Progress;
use rayon::prelude::*;

use crate::repair::fill_empty_parts;
use crate::{Partitioner, Problem, Result};

/// Equal parts at random.
pub(crate) struct Random;

impl Partitioner for Random {
    fn assign(&self, problem: &Problem<'_>, _progress: &dyn Progress) -> Result<Vec<u16>> {
        let n = problem.topology.num_vertices();
        let ends = problem.targets.as_ref().map(|_| problem.layout().ends());
        let mut assignment = deal(n, problem.seed, |i| match &ends {
            None => (i % problem.parts) as u16,
            Some(ends) => at((f64::from(i) + 0.5) / n as f64, ends),
        });
        fill_empty_parts(&mut assignment, &problem.weights, problem.layout());
        Ok(assignment)
    }
}

/// The part of each of `n` vertices in a random order, by its place in that.
pub(crate) fn deal(n: usize, seed: u64, part: impl Fn(u32) -> u16) -> Vec<u16> {
    let mut assignment = vec![0; n];
    let order = permute(n as u32, &StreamKey::new(seed, Stream::Assign));
    (0..).zip(order).for_each(|(i, v)| assignment[v as usize] = part(i));
    assignment
}

/// A hash of the vertex id.
pub(crate) struct Hash;

impl Partitioner for Hash {
    fn assign(&self, problem: &Problem<'_>, _progress: &dyn Progress) -> Result<Vec<u16>> {
        let key = StreamKey::new(problem.seed, Stream::Assign);
        let ends = problem.targets.as_ref().map(|_| problem.layout().ends());
        let part = |v| match &ends {
            None => Draws::new(&key, v).below(problem.parts) as u16,
            Some(ends) => {
                at(f64::from(Draws::new(&key, v).below(u32::MAX)) / f64::from(u32::MAX), ends)
            }
        };
        let mut assignment: Vec<u16> =
            (0..problem.topology.num_vertices() as u32).into_par_iter().map(part).collect();
        fill_empty_parts(&mut assignment, &problem.weights, problem.layout());
        Ok(assignment)
    }
}

/// The part that holds the point at `fraction` of the whole, of parts that end at `ends`.
fn at(fraction: f64, ends: &[f64]) -> u16 {
    ends.partition_point(|&end| end <= fraction).min(ends.len() - 1) as u16
}
