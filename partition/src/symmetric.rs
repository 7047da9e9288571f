//! Whether a topology is symmetric, in one reading pass.
//!
//! The test works like Freivalds' (1977) of products: xᵀAy = yᵀAx for pseudo-random x and y over
//! the integers modulo 2^64. Its answer is wrong with a probability far below that of a memory
//! error. Cost: O(m), parallel, nothing read out of order.

use gsplit_store::Topology;
use rayon::prelude::*;

use crate::scramble::scramble;

/// Vertices that one task handles together.
const ROWS_PER_TASK: usize = 4096;

/// Whether every edge u→v comes with v→u, as often.
pub(crate) fn is_symmetric(topology: &Topology) -> bool {
    is_symmetric_with(topology, |_| 1)
}

/// Whether every edge u→v comes with v→u, as often and with the same values. `value` is that of an
/// edge by its place.
pub(crate) fn is_symmetric_with(topology: &Topology, value: impl Fn(usize) -> u64 + Sync) -> bool {
    let x = |v: u32| scramble(u64::from(v));
    let y = |v: u32| scramble(u64::from(v) | 1 << 32);
    let difference = |v: u32| {
        let first = topology.indptr()[v as usize] as usize;
        let add = |(sum_x, sum_y): (u64, u64), (e, &u): (usize, &u32)| {
            let value = value(e);
            (
                sum_x.wrapping_add(x(u).wrapping_mul(value)),
                sum_y.wrapping_add(y(u).wrapping_mul(value)),
            )
        };
        let (sum_x, sum_y) = (first..).zip(topology.in_neighbours(v)).fold((0, 0), add);
        sum_x.wrapping_mul(y(v)).wrapping_sub(sum_y.wrapping_mul(x(v)))
    };
    let vertices = (0..topology.num_vertices() as u32).into_par_iter().with_min_len(ROWS_PER_TASK);
    vertices.map(difference).reduce(|| 0, u64::wrapping_add) == 0
}
