//! Gather on a GPU.
//!
//! Returns: rows in the caller's buffer. Input: a table on the device or in host memory that the device reads, and
//! positions on the device; a position beyond the table gives a row of NaNs, since the host does not see it. Cost: the
//! bytes moved, in pieces of 16 bytes where rows have a multiple of four values.

use bytemuck::Pod;
use half::{bf16, f16};

use crate::cuda::{Argument, DeviceSlice, DeviceSliceMut, Gpu, GpuError, Kernel, Module, Shape};
use crate::error::KernelError;

pub(crate) static MODULE: Module = Module { name: "gather", source: include_str!("cuda.cu") };

/// Threads of a block.
const THREADS: u32 = 256;

/// A type that rows are stored in.
pub trait DeviceValue: Pod + Send + Sync {
    /// The kernel that widens it.
    #[doc(hidden)]
    const GATHER: &'static str;
    /// The kernel that widens it from a cache or a table.
    #[doc(hidden)]
    const GATHER_CACHED: &'static str;
    /// The kernel that sums rows of it.
    #[doc(hidden)]
    const SUM: &'static str;
    /// The kernel that sums rows of it and rounds the sums to bf16.
    #[doc(hidden)]
    const SUM_TO_BF16: &'static str;
}

/// A type that hidden rows are kept in on a GPU: what is computed in f32 is rounded to it.
pub trait DeviceRow: DeviceValue {
    /// Which of the two, one for f32 and one for bf16, is for this type.
    #[doc(hidden)]
    fn of<T>(two: [T; 2]) -> T;
    /// The kernels that sum rows of it over the edges of their sources, to f32 and to bf16.
    #[doc(hidden)]
    const SUM_BY_SOURCE: [&'static str; 2];
}

impl DeviceRow for f32 {
    fn of<T>([f32, _]: [T; 2]) -> T {
        f32
    }
    const SUM_BY_SOURCE: [&'static str; 2] = ["sum_by_source", "sum_by_source_f32_to_bf16"];
}

impl DeviceRow for bf16 {
    fn of<T>([_, bf16]: [T; 2]) -> T {
        bf16
    }
    const SUM_BY_SOURCE: [&'static str; 2] = ["sum_by_source_bf16_to_f32", "sum_by_source_bf16_to_bf16"];
}

impl DeviceValue for f32 {
    const GATHER: &'static str = "gather_f32";
    const GATHER_CACHED: &'static str = "gather_cached_f32";
    const SUM: &'static str = "sum_f32";
    const SUM_TO_BF16: &'static str = "sum_f32_to_bf16";
}

impl DeviceValue for f16 {
    const GATHER: &'static str = "gather_f16";
    const GATHER_CACHED: &'static str = "gather_cached_f16";
    const SUM: &'static str = "sum_f16";
    const SUM_TO_BF16: &'static str = "sum_f16_to_bf16";
}

impl DeviceValue for bf16 {
    const GATHER: &'static str = "gather_bf16";
    const GATHER_CACHED: &'static str = "gather_cached_bf16";
    const SUM: &'static str = "sum_bf16";
    const SUM_TO_BF16: &'static str = "sum_bf16_to_bf16";
}

impl DeviceValue for i8 {
    const GATHER: &'static str = "gather_i8";
    const GATHER_CACHED: &'static str = "gather_cached_i8";
    const SUM: &'static str = "sum_i8";
    const SUM_TO_BF16: &'static str = "sum_i8_to_bf16";
}

/// Row `i` of `out` (`positions.len()` × `dim`) becomes row `positions[i]` of `table` (any number of rows × `dim`), as f32;
/// with `scales`, one for each row of the table, times its scale.
///
/// # Errors
/// [`KernelError::Length`] if sizes do not fit; what the GPU reports.
pub fn gather_on_device<T: DeviceValue>(
    gpu: &Gpu,
    table: DeviceSlice<'_, T>,
    scales: Option<DeviceSlice<'_, f32>>,
    positions: DeviceSlice<'_, u32>,
    dim: usize,
    out: &mut DeviceSliceMut<'_, f32>,
) -> Result<(), GpuError> {
    KernelError::check_matrix("output of gather", positions.len(), dim, out.len())?;
    let rows = table.len().checked_div(dim).unwrap_or(0);
    KernelError::check_matrix("table to gather from", rows, dim, table.len())?;
    if let Some(scales) = scales {
        KernelError::check_len("scales of the rows", rows, scales.len())?;
    }
    let pieces = if dim.is_multiple_of(4) { out.len() / 4 } else { out.len() };
    let arguments: [Argument; 7] = [
        table.into(),
        (rows as u64).into(),
        positions.into(),
        (positions.len() as u64).into(),
        (dim as u32).into(),
        scales.map_or(0, |scales| scales.address()).into(),
        (&*out).into(),
    ];
    gpu.launch(Kernel { module: &MODULE, name: T::GATHER }, Shape::per_item(pieces, THREADS), &arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::{Draws, Stream, StreamKey};
    use crate::{ScaledRow, Widen, gather_rows};

    fn check<T: DeviceValue + Widen>(make: impl Fn(f32) -> T) {
        for (order, (rows, count, dim)) in
            [(50, 70, 8), (9, 1000, 3), (1, 5, 1), (20, 0, 4), (7, 300, 260)].into_iter().enumerate()
        {
            let gpu = Gpu::under_test(order as u32);
            let mut draws = Draws::new(&StreamKey::new(3, Stream::Generate), dim as u32);
            let table: Vec<T> = (0..rows * dim).map(|_| make(draws.unit_f32() * 100.0 - 50.0)).collect();
            let positions: Vec<u32> = (0..count).map(|_| draws.below(rows as u32)).collect();
            let mut expected = vec![0f32; count * dim];
            gather_rows(|v| &table[v as usize * dim..][..dim], &positions, dim, &mut expected).unwrap();
            let (table, positions) = (gpu.upload(&table).unwrap(), gpu.upload(&positions).unwrap());
            let mut out = gpu.alloc(count * dim).unwrap();
            gather_on_device(&gpu, table.slice(), None, positions.slice(), dim, &mut out.slice_mut()).unwrap();
            assert_eq!(out.to_vec().unwrap(), expected, "{rows} rows, {count} positions, {dim} columns");
        }
    }

    #[test]
    fn rows_are_those_of_the_host() {
        check(|x| x);
        check(f16::from_f32);
        check(bf16::from_f32);
    }

    #[test]
    fn bytes_are_scaled_as_on_the_host() {
        let (gpu, dim) = (Gpu::under_test(1), 12);
        let table: Vec<i8> = (0..20 * dim).map(|i| (i * 37 % 255) as u8 as i8).collect();
        let scales: Vec<f32> = (0..20).map(|i| 0.25 + i as f32 / 3.0).collect();
        let positions = [19u32, 0, 7, 7];
        let mut expected = vec![0f32; positions.len() * dim];
        let row = |v: u32| ScaledRow { scale: scales[v as usize], values: &table[v as usize * dim..][..dim] };
        gather_rows(row, &positions, dim, &mut expected).unwrap();
        let (table, scales) = (gpu.upload(&table).unwrap(), gpu.upload(&scales).unwrap());
        let positions = gpu.upload(&positions).unwrap();
        let mut out = gpu.alloc(expected.len()).unwrap();
        let scales = Some(scales.slice());
        gather_on_device(&gpu, table.slice(), scales, positions.slice(), dim, &mut out.slice_mut()).unwrap();
        assert_eq!(out.to_vec().unwrap(), expected);
    }

    #[test]
    fn positions_beyond_the_table_give_nans() {
        let gpu = Gpu::under_test(0);
        let (table, positions) = (gpu.upload(&[1f32; 8]).unwrap(), gpu.upload(&[1u32, 2, u32::MAX]).unwrap());
        let mut out = gpu.alloc(12).unwrap();
        gather_on_device(&gpu, table.slice(), None, positions.slice(), 4, &mut out.slice_mut()).unwrap();
        let found = out.to_vec().unwrap();
        assert!(found[..4].iter().all(|&x| x == 1.0) && found[4..].iter().all(|x| x.is_nan()), "{found:?}");
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let gpu = Gpu::under_test(0);
        let (table, positions) = (gpu.upload(&[1f32; 8]).unwrap(), gpu.upload(&[1u32]).unwrap());
        let mut out = gpu.alloc(5).unwrap();
        let error = gather_on_device(&gpu, table.slice(), None, positions.slice(), 4, &mut out.slice_mut());
        assert!(matches!(error, Err(GpuError::Input(KernelError::Length { .. }))), "{error:?}");
    }
}
