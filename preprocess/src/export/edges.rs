//! The edges of a dataset by number, from any one of them on.

use std::ops::Range;

use gsplit_store::{Stage, Topology};
use rayon::prelude::*;

use crate::Result;

/// Calls `f` with edge, source and target of each edge in `range`, in their order.
pub(super) fn for_each_edge(
    topology: &Topology,
    range: Range<usize>,
    mut f: impl FnMut(usize, u32, u32),
) {
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

/// Makes the content of `ranges` in parallel, and hands it to `take` in order. Only a few of them
/// are in memory for each thread.
pub(super) fn in_order<T: Send>(
    mut ranges: impl Iterator<Item = Range<usize>>,
    stage: &dyn Stage,
    make: impl Fn(Range<usize>) -> Result<T> + Sync,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    loop {
        let window: Vec<Range<usize>> =
            ranges.by_ref().take(2 * rayon::current_num_threads()).collect();
        if window.is_empty() {
            return Ok(());
        }
        let items: u64 = window.iter().map(|range| range.len() as u64).sum();
        let made = window.into_par_iter().map(&make).collect::<Result<Vec<T>>>()?;
        made.into_iter().try_for_each(&mut take)?;
        stage.advance(items);
    }
}
