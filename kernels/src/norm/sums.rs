//! Rows divided by the sums of their absolute values, on the host and on a GPU: the same bits.
//!
//! Returns: rows whose absolute values add up to 1; rows of zeros stay. Input: rows of one width.
//! Idea: a sum is taken in f64 over 32 lanes, each of which adds every 32nd value, and the lanes
//! are added up pairwise, as a warp does. Cost: two reads of the rows, which are in the nearest
//! cache for the second, and a write; the host does not wait for a GPU.

use rayon::prelude::*;

use super::check;
use crate::cuda::{DeviceSliceMut, Gpu, GpuError, Module, arguments};
use crate::error::KernelError;
use crate::simd::vectorised;

pub(crate) static MODULE: Module = Module { name: "norm", source: include_str!("cuda.cu") };

const LANES: usize = 32;
/// Rows of one parallel task.
const ROWS: usize = 64;

/// Divides each row of `dim` values by the sum of its absolute values, unless that is zero.
pub fn divide_by_row_sums(rows: &mut [f32], dim: usize) -> Result<(), KernelError> {
    check(dim, &[("rows to normalise", rows.len())])?;
    rows.par_chunks_mut((ROWS * dim).max(1)).for_each(|rows| {
        vectorised!({
            for row in rows.chunks_exact_mut(dim.max(1)) {
                divide(row);
            }
        });
    });
    Ok(())
}

#[inline(always)]
fn divide(row: &mut [f32]) {
    let mut sums = [0f64; LANES];
    for values in row.chunks(LANES) {
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += f64::from(value.abs());
        }
    }
    let mut lanes = LANES / 2;
    while lanes > 0 {
        (0..lanes).for_each(|lane| sums[lane] += sums[lane + lanes]);
        lanes /= 2;
    }
    if sums[0] > 0.0 {
        let factor = sums[0].recip();
        row.iter_mut().for_each(|value| *value = (f64::from(*value) * factor) as f32);
    }
}

/// [`divide_by_row_sums`] on a GPU.
pub fn divide_by_row_sums_on_device(
    gpu: &Gpu,
    rows: &mut DeviceSliceMut<'_, f32>,
    dim: usize,
) -> Result<(), GpuError> {
    let count = check(dim, &[("rows to normalise", rows.len())])?;
    let of = arguments![&*rows, count, dim as u32];
    gpu.run(MODULE.kernel("norm_divide_rows"), 32 * count, &of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spmm::tests::{bits, values};

    #[test]
    fn rows_are_divided_by_their_sums_alike_on_both() {
        for (case, (count, dim)) in
            [(0, 5), (3, 0), (7, 1), (50, 31), (300, 32), (9, 33), (20, 602)]
                .into_iter()
                .enumerate()
        {
            let gpu = Gpu::under_test(case as u32 % 4);
            let given: Vec<f32> =
                values(8, count * dim).iter().map(|&value| value.max(-0.4)).collect();
            let mut rows = given.clone();
            rows.iter_mut().take(dim).for_each(|value| *value = 0.0);
            let mut on_gpu = gpu.upload(&rows).unwrap();
            divide_by_row_sums_on_device(&gpu, &mut on_gpu.slice_mut(), dim).unwrap();
            divide_by_row_sums(&mut rows, dim).unwrap();
            assert_eq!(
                bits::<f32>(&on_gpu.to_vec().unwrap()),
                bits(&rows),
                "{count} rows of {dim}"
            );
            for (row, given) in rows.chunks(dim.max(1)).zip(given.chunks(dim.max(1))).skip(1) {
                let sum: f64 = given.iter().map(|value| f64::from(value.abs())).sum();
                for (found, value) in row.iter().zip(given) {
                    assert!(
                        (f64::from(*found) - f64::from(*value) / sum).abs() <= 1e-7,
                        "{found} of {value}"
                    );
                }
            }
            assert!(rows.iter().take(dim).all(|&value| value == 0.0), "a row of zeros");
        }
        let gpu = Gpu::under_test(0);
        assert!(divide_by_row_sums(&mut [1.0; 3], 2).is_err());
        assert!(
            divide_by_row_sums_on_device(&gpu, &mut gpu.zeros(3).unwrap().slice_mut(), 2).is_err()
        );
    }
}
