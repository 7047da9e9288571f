//! Segment operators on the host.
//!
//! Returns: a matrix like the input, or one row a segment. Input: an `indptr` from 0 to the number of rows. Idea: a task
//! owns a range of segments. Cost: two passes over the values, one exponential each.

use crate::edges::{Part, for_balanced_rows};
use crate::error::KernelError;
use crate::simd::vectorised;

/// Replaces `values` (rows × `dim`) by the softmax of each column over each segment: exp(v) / Σ exp(v).
///
/// # Errors
/// [`KernelError::Topology`], [`KernelError::Length`].
pub fn segment_softmax(indptr: &[u32], dim: usize, values: &mut [f32]) -> Result<(), KernelError> {
    let rows = check(indptr)?;
    KernelError::check_matrix("values of the segments", rows, dim, values.len())?;
    for_balanced_rows(indptr, dim, Part::edges(values, dim, 0), &|segments, part| {
        vectorised(|| {
            let mut left = part.values;
            for segment in segments {
                let (values, rest) = left.split_at_mut((indptr[segment + 1] - indptr[segment]) as usize * dim);
                softmax(values, dim);
                left = rest;
            }
        });
    });
    Ok(())
}

/// Replaces `gradient` of a softmax by that of its input: s (g - Σ s g), with `shares` what [`segment_softmax`] returned.
///
/// # Errors
/// [`KernelError::Topology`], [`KernelError::Length`].
pub fn segment_softmax_backward(
    indptr: &[u32],
    dim: usize,
    shares: &[f32],
    gradient: &mut [f32],
) -> Result<(), KernelError> {
    let rows = check(indptr)?;
    KernelError::check_matrix("shares of the segments", rows, dim, shares.len())?;
    KernelError::check_matrix("gradient of the shares", rows, dim, gradient.len())?;
    for_balanced_rows(indptr, dim, Part::edges(gradient, dim, 0), &|segments, part| {
        vectorised(|| {
            let mut left = part.values;
            for segment in segments {
                let rows = indptr[segment] as usize..indptr[segment + 1] as usize;
                let (gradient, rest) = left.split_at_mut(rows.len() * dim);
                softmax_backward(&shares[rows.start * dim..rows.end * dim], gradient, dim, 1.0);
                left = rest;
            }
        });
    });
    Ok(())
}

/// Row `s` of `out` (segments × `dim`) becomes the sum of the rows of segment `s` of `values` (rows × `dim`). Its gradient
/// is the row of the segment, for each of its rows.
///
/// # Errors
/// [`KernelError::Topology`], [`KernelError::Length`].
pub fn segment_sum(indptr: &[u32], dim: usize, values: &[f32], out: &mut [f32]) -> Result<(), KernelError> {
    let rows = check(indptr)?;
    KernelError::check_matrix("values of the segments", rows, dim, values.len())?;
    KernelError::check_matrix("sums of the segments", indptr.len() - 1, dim, out.len())?;
    if dim == 0 {
        return Ok(());
    }
    for_balanced_rows(indptr, dim, Part::rows(out, dim), &|segments, out| {
        vectorised(|| {
            for (segment, out) in segments.zip(out.values.chunks_exact_mut(dim)) {
                let rows = indptr[segment] as usize..indptr[segment + 1] as usize;
                sum_columns(&values[rows.start * dim..rows.end * dim], out);
            }
        });
    });
    Ok(())
}

fn check(indptr: &[u32]) -> Result<usize, KernelError> {
    let rises = indptr.first() == Some(&0) && indptr.is_sorted();
    match indptr.last().filter(|_| rises) {
        Some(&rows) => Ok(rows as usize),
        None => Err(KernelError::Topology {
            expected: "an indptr that starts at 0 and never falls",
            got: format!("{} values", indptr.len()),
        }),
    }
}

/// `out` becomes the sum of the rows of `values`, which are as wide.
#[inline(always)]
fn sum_columns(values: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    for row in values.chunks_exact(out.len()) {
        for (sum, value) in out.iter_mut().zip(row) {
            *sum += value;
        }
    }
}

/// The softmax of each of `dim` columns, in place.
#[inline(always)]
pub(crate) fn softmax(values: &mut [f32], dim: usize) {
    for column in 0..dim {
        let len = values.len();
        let of_column = || (column..len).step_by(dim);
        // Subtracting the largest changes nothing but the range.
        let largest = of_column().fold(f32::NEG_INFINITY, |largest, at| largest.max(values[at]));
        let mut total = 0f32;
        for at in of_column() {
            values[at] = (values[at] - largest).exp();
            total += values[at];
        }
        let factor = 1.0 / total;
        for at in of_column() {
            values[at] *= factor;
        }
    }
}

