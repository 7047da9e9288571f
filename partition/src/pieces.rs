//! Connected pieces of parts.
//!
//! Returns for each vertex the least vertex of its piece: of the vertices of its part that are
//! connected with it within the part. Edges count both ways. Cost: O(m) nearly, parallel; 8 bytes a
//! vertex.

use gsplit_kernels::Forest;
use gsplit_store::Topology;
use rayon::prelude::*;

/// Vertices that one task handles together.
const ROWS_PER_TASK: usize = 1024;

/// The piece of each of `n` vertices. `visit_same` calls its second argument with every neighbour
/// in the same part as the first.
pub(crate) fn pieces(n: usize, visit_same: impl Fn(u32, &mut dyn FnMut(u32)) + Sync) -> Vec<u32> {
    let forest = Forest::new(n);
    let vertices = (0..n as u32).into_par_iter().with_min_len(ROWS_PER_TASK);
    vertices.for_each(|v| visit_same(v, &mut |u| forest.join(u, v)));
    forest.roots()
}

/// Number of connected pieces of a graph, by the edges that `joins` says so of.
pub(crate) fn of_topology(topology: &Topology, joins: impl Fn(u32, u32) -> bool + Sync) -> u64 {
    count(&pieces(topology.num_vertices(), |v, unite| {
        topology.in_neighbours(v).iter().filter(|&&u| joins(v, u)).for_each(|&u| unite(u));
    }))
}

/// Number of pieces.
fn count(pieces: &[u32]) -> u64 {
    pieces.par_iter().enumerate().filter(|&(v, &piece)| v == piece as usize).count() as u64
}
