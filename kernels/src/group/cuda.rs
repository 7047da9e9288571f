//! A stable counting sort by digits.
//!
//! Returns: items by key, and where each key's start. Input: any keys; items whose key is not below the number of keys come
//! last, and no key has them. Idea: from the lowest digit of 8 bits to the highest that there is, tiles count their digits, a
//! scan says where each tile's items of each digit go, and each warp takes its items there in order (Satish, Harris and
//! Garland, IPDPS 2009; ranks within a warp by matching digits). Cost: three passes over the items for each digit; the
//! host does not wait.

use crate::cuda::{DeviceBuffer, DeviceSlice, Gpu, GpuError, Kernel, Module, Shape};
use crate::error::KernelError;
use crate::scan::cuda::sum_before;

pub(crate) static MODULE: Module = Module { name: "group", source: include_str!("cuda.cu") };

/// As in `cuda.cu`.
const THREADS: u32 = 256;
/// Items of a tile, as in `cuda.cu`.
const TILE: usize = 4096;
/// Values of a digit, as in `cuda.cu`.
const DIGITS: usize = 256;

/// Items by key.
#[derive(Debug)]
pub(crate) struct Grouped {
    /// The items of key `k` are `order[indptr[k]..indptr[k + 1]]`.
    pub indptr: DeviceBuffer<u32>,
    /// All items, as positions in the keys.
    pub order: DeviceBuffer<u32>,
}

/// Groups the items by their keys, which are below `num_keys`.
pub(crate) fn group_by_key(gpu: &Gpu, keys: DeviceSlice<'_, u32>, num_keys: usize) -> Result<Grouped, GpuError> {
    let count = keys.len();
    let too_many = |got| KernelError::TooManyItems { what: "items to group", got };
    u32::try_from(count).map_err(|_| too_many(count))?;
    let num_keys = u32::try_from(num_keys).map_err(|_| too_many(num_keys))?;
    let (tiles, kernel) = (count.div_ceil(TILE), |name| Kernel { module: &MODULE, name });
    let shape = Shape { blocks: tiles as u32, threads: THREADS, shared: 0 };
    let mut places = gpu.alloc::<u32>(tiles * DIGITS + 1)?;
    let mut sorted: Option<[DeviceBuffer<u32>; 2]> = None;
    // Keys are lowered to `num_keys`, which is one too.
    let digits = (32 - num_keys.leading_zeros()).div_ceil(8).max(1);
    for digit in 0..digits {
        let (from, order) = match &sorted {
            Some([keys, order]) => (keys.slice(), order.slice().address()),
            None => (keys, 0),
        };
        let into = [gpu.alloc::<u32>(count)?, gpu.alloc::<u32>(count)?];
        let read = [from.into(), (count as u64).into(), num_keys.into(), (8 * digit).into(), (tiles as u64).into()];
        gpu.launch(kernel("group_count"), shape, &[&read[..], &[(&places).into()]].concat())?;
        sum_before(gpu, &mut places.slice_mut(), None)?;
        let written = [order.into(), (&places).into(), (&into[0]).into(), (&into[1]).into()];
        gpu.launch(kernel("group_place"), shape, &[&read[..], &written].concat())?;
        sorted = Some(into);
    }
    let [keys, order] = match sorted {
        Some(sorted) => sorted,
        None => [gpu.alloc(0)?, gpu.alloc(0)?],
    };
    let indptr = gpu.alloc::<u32>(num_keys as usize + 1)?;
    let arguments = [(&keys).into(), (count as u64).into(), (num_keys as u64).into(), (&indptr).into()];
    gpu.launch(kernel("group_starts"), Shape::per_item(indptr.len(), THREADS), &arguments)?;
    Ok(Grouped { indptr, order })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::{Draws, Stream, StreamKey};

    #[test]
    fn oracle_a_stable_sort() {
        let cases = [(0, 0), (0, 5), (1, 1), (70, 3), (5000, 1), (9000, 300), (6000, 70_000), (300, 200_000), (40, 0)];
        for (case, (count, num_keys)) in cases.into_iter().enumerate() {
            let gpu = Gpu::under_test(case as u32 % 4);
            let mut draws = Draws::new(&StreamKey::new(1, Stream::Generate), case as u32);
            // Some keys are beyond all.
            let mut keys: Vec<u32> = (0..count).map(|_| draws.below(num_keys + 1)).collect();
            if let Some(key) = keys.first_mut() {
                *key = u32::MAX;
            }
            let found = group_by_key(&gpu, gpu.upload(&keys).unwrap().slice(), num_keys as usize).unwrap();
            let mut order: Vec<u32> = (0..count).collect();
            order.sort_by_key(|&item| keys[item as usize].min(num_keys));
            assert_eq!(found.order.to_vec().unwrap(), order, "{count} items, {num_keys} keys");
            let starts = found.indptr.to_vec().unwrap();
            assert_eq!(starts.len(), num_keys as usize + 1);
            for key in (0..=num_keys).step_by((num_keys as usize / 500).max(1)) {
                let before = keys.iter().filter(|&&other| other < key).count();
                assert_eq!(starts[key as usize] as usize, before, "start of {key}");
            }
        }
    }
}
