//! Batch norm on the host, in two parts: sums for the moments, which ranks add up, and the
//! normalisation by them.
//!
//! With n rows in all (weights added up), x̂ a row and g the gradient of y, the gradient of a row
//! of weight w is D - w / n · (ΣD + x̂ ΣD x̂) with D = scale · g / √(variance + ε): if the moments
//! were constants, it would be just D. Sums run over the rows of all ranks. Where ranks share a
//! row, each has a part of its g, and their D add up.

use rayon::prelude::*;

use super::{ROWS, check, sums_over_rows};
use crate::error::{KernelError, check_len};
use crate::simd::vectorised;

/// Returns Σw, then Σw·x and Σw·x² of each of `dim` columns of `rows` (any number × `dim`): 1 + 2 ·
/// `dim` sums. `weights` has one value per row; 1 when `None`.
pub fn column_moments(
    rows: &[f32],
    weights: Option<&[f32]>,
    dim: usize,
) -> Result<Vec<f64>, KernelError> {
    let count = check(dim, &[("rows to normalise", rows.len())])?;
    if let Some(weights) = weights {
        check_len("weights of the rows", count, weights.len())?;
    }
    Ok(sums_over_rows(
        count,
        1 + 2 * dim,
        #[inline(always)]
        |range, sums| {
            for r in range {
                let weight = f64::from(weights.map_or(1.0, |weights| weights[r]));
                let (total, sums) = sums.split_at_mut(1);
                total[0] += weight;
                let (first, second) = sums.split_at_mut(dim);
                for ((value, first), second) in rows[r * dim..][..dim].iter().zip(first).zip(second)
                {
                    let value = f64::from(*value);
                    *first += weight * value;
                    *second += weight * value * value;
                }
            }
        },
    ))
}

/// Normalisation of columns by given moments.
#[derive(Clone, Copy, Debug)]
pub struct ColumnNorm<'a> {
    /// Mean of each column.
    pub mean: &'a [f32],
    /// 1 / √(variance + ε) of each column.
    pub inverse: &'a [f32],
}

