//! Gather on a GPU.
//!
//! Returns: rows in the caller's buffer. Input: a table on the device or in host memory that the
//! device reads, and positions on the device; a position beyond the table gives a row of NaNs,
//! since the host does not see it. Rows are converted to the requested type during the copy,
//! without another pass. Cost: the bytes moved, in pieces of 16 bytes where the width of rows is a
//! multiple of four values (of eight, for stored types of 2 bytes).

use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu, GpuError, Module, Shape, arguments};
use crate::error::{check_len, check_matrix, count_rows};

use super::value::{DeviceRow, DeviceValue, values_at_once};

pub(crate) static MODULE: Module = Module { name: "gather", source: include_str!("cuda.cu") };

/// Sets row `i` of `out` (`positions.len()` × `dim`) to row `positions[i]` of `table` (any number
/// of rows × `dim`), as values of `O`; with `scales`, one for each row of the table, times its
/// scale. Values are rounded once, if at all.
pub fn gather_on_device<T: DeviceValue, O: DeviceRow>(
    gpu: &Gpu,
    table: DeviceSlice<'_, T>,
    scales: Option<DeviceSlice<'_, f32>>,
    positions: DeviceSlice<'_, u32>,
    dim: usize,
    out: &mut DeviceSliceMut<'_, O>,
) -> Result<(), GpuError> {
    check_matrix("output of gather", positions.len(), dim, out.len())?;
    let rows = count_rows("table to gather from", dim, table.len())?;
    if let Some(scales) = scales {
        check_len("scales of the rows", rows, scales.len())?;
    }
    let width = values_at_once(
        &[dim],
        &[(table.address(), size_of::<T>())],
        &[(out.address(), size_of::<O>())],
    );
    let (count, columns, at_once) = (positions.len(), dim as u32, width as u32);
    let of = arguments![table, rows, positions, count, columns, scales, &*out, at_once];
    let shape = gpu.limit_zero_copy(Shape::per_item(out.len() / width), table.address());
    gpu.launch(MODULE.kernel(O::of(T::GATHER)), shape, &of)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::error::KernelError;
    use crate::philox::{Draws, Stream, StreamKey};
    use crate::spmm::tests::{Rounded, bits, rounded};
    use crate::{ScaledRow, Widen, gather_rows};

    fn check<T: DeviceValue + Widen, O: Rounded>(make: impl Fn(f32) -> T) {
        for (order, (rows, count, dim)) in
            [(50, 70, 8), (9, 1000, 3), (1, 5, 1), (20, 0, 4), (7, 300, 260), (30, 40, 12)]
                .into_iter()
                .enumerate()
        {
            let gpu = Gpu::under_test(order as u32 % 4);
            let mut draws = Draws::new(&StreamKey::new(3, Stream::Generate), dim as u32);
            let table: Vec<T> =
                (0..rows * dim).map(|_| make(draws.unit_f32() * 100.0 - 50.0)).collect();
            let positions: Vec<u32> = (0..count).map(|_| draws.below(rows as u32)).collect();
            let mut expected = vec![0f32; count * dim];
            gather_rows(|v| &table[v as usize * dim..][..dim], &positions, dim, &mut expected)
                .unwrap();
            let (table, positions) = (gpu.upload(&table).unwrap(), gpu.upload(&positions).unwrap());
            let mut out = gpu.alloc::<O>(count * dim).unwrap();
            gather_on_device(
                &gpu,
                table.slice(),
                None,
                positions.slice(),
                dim,
                &mut out.slice_mut(),
            )
            .unwrap();
            let (found, expected) =
                (bits::<O>(&out.to_vec().unwrap()), bits(&rounded::<O>(&expected)));
            assert_eq!(found, expected, "{rows} rows, {count} positions, {dim} columns");
        }
    }

    fn check_all<O: Rounded>() {
        check::<f32, O>(|x| x);
        check::<f16, O>(f16::from_f32);
        check::<bf16, O>(bf16::from_f32);
    }

    #[test]
    fn rows_are_those_of_the_host_in_every_type() {
        check_all::<f32>();
        check_all::<bf16>();
        check_all::<f16>();
    }

    /// Every number of `O`, the midpoint between it and the next, and the f32 numbers next to the
    /// midpoint.
    fn every_number<O: Rounded>(from_bits: impl Fn(u16) -> O) {
        let (gpu, dim) = (Gpu::under_test(2), 64);
        let around = |number: u16| {
            let [own, next] =
                [number, number.wrapping_add(1)].map(|number| from_bits(number).widen());
            // Beyond the largest, infinity begins where the next number would be nearer.
            let step =
                if next.is_infinite() { own - from_bits(number - 1).widen() } else { next - own };
            let middle = own + step / 2.0;
            let beside = |by: u32| f32::from_bits(middle.to_bits().wrapping_add(by));
            [own, middle, beside(1), beside(u32::MAX)]
        };
        let numbers: Vec<f32> =
            (0..=u16::MAX).flat_map(around).chain([f32::MAX, f32::MIN, 1e-45, -1e-45]).collect();
        let padded = numbers.len().next_multiple_of(dim);
        let table = [&numbers[..], &vec![0.0; padded - numbers.len()]].concat();
        let positions: Vec<u32> = (0..(padded / dim) as u32).collect();
        let mut out = gpu.alloc::<O>(padded).unwrap();
        let (on_gpu, positions) = (gpu.upload(&table).unwrap(), gpu.upload(&positions).unwrap());
        gather_on_device(&gpu, on_gpu.slice(), None, positions.slice(), dim, &mut out.slice_mut())
            .unwrap();
        for (number, found) in table.iter().zip(out.to_vec().unwrap()) {
            assert_eq!(found.bits(), O::round(*number).bits(), "{number:e}");
        }
    }

    #[test]
    fn oracle_every_number_is_rounded_to_the_nearest() {
        every_number(f16::from_bits);
        every_number(bf16::from_bits);
    }

    #[test]
    fn bytes_are_scaled_as_on_the_host() {
        let (gpu, dim) = (Gpu::under_test(1), 12);
        let table: Vec<i8> = (0..20 * dim).map(|i| (i * 37 % 255) as u8 as i8).collect();
        let scales: Vec<f32> = (0..20).map(|i| 0.25 + i as f32 / 3.0).collect();
        let positions = [19u32, 0, 7, 7];
        let mut expected = vec![0f32; positions.len() * dim];
        let row = |v: u32| ScaledRow {
            scale: scales[v as usize],
            values: &table[v as usize * dim..][..dim],
        };
        gather_rows(row, &positions, dim, &mut expected).unwrap();
        let (table, scales) = (gpu.upload(&table).unwrap(), gpu.upload(&scales).unwrap());
        let positions = gpu.upload(&positions).unwrap();
        let mut out = gpu.alloc::<f32>(expected.len()).unwrap();
        let scales = Some(scales.slice());
        gather_on_device(&gpu, table.slice(), scales, positions.slice(), dim, &mut out.slice_mut())
            .unwrap();
        assert_eq!(out.to_vec().unwrap(), expected);
        let mut out = gpu.alloc::<f16>(expected.len()).unwrap();
        gather_on_device(&gpu, table.slice(), scales, positions.slice(), dim, &mut out.slice_mut())
            .unwrap();
        assert_eq!(out.to_vec().unwrap(), rounded::<f16>(&expected));
    }

    #[test]
    fn positions_beyond_the_table_give_nans() {
        let gpu = Gpu::under_test(0);
        let (table, positions) =
            (gpu.upload(&[1f32; 8]).unwrap(), gpu.upload(&[1u32, 2, u32::MAX]).unwrap());
        let mut out = gpu.alloc::<f32>(12).unwrap();
        gather_on_device(&gpu, table.slice(), None, positions.slice(), 4, &mut out.slice_mut())
            .unwrap();
        let found = out.to_vec().unwrap();
        assert!(
            found[..4].iter().all(|&x| x == 1.0) && found[4..].iter().all(|x| x.is_nan()),
            "{found:?}"
        );
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let gpu = Gpu::under_test(0);
        let (table, positions) = (gpu.upload(&[1f32; 8]).unwrap(), gpu.upload(&[1u32]).unwrap());
        let mut out = gpu.alloc::<f32>(5).unwrap();
        let error =
            gather_on_device(&gpu, table.slice(), None, positions.slice(), 4, &mut out.slice_mut());
        assert!(matches!(error, Err(GpuError::Input(KernelError::Length { .. }))), "{error:?}");
    }
}
