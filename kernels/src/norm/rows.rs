//! Layer norm on the host.
//!
//! Returns: normalised rows and their moments; backwards, the gradients of rows, scale and shift.
//! Input: matrices of matching sizes. Idea: a row is in the nearest cache for all of its passes.
//! Cost: one read and one write of the rows; backwards two reads of both matrices and one write.

use rayon::prelude::*;

use super::{ROWS, check, sums_over_rows};
use crate::error::{KernelError, check_len, check_matrix};
use crate::simd::{dot, vectorised};

/// Sets row `r` of `out` to `scale · (row - mean) / √(variance + epsilon) + shift` with the moments
/// of row `r` of `rows`, both any number × `scale.len()`; stores the mean and 1 / √(variance +
/// epsilon) of row `r` in `moments` (rows × 2).
pub fn layer_norm(
    rows: &[f32],
    [scale, shift]: [&[f32]; 2],
    epsilon: f32,
    moments: &mut [f32],
    out: &mut [f32],
) -> Result<(), KernelError> {
    let dim = scale.len();
    let count = check(dim, &[("rows to normalise", rows.len()), ("normalised rows", out.len())])?;
    check_len("shift of the norm", dim, shift.len())?;
    check_matrix("moments of the rows", count, 2, moments.len())?;
    if dim == 0 {
        return Ok(());
    }
    let parts = rows
        .par_chunks(ROWS * dim)
        .zip(out.par_chunks_mut(ROWS * dim))
        .zip(moments.par_chunks_mut(ROWS * 2));
    parts.for_each(|((rows, out), moments)| {
        vectorised!({
            for ((row, out), moments) in
                rows.chunks_exact(dim).zip(out.chunks_exact_mut(dim)).zip(moments.chunks_mut(2))
            {
                let mean = sum(row) / dim as f32;
                out.iter_mut().zip(row).for_each(|(out, value)| *out = value - mean);
                let inverse = (dot(out, out) / dim as f32 + epsilon).sqrt().recip();
                for ((out, scale), shift) in out.iter_mut().zip(scale).zip(shift) {
                    *out = *out * inverse * scale + shift;
                }
                moments.copy_from_slice(&[mean, inverse]);
            }
        });
    });
    Ok(())
}

/// Sets `out` to the gradient of `rows` and returns the gradients of scale and shift. `gradient` is
/// the gradient of the output of [`layer_norm`] for `rows` and `scale`, `moments` the moments that
/// it stored.
pub fn layer_norm_backward(
    rows: &[f32],
    scale: &[f32],
    moments: &[f32],
    gradient: &[f32],
    out: &mut [f32],
) -> Result<[Vec<f32>; 2], KernelError> {
    let dim = scale.len();
    let matrices = [
        ("normalised rows", rows.len()),
        ("gradient of the norm", gradient.len()),
        ("gradient of the rows", out.len()),
    ];
    let count = check(dim, &matrices)?;
    check_matrix("moments of the rows", count, 2, moments.len())?;
    if dim == 0 {
        return Ok([Vec::new(), Vec::new()]);
    }
    let parts = rows
        .par_chunks(ROWS * dim)
        .zip(gradient.par_chunks(ROWS * dim))
        .zip(out.par_chunks_mut(ROWS * dim));
    parts.zip(moments.par_chunks(ROWS * 2)).for_each(|(((rows, gradient), out), moments)| {
        vectorised!({
            let pairs = rows.chunks_exact(dim).zip(gradient.chunks_exact(dim));
            for (((row, gradient), out), moments) in
                pairs.zip(out.chunks_exact_mut(dim)).zip(moments.chunks_exact(2))
            {
                let [mean, inverse] = [moments[0], moments[1]];
                out.iter_mut()
                    .zip(gradient)
                    .zip(scale)
                    .for_each(|((out, g), scale)| *out = g * scale);
                let of_mean = sum(out) / dim as f32;
                // The product with x̂: the product with the row, minus that with its mean.
                let of_spread =
                    (dot(out, row) - mean * of_mean * dim as f32) * inverse / dim as f32;
                for (out, value) in out.iter_mut().zip(row) {
                    *out = inverse * (*out - of_mean - (value - mean) * inverse * of_spread);
                }
            }
        });
    });
    let sums = sums_over_rows(
        count,
        2 * dim,
        #[inline(always)]
        |range, sums| {
            let (of_scale, of_shift) = sums.split_at_mut(dim);
            for r in range {
                let [mean, inverse] = [moments[2 * r], moments[2 * r + 1]];
                let pairs = rows[r * dim..][..dim].iter().zip(&gradient[r * dim..][..dim]);
                for ((value, g), (of_scale, of_shift)) in
                    pairs.zip(of_scale.iter_mut().zip(of_shift.iter_mut()))
                {
                    *of_scale += f64::from(g * (value - mean) * inverse);
                    *of_shift += f64::from(*g);
                }
            }
        },
    );
    let narrow = |values: &[f64]| values.iter().map(|&value| value as f32).collect();
    Ok([narrow(&sums[..dim]), narrow(&sums[dim..])])
}

/// The sum of a row, in the same order on every machine: 16 partial sums, then their sum.
#[inline(always)]
fn sum(row: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0f32; LANES];
    let chunks = row.chunks_exact(LANES);
    let rest: f32 = chunks.remainder().iter().sum();
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, value)| *sum += value);
    }
    sums.iter().sum::<f32>() + rest
}