impl ColumnNorm<'_> {
    /// Sets row `r` of `out` to `scale · (row - mean) · inverse + shift` of row `r` of `rows`.
    pub fn forward(
        &self,
        rows: &[f32],
        [scale, shift]: [&[f32]; 2],
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let dim =
            self.check(&[("rows to normalise", rows.len()), ("normalised rows", out.len())])?;
        let factors = self.factors(scale)?;
        check_len("shift of the norm", dim, shift.len())?;
        if dim == 0 {
            return Ok(());
        }
        rows.par_chunks(ROWS * dim).zip(out.par_chunks_mut(ROWS * dim)).for_each(|(rows, out)| {
            vectorised!({
                for (row, out) in rows.chunks_exact(dim).zip(out.chunks_exact_mut(dim)) {
                    let columns = self.mean.iter().zip(&factors).zip(shift);
                    for ((value, out), ((mean, factor), shift)) in row.iter().zip(out).zip(columns)
                    {
                        *out = (value - mean) * factor + shift;
                    }
                }
            });
        });
        Ok(())
    }

    /// Sets `out` to the gradient of `rows` as if the moments were constants, and returns the
    /// gradients of scale and shift. `gradient` is the gradient of the output of
    /// [`ColumnNorm::forward`].
    pub fn backward(
        &self,
        rows: &[f32],
        scale: &[f32],
        gradient: &[f32],
        out: &mut [f32],
    ) -> Result<[Vec<f32>; 2], KernelError> {
        let dim = self.check(&[
            ("normalised rows", rows.len()),
            ("gradient of the norm", gradient.len()),
            ("gradient of the rows", out.len()),
        ])?;
        let factors = self.factors(scale)?;
        if dim == 0 {
            return Ok([Vec::new(), Vec::new()]);
        }
        let sums = self.products(rows, gradient)?;
        gradient.par_chunks(ROWS * dim).zip(out.par_chunks_mut(ROWS * dim)).for_each(
            |(gradient, out)| {
                vectorised!({
                    for (gradient, out) in gradient.chunks_exact(dim).zip(out.chunks_exact_mut(dim))
                    {
                        out.iter_mut()
                            .zip(gradient)
                            .zip(&factors)
                            .for_each(|((out, g), factor)| *out = g * factor);
                    }
                });
            },
        );
        let narrow = |values: &[f64]| values.iter().map(|&value| value as f32).collect();
        Ok([narrow(&sums[dim..]), narrow(&sums[..dim])])
    }

    /// The sums of each column of `gradient`, then the sums of its products with x̂: 2 · columns.
    pub fn products(&self, rows: &[f32], gradient: &[f32]) -> Result<Vec<f64>, KernelError> {
        let dim = self
            .check(&[("normalised rows", rows.len()), ("gradient of the rows", gradient.len())])?;
        let count = rows.len().checked_div(dim).unwrap_or(0);
        Ok(sums_over_rows(
            count,
            2 * dim,
            #[inline(always)]
            |range, sums| {
                let (plain, spread) = sums.split_at_mut(dim);
                for r in range {
                    let pairs = rows[r * dim..][..dim].iter().zip(&gradient[r * dim..][..dim]);
                    let columns = self
                        .mean
                        .iter()
                        .zip(self.inverse)
                        .zip(plain.iter_mut().zip(spread.iter_mut()));
                    for ((value, g), ((mean, inverse), (plain, spread))) in pairs.zip(columns) {
                        *plain += f64::from(*g);
                        *spread += f64::from(g * (value - mean) * inverse);
                    }
                }
            },
        ))
    }

    /// Turns `gradient`, the output of [`ColumnNorm::backward`], into the gradient of rows that the
    /// moments depend on: subtracts `weight · (plain + x̂ · spread)`. `means` are the means of
    /// [`ColumnNorm::products`] over all ranks and rows.
    pub fn correct(
        &self,
        rows: &[f32],
        weights: Option<&[f32]>,
        means: &[f64],
        gradient: &mut [f32],
    ) -> Result<(), KernelError> {
        let dim = self
            .check(&[("normalised rows", rows.len()), ("gradient of the rows", gradient.len())])?;
        check_len("means of the products", 2 * dim, means.len())?;
        let count = rows.len().checked_div(dim).unwrap_or(0);
        if let Some(weights) = weights {
            check_len("weights of the rows", count, weights.len())?;
        }
        if dim == 0 {
            return Ok(());
        }
        let means: Vec<f32> = means.iter().map(|&mean| mean as f32).collect();
        let (plain, spread) = means.split_at(dim);
        let pieces =
            rows.par_chunks(ROWS * dim).zip(gradient.par_chunks_mut(ROWS * dim)).enumerate();
        pieces.for_each(|(piece, (rows, gradient))| {
            vectorised!({
                for (i, (row, gradient)) in
                    rows.chunks_exact(dim).zip(gradient.chunks_exact_mut(dim)).enumerate()
                {
                    let weight = weights.map_or(1.0, |weights| weights[piece * ROWS + i]);
                    let columns = self.mean.iter().zip(self.inverse).zip(plain.iter().zip(spread));
                    for ((value, g), ((mean, inverse), (plain, spread))) in
                        row.iter().zip(gradient).zip(columns)
                    {
                        *g -= weight * (plain + (value - mean) * inverse * spread);
                    }
                }
            });
        });
        Ok(())
    }

    fn factors(&self, scale: &[f32]) -> Result<Vec<f32>, KernelError> {
        check_len("scale of the norm", self.mean.len(), scale.len())?;
        Ok(scale.iter().zip(self.inverse).map(|(scale, inverse)| scale * inverse).collect())
    }

    fn check(&self, matrices: &[(&'static str, usize)]) -> Result<usize, KernelError> {
        check_len("moments of the columns", self.mean.len(), self.inverse.len())?;
        check(self.mean.len(), matrices)?;
        Ok(self.mean.len())
    }
}
