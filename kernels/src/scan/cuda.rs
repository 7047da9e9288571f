//! The launches of a scan.
//!
//! Returns: the sums in place. Input: values that a `u32` can count. Cost: two reads and one write of them; the host does not
//! wait.

use crate::cuda::{DeviceSliceMut, Gpu, GpuError, Kernel, Module, Shape};

pub(crate) static MODULE: Module = Module { name: "scan", source: include_str!("cuda.cu") };

/// As in `cuda.cu`.
const THREADS: u32 = 256;
/// Values of a tile, as in `cuda.cu`.
const TILE: usize = 2048;

/// Each of `values` becomes the sum of those before it.
pub(crate) fn exclusive_scan(gpu: &Gpu, values: &mut DeviceSliceMut<'_, u32>) -> Result<(), GpuError> {
    let tiles = values.len().div_ceil(TILE);
    let sums = gpu.alloc::<u32>(tiles)?;
    let shape = Shape { blocks: tiles as u32, threads: THREADS, shared: 0 };
    let arguments = [(&*values).into(), (values.len() as u64).into(), (&sums).into()];
    let kernel = |name| Kernel { module: &MODULE, name };
    gpu.launch(kernel("scan_tile_sums"), shape, &arguments)?;
    gpu.launch(kernel("scan_sums"), Shape { blocks: 1, ..shape }, &[(&sums).into(), (tiles as u64).into()])?;
    gpu.launch(kernel("scan_tiles"), shape, &arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::{Draws, Stream, StreamKey};

    #[test]
    fn oracle_sums_before() {
        for (order, count) in [0, 1, 31, 2048, 2049, 10_000].into_iter().enumerate() {
            let gpu = Gpu::emulated(order as u32 % 4);
            let mut draws = Draws::new(&StreamKey::new(1, Stream::Generate), count);
            let values: Vec<u32> = (0..count).map(|_| draws.below(100)).collect();
            let expected: Vec<u32> = (0..values.len()).map(|at| values[..at].iter().sum()).collect();
            let mut found = gpu.upload(&values).unwrap();
            exclusive_scan(&gpu, &mut found.slice_mut()).unwrap();
            assert_eq!(found.to_vec().unwrap(), expected, "{count} values");
        }
    }

    #[test]
    fn more_tiles_than_a_block_has_threads() {
        let gpu = Gpu::emulated(1);
        let count = TILE * 300 + 5;
        let mut found = gpu.upload(&vec![3u32; count]).unwrap();
        exclusive_scan(&gpu, &mut found.slice_mut()).unwrap();
        assert!(found.to_vec().unwrap().iter().enumerate().all(|(at, &sum)| sum as usize == 3 * at));
    }
}
