//! The launches of a sum over rows.
//!
//! Returns: the sums. Idea: `columns.cuh`. Cost: one read of the values; a launch for every power
//! of 512 rows (more rows where columns are few); the host does not wait.

use crate::cuda::{
    Argument, DeviceSlice, DeviceSliceMut, Gpu, GpuError, Kernel, Module, THREADS, arguments,
};
use crate::error::check_len;
use crate::gather::{DeviceRow, row_kernel};

pub(crate) static MODULE: Module = Module { name: "columns", source: include_str!("cuda.cu") };

/// Rows that one thread adds up, as in `columns.cuh`.
const ROWS_PER_THREAD: usize = 64;

/// Sums over `rows` rows of `dim` columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnSums {
    pub rows: usize,
    pub dim: usize,
}

impl ColumnSums {
    /// Sets `out` to the sums of each column of `values`.
    pub(crate) fn of<T: DeviceRow>(
        &self,
        gpu: &Gpu,
        values: DeviceSlice<'_, T>,
        out: &mut DeviceSliceMut<'_, f32>,
    ) -> Result<(), GpuError> {
        self.run_into(gpu, row_kernel!(MODULE, "columns", T), 1, &arguments![values], out)
    }

    /// Sets `out` to `sums` · `dim` sums, all columns of the first kind, then those of the next.
    /// `kernel` calls `sum_columns` with its first four arguments; `rest` are the others.
    pub(crate) fn run_into(
        &self,
        gpu: &Gpu,
        kernel: Kernel,
        sums: usize,
        rest: &[Argument],
        out: &mut DeviceSliceMut<'_, f32>,
    ) -> Result<(), GpuError> {
        let Self { rows, dim } = *self;
        check_len("sums of columns", sums * dim, out.len())?;
        if rows == 0 || dim == 0 {
            return out.zero(gpu);
        }
        let tile = dim.next_power_of_two().min(32);
        let pieces = rows.div_ceil(THREADS as usize / tile * ROWS_PER_THREAD);
        let parts = if pieces > 1 { Some(gpu.alloc::<f32>(pieces * sums * dim)?) } else { None };
        let at = parts.as_ref().map_or(out.address(), |parts| parts.slice().address());
        let threads = pieces * dim.div_ceil(tile) * THREADS as usize;
        let sizes = arguments![rows, dim as u32, tile as u32, at];
        gpu.run(kernel, threads, &[&sizes[..], rest].concat())?;
        match parts {
            Some(parts) => Self { rows: pieces, dim: sums * dim }.of(gpu, parts.slice(), out),
            None => Ok(()),
        }
    }
}
