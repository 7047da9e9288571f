//! Exclusive sums on a GPU.
//!
//! Returns: positions, in place of the counts. Input: up to 2^42 counts. Cost: three launches that
//! read the counts twice and write them once; one launch for up to 2048. Two lists share the
//! launches of one. Why not one pass that looks back at the blocks before it: that saves a third of
//! the traffic, which is small compared with sampling, and needs blocks that wait for each other.

use crate::cuda::{Argument, DeviceSliceMut, Gpu, GpuError, Module, Shape, THREADS};
use crate::error::{KernelError, check_len};

pub(crate) static MODULE: Module = Module { name: "scan", source: include_str!("cuda.cu") };

/// Numbers of one block.
const CHUNK: usize = THREADS as usize * 8;

/// Replaces every one of `values` except the last by the sum of those before it, and the last by
/// the sum of all others, which `total` gets too; its 64 bits show an overflow.
pub(crate) fn sum_before(
    gpu: &Gpu,
    values: &mut DeviceSliceMut<'_, u32>,
    total: Option<&mut DeviceSliceMut<'_, u64>>,
) -> Result<(), GpuError> {
    let total = match total {
        Some(total) => {
            check_len("sum of the counts", 1, total.len())?;
            total.address()
        }
        None => 0,
    };
    sums_before(gpu, [(values, total)])
}

/// Like [`sum_before`], for one or two lists in the same launches, each with the address of its
/// total, or 0.
pub(crate) fn sums_before<const N: usize>(
    gpu: &Gpu,
    lists: [(&DeviceSliceMut<'_, u32>, u64); N],
) -> Result<(), GpuError> {
    if lists.iter().any(|(values, _)| values.is_empty()) {
        return Err(KernelError::Length { what: "counts to sum up", expected: 1, got: 0 }.into());
    }
    let blocks = lists.each_ref().map(|(values, _)| (values.len() - 1).div_ceil(CHUNK).max(1));
    let all: usize = blocks.iter().sum();
    let sums =
        if blocks.iter().any(|&blocks| blocks > 1) { Some(gpu.alloc::<u64>(all)?) } else { None };
    let mut scans: [Argument; 2] = [[0; 8].into(); 2];
    let mut from = 0;
    for ((scan, (values, total)), blocks) in scans.iter_mut().zip(lists).zip(blocks) {
        let at = sums
            .as_ref()
            .map_or(0, |sums| sums.slice().address() + (from * size_of::<u64>()) as u64);
        *scan =
            [values.address(), values.len() as u64 - 1, at, total, blocks as u64, 0, 0, 0].into();
        from += blocks;
    }
    let shape = Shape { blocks: all as u32, threads: THREADS, shared: 0 };
    if sums.is_some() {
        gpu.launch(MODULE.kernel("scan_sums"), shape, &scans)?;
        gpu.launch(MODULE.kernel("scan_of_sums"), Shape { blocks: N as u32, ..shape }, &scans)?;
    }
    gpu.launch(MODULE.kernel("scan_write"), shape, &scans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::{Stream, StreamKey};

    #[test]
    fn oracle_sums_before() {
        for (order, len) in [0u32, 1, 7, 8, 255, 2047, 2048, 2049, 3 * 2048, 600_000]
            .into_iter()
            .enumerate()
            .map(|(i, n)| (i as u32 % 4, n))
        {
            let gpu = Gpu::under_test(order);
            let key = StreamKey::new(1, Stream::Generate);
            // Sums that sometimes exceed 32 bits.
            let most = if len.is_multiple_of(2) { 20 } else { 1 << 30 };
            let mut values: Vec<u32> = (0..len).map(|i| key.block(i, 0)[0] % most).collect();
            let sums = values
                .iter()
                .scan(0u64, |sum, &value| Some(std::mem::replace(sum, *sum + u64::from(value))));
            let mut expected: Vec<u64> = sums.collect();
            let total = values.iter().map(|&value| u64::from(value)).sum::<u64>();
            expected.push(total);
            let expected: Vec<u32> = expected.into_iter().map(|sum| sum as u32).collect();
            values.push(77);
            let (mut values, mut sum) = (gpu.upload(&values).unwrap(), gpu.alloc(1).unwrap());
            sum_before(&gpu, &mut values.slice_mut(), Some(&mut sum.slice_mut())).unwrap();
            assert_eq!(sum.to_vec().unwrap(), [total], "{len} numbers");
            assert!(values.to_vec().unwrap() == expected, "{len} numbers");
            // Two lists at a time, one of them short.
            let ([mut ones, mut others], totals) = (
                [3, len as usize].map(|len| gpu.upload(&vec![1; len + 1]).unwrap()),
                gpu.zeros::<u64>(2).unwrap(),
            );
            let at = totals.slice().address();
            sums_before(&gpu, [(&ones.slice_mut(), at), (&others.slice_mut(), at + 8)]).unwrap();
            assert_eq!(
                (ones.to_vec().unwrap(), totals.to_vec().unwrap()),
                (vec![0, 1, 2, 3], vec![3, len.into()])
            );
            assert!(others.to_vec().unwrap().into_iter().eq(0..=len), "{len} ones");
        }
    }

    #[test]
    fn nothing_to_write_the_sum_to() {
        let gpu = Gpu::under_test(0);
        let mut values = gpu.alloc(0).unwrap();
        let error = sum_before(&gpu, &mut values.slice_mut(), None);
        assert!(matches!(error, Err(GpuError::Input(KernelError::Length { .. }))), "{error:?}");
    }
}
