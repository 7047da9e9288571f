//! [`scatter_add_f32`](super::scatter_add_f32) on a GPU.
//!
//! Returns: the host's bits, except for rows to which more than 512 are added: these are summed in
//! pieces. Input: positions on the device; rows whose position is beyond the matrix are ignored.
//! Idea: positions are sorted, once, and each row of the matrix adds up its own rows, so that
//! nothing is atomic. Cost: the sort; one read of each added row, one read and write of each row
//! that has any.

use super::DeviceRow;
use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu, GpuError};
use crate::edges::{DeviceSegments, sort_on_device};
use crate::error::{KernelError, check_matrix};
use crate::group::Grouped;
use crate::spmm::sum::{Factors, Over, Own, RowTable, SumRows};

/// Positions that rows are added to, for any matrix with as many rows.
#[derive(Debug)]
pub struct DeviceScatter {
    rows: DeviceSegments,
    order: crate::DeviceBuffer<u32>,
}

impl DeviceScatter {
    /// Prepares adding row `i` to row `positions[i]` of `rows`.
    ///
    /// # Errors
    /// [`KernelError::TooManyItems`]; errors of the GPU.
    pub fn new(gpu: &Gpu, positions: DeviceSlice<'_, u32>, rows: usize) -> Result<Self, GpuError> {
        let none = || KernelError::Length { what: "lists that were sorted", expected: 1, got: 0 };
        sort_on_device(gpu, &[], &[(positions, rows)])?.pop().ok_or_else(|| none().into())
    }

    /// Items by row.
    pub(crate) fn of(Grouped { indptr, order, .. }: Grouped) -> Result<Self, GpuError> {
        Ok(Self { rows: DeviceSegments::new(indptr, order.len())?, order })
    }

    /// Adds row `i` of `src` (positions × `dim`) to row `positions[i]` of `dst` (rows × `dim`), in
    /// the order of the positions. Rows of bf16 and f16 are summed in f32, and rounded once.
    pub fn add<T: DeviceRow>(
        &self,
        gpu: &Gpu,
        dst: &mut DeviceSliceMut<'_, T>,
        dim: usize,
        src: DeviceSlice<'_, T>,
    ) -> Result<(), GpuError> {
        check_matrix("matrix to scatter to", self.rows.count(), dim, dst.len())?;
        check_matrix("rows to scatter", self.order.len(), dim, src.len())?;
        let sum = SumRows {
            over: Over::Targets(&self.rows, Some(self.order.slice())),
            kernel: T::of(T::SUM),
            table: RowTable::matrix(src, self.order.len(), dim),
            factors: Factors { own: Own::Onto, ..Factors::default() },
            dim,
        };
        sum.launch(gpu, dst, [dim, 0])
    }

    /// Gives its memory to another stream
    /// ([`DeviceBuffer::give_to`](crate::DeviceBuffer::give_to)).
    pub fn give_to(&self, gpu: &Gpu) {
        self.rows.give_to(gpu);
        self.order.give_to(gpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::{Draws, Stream, StreamKey};
    use crate::scatter_add_f32;
    use crate::spmm::tests::device::assert_same;
    use crate::spmm::tests::values;

    fn scatter_add_on_device(
        gpu: &Gpu,
        dst: &mut DeviceSliceMut<'_, f32>,
        dim: usize,
        positions: DeviceSlice<'_, u32>,
        src: DeviceSlice<'_, f32>,
    ) -> Result<(), GpuError> {
        // A matrix without columns has no elements and any number of rows.
        let rows = dst.len().checked_div(dim).unwrap_or(0);
        DeviceScatter::new(gpu, positions, rows)?.add(gpu, dst, dim, src)
    }

    #[test]
    fn sums_are_those_of_the_host() {
        let cases =
            [(0, 7, 3), (3000, 7, 4), (3000, 1, 1), (500, 900, 32), (700, 200, 300), (5, 0, 0)];
        for (case, (count, rows, dim)) in cases.into_iter().enumerate() {
            let gpu = Gpu::under_test(case as u32 % 4);
            let mut draws = Draws::new(&StreamKey::new(2, Stream::Generate), case as u32);
            let positions: Vec<u32> = (0..count).map(|_| draws.below(rows)).collect();
            let (start, src) = (values(1, rows as usize * dim), values(2, count * dim));
            let mut expected = start.clone();
            scatter_add_f32(&mut expected, dim, &positions, &src).unwrap();
            let mut found = gpu.upload(&start).unwrap();
            let (at, src) = (gpu.upload(&positions).unwrap(), gpu.upload(&src).unwrap());
            scatter_add_on_device(&gpu, &mut found.slice_mut(), dim, at.slice(), src.slice())
                .unwrap();
            let exactly =
                (0..rows).all(|row| positions.iter().filter(|&&at| at == row).count() <= 512);
            let name = format!("{count} rows of {dim} onto {rows}");
            assert_same(&found.to_vec().unwrap(), &expected, exactly, &name);
        }
    }

    #[test]
    fn positions_beyond_the_matrix_are_left_out_and_wrong_sizes_refused() {
        let gpu = Gpu::under_test(2);
        let (mut dst, at) =
            (gpu.upload(&[1f32, 2.0]).unwrap(), gpu.upload(&[1u32, 2, u32::MAX]).unwrap());
        let src = gpu.upload(&[10f32, 20.0, 30.0]).unwrap();
        scatter_add_on_device(&gpu, &mut dst.slice_mut(), 1, at.slice(), src.slice()).unwrap();
        assert_eq!(dst.to_vec().unwrap(), [1.0, 12.0]);
        let length = |result| matches!(result, Err(GpuError::Input(KernelError::Length { .. })));
        assert!(length(scatter_add_on_device(
            &gpu,
            &mut dst.slice_mut(),
            2,
            at.slice(),
            src.slice()
        )));
        let three = &mut gpu.zeros(3).unwrap();
        assert!(length(scatter_add_on_device(
            &gpu,
            &mut three.slice_mut(),
            2,
            at.slice(),
            src.slice()
        )));
    }
}
