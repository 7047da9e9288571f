//! Normalisation of a matrix: of each row by its own moments, or of each column by the moments of a
//! whole mini-batch.
//!
//! Contract: matrices are row-major; x̂ = (x - mean) / √(variance + ε), y = scale · x̂ + shift.
//! Sums over rows are taken in f64, in pieces of fixed size, so no result depends on the number of
//! threads. The rows of a mini-batch may be on many ranks: [`column_moments`] returns sums, to be
//! added up before they are divided, and a row that several ranks hold has a weight below 1 on
//! each. Sources: Ba et al., "Layer Normalization", 2016; Ioffe and Szegedy, "Batch Normalization",
//! ICML 2015.

mod columns;
mod rows;
pub(crate) mod sums;
#[cfg(test)]
mod tests;

pub use columns::{ColumnNorm, column_moments};
pub use rows::{layer_norm, layer_norm_backward};
pub use sums::{divide_by_row_sums, divide_by_row_sums_on_device};

use rayon::prelude::*;

use crate::error::{KernelError, check_matrix};
use crate::simd::vectorised;

/// Rows of one parallel task, and of one partial sum.
const ROWS: usize = 256;

/// Number of rows of `dim` values in each of the `matrices`, which have the same size.
fn check(dim: usize, matrices: &[(&'static str, usize)]) -> Result<usize, KernelError> {
    let count = matrices.first().map_or(0, |&(_, len)| len).checked_div(dim).unwrap_or(0);
    matrices.iter().try_for_each(|&(what, len)| check_matrix(what, count, dim, len))?;
    Ok(count)
}

/// Sums of `width` values each over the pieces of `count` rows: `add(rows, sums)` adds a range of
/// rows to its sums.
fn sums_over_rows(
    count: usize,
    width: usize,
    add: impl Fn(std::ops::Range<usize>, &mut [f64]) + Sync,
) -> Vec<f64> {
    let piece = |start: usize| {
        let mut sums = vec![0f64; width];
        vectorised!(add(start..(start + ROWS).min(count), &mut sums));
        sums
    };
    let pieces: Vec<Vec<f64>> = (0..count).into_par_iter().step_by(ROWS).map(piece).collect();
    let mut total = vec![0f64; width];
    for piece in pieces {
        total.iter_mut().zip(piece).for_each(|(total, value)| *total += value);
    }
    total
}