/// What dropout leaves of a share, which has a minus sign if it is dropped; the others grow by `keep`.
#[inline(always)]
pub(crate) fn kept(share: f32, keep: f32) -> f32 {
    // A NaN passes.
    if share < 0.0 { 0.0 } else { keep * share }
}

/// From the gradient of what dropout [left](kept) of the shares to that of what they are the softmax of, in place.
#[inline(always)]
pub(crate) fn softmax_backward(shares: &[f32], gradient: &mut [f32], dim: usize, keep: f32) {
    for column in 0..dim {
        let len = gradient.len();
        let of_column = || (column..len).step_by(dim);
        let mut mean = 0f32;
        for at in of_column() {
            gradient[at] = if shares[at] < 0.0 { 0.0 } else { keep * gradient[at] };
            mean += shares[at].abs() * gradient[at];
        }
        for at in of_column() {
            gradient[at] = shares[at].abs() * (gradient[at] - mean);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spmm::tests::{assert_close, cases, on_any_threads, values, wide};

    fn naive_softmax(indptr: &[u32], dim: usize, values: &[f64]) -> Vec<f64> {
        let mut out = values.to_vec();
        for segment in indptr.windows(2) {
            for column in 0..dim {
                let places: Vec<usize> = (segment[0]..segment[1]).map(|row| row as usize * dim + column).collect();
                let total: f64 = places.iter().map(|&at| values[at].exp()).sum();
                places.iter().for_each(|&at| out[at] = values[at].exp() / total);
            }
        }
        out
    }

    #[test]
    fn oracle_softmax_sum_and_gradient() {
        for (name, edges, dim) in cases() {
            let (indptr, dim) = (edges.indptr(), dim.min(5));
            let input: Vec<f32> = values(1, edges.num_edges() * dim).iter().map(|value| 8.0 * value).collect();
            let shares = on_any_threads(|| {
                let mut shares = input.clone();
                segment_softmax(indptr, dim, &mut shares).unwrap();
                shares
            });
            assert_close(&shares, &naive_softmax(indptr, dim, &wide(&input)), &name);

            let upstream = values(2, input.len());
            let gradient = on_any_threads(|| {
                let mut gradient = upstream.clone();
                segment_softmax_backward(indptr, dim, &shares, &mut gradient).unwrap();
                gradient
            });
            let objective = |input: &[f64]| -> f64 {
                let shares = naive_softmax(indptr, dim, input);
                shares.iter().zip(&upstream).map(|(share, g)| share * f64::from(*g)).sum()
            };
            let input = wide(&input);
            let (mut some, mut expected) = (Vec::new(), Vec::new());
            for at in (0..input.len()).step_by((input.len() / 40).max(1)) {
                let moved = |by: f64| {
                    let mut input = input.clone();
                    input[at] += by;
                    objective(&input)
                };
                some.push(gradient[at]);
                expected.push((moved(1e-5) - moved(-1e-5)) / 2e-5);
            }
            assert_close(&some, &expected, &name);

            let sums = on_any_threads(|| {
                let mut sums = vec![f32::NAN; edges.num_targets() * dim];
                segment_sum(indptr, dim, &upstream, &mut sums).unwrap();
                sums
            });
            let column = |target: usize, column: usize| {
                edges.of(target).map(|row| f64::from(upstream[row * dim + column])).sum::<f64>()
            };
            let expected: Vec<f64> =
                (0..edges.num_targets()).flat_map(|target| (0..dim).map(move |c| column(target, c))).collect();
            assert_close(&sums, &expected, &name);
        }
    }

    #[test]
    fn scores_of_any_size_give_shares() {
        let mut values = [1000.0, 999.0, -1000.0, 88.0];
        segment_softmax(&[0, 3, 4], 1, &mut values).unwrap();
        assert!((values[0] - 0.731_058_6).abs() < 1e-6 && values[2] == 0.0 && values[3] == 1.0);
    }

    #[test]
    fn wrong_sizes_are_refused() {
        let length = |result: Result<(), KernelError>| matches!(result, Err(KernelError::Length { .. }));
        assert!(length(segment_softmax(&[0, 2], 2, &mut [0.0; 3])));
        assert!(length(segment_softmax_backward(&[0, 2], 1, &[0.0; 1], &mut [0.0; 2])));
        assert!(length(segment_sum(&[0, 2], 1, &[0.0; 2], &mut [0.0; 2])));
        for indptr in [&[][..], &[1, 2], &[0, 2, 1]] {
            assert!(matches!(segment_softmax(indptr, 1, &mut [0.0; 2]), Err(KernelError::Topology { .. })));
        }
    }
}
