//! A stable counting sort by digits, of several lists at once.
//!
//! Returns: items by key, and where the items of each key start. Input: any keys; items whose key
//! is not below the number of keys come last, without a key. Idea: from the lowest digit to the
//! highest in use, tiles count their digits, a scan gives the start of each tile's items of each
//! digit, and each warp moves its items there in order (Satish, Harris and Garland, IPDPS 2009;
//! ranks within a warp by matching digits). Digits have up to 10 bits, as few as need no extra
//! pass. Cost: three passes over the items for each digit, and one more; as many launches for all
//! lists as for one, and an upload; the host does not wait.

use crate::cuda::{DeviceBuffer, DeviceSlice, Gpu, GpuError, Module, Shape, THREADS, arguments};
use crate::error::{KernelError, check_len};
use crate::scan::cuda::sum_before;

pub(crate) static MODULE: Module = Module { name: "group", source: include_str!("cuda.cu") };

/// Items of a tile, as in `cuda.cu`.
const TILE: usize = 4096;
/// Most bits of a digit: each warp of a block has counts of all digits in shared memory.
const MOST_BITS: u32 = 10;

/// Items to be grouped by their keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed<'a> {
    pub keys: DeviceSlice<'a, u32>,
    pub num_keys: usize,
    /// A value for each item, to be sorted along with the keys.
    pub payload: Option<DeviceSlice<'a, u32>>,
}

/// Items by key.
#[derive(Debug)]
pub(crate) struct Grouped {
    /// The items of key `k` are `order[indptr[k]..indptr[k + 1]]`.
    pub indptr: DeviceBuffer<u32>,
    /// All items, as positions in the keys.
    pub order: DeviceBuffer<u32>,
    /// The values of the items, in their order.
    pub payload: Option<DeviceBuffer<u32>>,
}

