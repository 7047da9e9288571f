//! The largest value of each column among the rows of a target's sources, on the host.
//!
//! Returns: the maxima, and for each of them the edge it came from (the first, among equals).
//! Backwards each gradient goes to that edge's source, so a source that is drawn twice is not
//! counted twice. A NaN wins. Cost: as a sum, with one `u32` more written for each value, and read
//! again for each edge.

use crate::edges::{HostEdges, Part, for_balanced_rows};
use crate::error::{KernelError, check_matrix};
use crate::prefetch::prefetch_all;
use crate::simd::ahead;

/// The edge of a maximum over no values.
const NONE: u32 = u32::MAX;

/// Sets row `t` of `out` (targets × `dim`) to the maxima over the rows of `t`'s sources, zeros
/// without edges; and row `t` of `picked`, of the same size, to the edges they came from.
pub fn aggregate_max(
    edges: &HostEdges,
    rows: &[f32],
    dim: usize,
    out: &mut [f32],
    picked: &mut [u32],
) -> Result<(), KernelError> {
    check_matrix("rows of the sources", edges.num_sources(), dim, rows.len())?;
    check_matrix("output of aggregation", edges.num_targets(), dim, out.len())?;
    check_matrix("edges of the maxima", edges.num_targets(), dim, picked.len())?;
    if dim == 0 {
        return Ok(());
    }
    let row = |source: u32| &rows[source as usize * dim..][..dim];
    let parts = (Part::rows(out, dim), Part::rows(picked, dim));
    for_balanced_rows!(edges.indptr(), dim, parts, |targets, (out, picked)| {
        let pairs = out.values.chunks_exact_mut(dim).zip(picked.values.chunks_exact_mut(dim));
        for (target, (out, picked)) in targets.zip(pairs) {
            let of = edges.of(target);
            out.fill(if of.is_empty() { 0.0 } else { f32::NEG_INFINITY });
            picked.fill(if of.is_empty() { NONE } else { of.start as u32 });
            for edge in of {
                if let Some(&next) = edges.sources().get(edge + ahead(dim)) {
                    prefetch_all(row(next));
                }
                raise(out, picked, row(edges.sources()[edge]), edge as u32);
            }
        }
    });
    Ok(())
}

/// Replaces the values that are smaller than in the row of `edge`.
#[inline(always)]
fn raise(best: &mut [f32], picked: &mut [u32], row: &[f32], edge: u32) {
    for ((best, from), &value) in best.iter_mut().zip(picked).zip(row) {
        let wins = value > *best || value.is_nan();
        *best = if wins { value } else { *best };
        *from = if wins { edge } else { *from };
    }
}

/// Sets row `s` of `out` (sources × `dim`) to the gradient of source row `s`. `gradient` (targets ×
/// `dim`) is the gradient of the maxima, `picked` the edges that [`aggregate_max`] returned.
pub fn aggregate_max_backward(
    edges: &HostEdges,
    picked: &[u32],
    gradient: &[f32],
    dim: usize,
    out: &mut [f32],
) -> Result<(), KernelError> {
    check_matrix("edges of the maxima", edges.num_targets(), dim, picked.len())?;
    check_matrix("gradient of aggregation", edges.num_targets(), dim, gradient.len())?;
    check_matrix("gradient of the sources", edges.num_sources(), dim, out.len())?;
    if dim == 0 {
        return Ok(());
    }
    let by_source = edges.by_source();
    for_balanced_rows!(&by_source.indptr, dim, Part::rows(out, dim), |sources, out| {
        for (source, out) in sources.zip(out.values.chunks_exact_mut(dim)) {
            out.fill(0.0);
            for place in by_source.of(source) {
                let (target, edge) =
                    (by_source.targets[place] as usize * dim, by_source.edges[place]);
                let (picked, gradient) = (&picked[target..][..dim], &gradient[target..][..dim]);
                for ((sum, &from), &value) in out.iter_mut().zip(picked).zip(gradient) {
                    *sum += if from == edge { value } else { 0.0 };
                }
            }
        }
    });
    Ok(())
}
