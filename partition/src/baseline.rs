//! Partitions that look at no edge: GSplit's "Rand", and hashing.
//!
//! Random: a random permutation dealt out in turn, so that sizes differ by at most one. Hash: each vertex draws its part
//! by itself, so that sizes vary as throws of dice do; a part that stays empty, on tiny graphs, gets one vertex.
//! Both cut (k - 1)/k of the edges on average. Cost: O(n log n) and O(n).

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
        let mut assignment = vec![0; n];
        let order = permute(n as u32, &StreamKey::new(problem.seed, Stream::Assign));
        (0..).zip(order).for_each(|(i, v): (u32, u32)| assignment[v as usize] = (i % problem.parts) as u16);
        Ok(assignment)
    }
}

/// A hash of the vertex id.
pub(crate) struct Hash;

impl Partitioner for Hash {
    fn assign(&self, problem: &Problem<'_>, _progress: &dyn Progress) -> Result<Vec<u16>> {
        let key = StreamKey::new(problem.seed, Stream::Assign);
        let part = |v| Draws::new(&key, v).below(problem.parts) as u16;
        let mut assignment: Vec<u16> = (0..problem.topology.num_vertices() as u32).into_par_iter().map(part).collect();
        fill_empty_parts(&mut assignment, &problem.weights, problem.parts);
        Ok(assignment)
    }
}
