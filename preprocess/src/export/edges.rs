//! The edges of a dataset by number, from any one of them on.

use std::ops::Range;

use gsplit_store::Topology;

/// Calls `f` with edge, source and target of each edge in `range`, in their order.
pub(super) fn for_each_edge(topology: &Topology, range: Range<usize>, mut f: impl FnMut(usize, u32, u32)) {
    let (indptr, indices) = (topology.indptr(), topology.indices());
    // The last vertex whose list starts at or before the first edge; empty lists start there too.
    let mut v = indptr.partition_point(|&start| start <= range.start as u64).saturating_sub(1);
    for e in range {
        while indptr[v + 1] <= e as u64 {
            v += 1;
        }
        f(e, indices[e], v as u32);
    }
}

/// Cuts `0..total` into pieces of `size`.
pub(super) fn pieces(total: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..total.div_ceil(size)).map(move |i| i * size..(total).min((i + 1) * size))
}