/// Groups the items of each list by their keys.
pub(crate) fn group_by_key(gpu: &Gpu, lists: &[Keyed<'_>]) -> Result<Vec<Grouped>, GpuError> {
    if lists.is_empty() {
        return Ok(Vec::new());
    }
    let count: usize = lists.iter().map(|list| list.keys.len()).sum();
    let num_keys = lists.iter().map(|list| list.num_keys).max().unwrap_or(0);
    let fits = |number: usize| {
        u32::try_from(number)
            .map_err(|_| KernelError::TooManyItems { what: "items to group", got: number })
    };
    // Larger keys become the number of keys, which must fit too.
    let (_, key_bits) = (fits(count)?, (32 - fits(num_keys)?.leading_zeros()).max(1));
    let passes = key_bits.div_ceil(MOST_BITS);
    let bits = key_bits.div_ceil(passes);
    let (mut found, mut described) = (Vec::with_capacity(lists.len()), Vec::new());
    let (mut item, mut tiles, mut threads) = (0, 0, 0);
    for list in lists {
        let (items, keys) = (list.keys.len(), list.num_keys);
        if let Some(payload) = list.payload {
            check_len("values of the items to group", items, payload.len())?;
        }
        let payload = list.payload.map(|_| gpu.alloc::<u32>(items)).transpose()?;
        let grouped = Grouped { indptr: gpu.alloc(keys + 1)?, order: gpu.alloc(items)?, payload };
        let address = |payload: &DeviceBuffer<u32>| payload.slice().address();
        described.extend([
            list.keys.address(),
            items as u64,
            keys as u64,
            item as u64,
            tiles as u64,
            threads as u64,
        ]);
        described.push(list.payload.map_or(0, |payload| payload.address()));
        let payload = grouped.payload.as_ref().map_or(0, address);
        described.extend([address(&grouped.order), payload, address(&grouped.indptr)]);
        found.push(grouped);
        (item, tiles, threads) =
            (item + items, tiles + items.div_ceil(TILE), threads + items.max(keys + 1));
    }
    let described = gpu.upload(&described)?;
    let number_of_lists = lists.len() as u32;
    let shape =
        |warps: u32| Shape { blocks: tiles as u32, threads: THREADS, shared: (warps * 4) << bits };
    let mut places = gpu.alloc::<u32>((tiles << bits) + 1)?;
    let mut sorted: Option<[DeviceBuffer<u32>; 2]> = None;
    for pass in 0..passes {
        let [from, order] = [0, 1].map(|list| sorted.as_ref().map(|sorted| &sorted[list]));
        let into = [gpu.alloc::<u32>(count)?, gpu.alloc::<u32>(count)?];
        let read = arguments![&described, number_of_lists, from, bits * pass, bits, &places];
        gpu.launch(MODULE.kernel("group_count"), shape(1), &read)?;
        sum_before(gpu, &mut places.slice_mut(), None)?;
        let written = arguments![order, &into[0], &into[1]];
        gpu.launch(
            MODULE.kernel("group_place"),
            shape(THREADS / 32),
            &[&read[..], &written].concat(),
        )?;
        sorted = Some(into);
    }
    let [keys, order] = [0, 1].map(|list| sorted.as_ref().map(|sorted| &sorted[list]));
    let of = arguments![&described, number_of_lists, threads, keys, order];
    gpu.run(MODULE.kernel("group_finish"), threads, &of)?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::{Draws, Stream, StreamKey};

    const CASES: [(usize, u32); 9] = [
        (0, 0),
        (0, 5),
        (1, 1),
        (70, 3),
        (5000, 1),
        (9000, 300),
        (6000, 70_000),
        (300, 2_000_000),
        (40, 0),
    ];

    /// Makes keys, some of which are out of range.
    fn keys(case: usize, count: usize, num_keys: u32) -> Vec<u32> {
        let mut draws = Draws::new(&StreamKey::new(1, Stream::Generate), case as u32);
        let mut keys: Vec<u32> = (0..count).map(|_| draws.below(num_keys + 1)).collect();
        keys.first_mut().into_iter().for_each(|key| *key = u32::MAX);
        keys
    }

    fn check(found: &Grouped, keys: &[u32], num_keys: u32) {
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        order.sort_by_key(|&item| keys[item as usize].min(num_keys));
        assert_eq!(found.order.to_vec().unwrap(), order, "{} items, {num_keys} keys", keys.len());
        if let Some(payload) = &found.payload {
            assert!(
                payload.to_vec().unwrap().into_iter().eq(order.into_iter().map(|item| item * 3))
            );
        }
        let starts = found.indptr.to_vec().unwrap();
        assert_eq!(starts.len(), num_keys as usize + 1);
        for key in (0..=num_keys).step_by((num_keys as usize / 500).max(1)) {
            let before = keys.iter().filter(|&&other| other < key).count();
            assert_eq!(starts[key as usize] as usize, before, "start of {key}");
        }
    }

    #[test]
    fn oracle_a_stable_sort() {
        for (case, (count, num_keys)) in CASES.into_iter().enumerate() {
            let (gpu, keys) = (Gpu::under_test(case as u32 % 4), keys(case, count, num_keys));
            let on_gpu = gpu.upload(&keys).unwrap();
            let list = Keyed { keys: on_gpu.slice(), num_keys: num_keys as usize, payload: None };
            check(&group_by_key(&gpu, &[list]).unwrap()[0], &keys, num_keys);
        }
    }

    #[test]
    fn lists_are_sorted_together_as_one_by_one() {
        let gpu = Gpu::under_test(3);
        let all: Vec<Vec<u32>> =
            CASES.into_iter().enumerate().map(|(case, of)| keys(case, of.0, of.1)).collect();
        let on_gpu: Vec<_> = all.iter().map(|keys| gpu.upload(keys).unwrap()).collect();
        let payload = gpu.upload(&(0..9000).map(|item| item * 3).collect::<Vec<u32>>()).unwrap();
        let list = |case: usize| {
            let (count, num_keys) = CASES[case];
            let payload = (num_keys != 3).then(|| payload.slice().part(0, count).unwrap());
            Keyed { keys: on_gpu[case].slice(), num_keys: num_keys as usize, payload }
        };
        let lists: Vec<_> = (0..CASES.len()).map(list).collect();
        let before = gpu.counts();
        let found = group_by_key(&gpu, &lists).unwrap();
        let after = gpu.counts();
        // Three digits of 7 bits, each with a scan of three launches; plus the first and the last
        // launch.
        assert!(after.waits == before.waits && after.launches <= before.launches + 3 * 5 + 2);
        assert_eq!(found.len(), CASES.len());
        for ((found, keys), (_, num_keys)) in found.iter().zip(&all).zip(CASES) {
            check(found, keys, num_keys);
        }
        assert!(
            group_by_key(&gpu, &[]).unwrap().is_empty() && gpu.counts().launches == after.launches
        );
    }
}
