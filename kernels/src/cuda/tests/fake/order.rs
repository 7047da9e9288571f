//! Calls that the host makes too early, or memory that it frees too early, do no harm; needed
//! memory is found.

use gsplit_gpu_sim::happened;

use super::{alone, start};
use crate::cuda::{
    DeviceBuffer, DeviceSlice, Gpu, GpuError, Kernel, Shape, before_out_of_memory, make_room,
};
use crate::philox::{Stream, StreamKey};
use crate::scan::cuda::sum_before;
use crate::{
    DeviceCache, DeviceDraw, DeviceEdgeIds, DeviceGraph, DeviceSampler, DeviceSubgraph,
    DeviceTable, Fanout, Graph, RowStore, gather_on_device,
};

const MIB: usize = 1 << 20;

#[test]
fn memory_that_is_kept_for_later_is_found_when_it_is_needed() {
    let name = "order::memory_that_is_kept_for_later_is_found_when_it_is_needed";
    if !alone(name, &[("FAKE_CUDA_MEMORY_MIB", "100")]) {
        return;
    }
    static ASKED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    before_out_of_memory(|| _ = ASKED.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let gpu = Gpu::open(0).unwrap();
    assert_eq!(gpu.memory().unwrap(), (100 << 20, 100 << 20));
    drop(gpu.alloc::<u8>(60 * MIB).unwrap());
    gpu.synchronise().unwrap();
    assert_eq!(gpu.memory().unwrap().0, 40 << 20, "it stays in the pool");
    let large = gpu.alloc::<u8>(80 * MIB).unwrap();
    assert_eq!(ASKED.load(std::sync::atomic::Ordering::Relaxed), 1);
    let error = gpu.alloc::<u8>(30 * MIB).unwrap_err();
    assert_eq!(error, GpuError::OutOfMemory { ordinal: 0, needed_mib: 30, free_mib: 20 });
    drop(large);
    // The allocation waits for memory that this stream has yet to free.
    drop(gpu.alloc::<u8>(90 * MIB).unwrap());
    // Memory shared between processes does not come from the pool, which gives its memory back.
    let shared = DeviceBuffer::<u8>::exported(&gpu, 90 * MIB).unwrap();
    let error = DeviceBuffer::<u8>::exported(&gpu, 11 * MIB).unwrap_err();
    assert_eq!(error, GpuError::OutOfMemory { ordinal: 0, needed_mib: 11, free_mib: 10 });
    drop(shared);
    assert_eq!(gpu.memory().unwrap().0, 100 << 20);
}

/// torch asks for room, on any stream, whenever it is about to take memory.
#[test]
fn memory_that_is_kept_for_later_is_given_up_where_less_is_free() {
    let name = "order::memory_that_is_kept_for_later_is_given_up_where_less_is_free";
    if !alone(name, &[("FAKE_CUDA_MEMORY_MIB", "96")]) {
        return;
    }
    assert_eq!(make_room(0), Ok(()), "no GPU is open");
    let gpu = Gpu::open(0).unwrap();
    let side = gpu.side_stream().unwrap();
    drop(gpu.alloc::<u8>(30 * MIB).unwrap());
    gpu.synchronise().unwrap();
    make_room(0).unwrap();
    assert_eq!(gpu.memory().unwrap().0, 66 << 20, "the rest is free");
    drop(side.alloc::<u8>(50 * MIB).unwrap());
    make_room(0).unwrap();
    assert_eq!(gpu.memory().unwrap().0, 96 << 20);
    // Memory that is about to be freed is not cached yet.
    drop(side.alloc::<u8>(94 * MIB).unwrap());
    make_room(0).unwrap();
    assert_eq!(gpu.memory().unwrap().0, 96 << 20);
}

/// The sampler's stream frees its memory while the model's stream has no room.
#[test]
fn memory_that_another_stream_is_about_to_free_is_waited_for() {
    let name = "order::memory_that_another_stream_is_about_to_free_is_waited_for";
    if !alone(name, &[("FAKE_CUDA_MEMORY_MIB", "100"), ("FAKE_CUDA_ASKS", "50")]) {
        return;
    }
    let gpu = Gpu::open(0).unwrap();
    let side = gpu.side_stream().unwrap();
    drop(side.zeros::<u8>(60 * MIB).unwrap());
    gpu.alloc::<u8>(80 * MIB).unwrap();
}

#[test]
fn values_may_be_changed_once_they_are_uploaded() {
    if !alone("order::values_may_be_changed_once_they_are_uploaded", &[]) {
        return;
    }
    let gpu = Gpu::open(0).unwrap();
    for len in [3usize, 40_000] {
        let mut values = vec![5u32; len];
        let copy = gpu.upload(&values).unwrap();
        values.fill(6);
        drop(values);
        assert_eq!(copy.to_vec().unwrap(), vec![5; len]);
    }
}

/// From pinned memory an upload may return before it has read.
#[test]
fn pinned_memory_is_its_owners_again_after_all_streams_have_read_it() {
    let name = "order::pinned_memory_is_its_owners_again_after_all_streams_have_read_it";
    if !alone(name, &[("FAKE_CUDA_DEVICES", "2")]) {
        return;
    }
    let [gpu, other] = [0, 1].map(|ordinal| Gpu::open(ordinal).unwrap());
    let mut values = vec![1u32; 1000];
    let pinned = gpu.map_host(&values).unwrap();
    let side = gpu.side_stream().unwrap();
    let uploaded = side.upload(&values).unwrap();
    let mut read = other.alloc::<u32>(1000).unwrap();
    read.slice_mut().copy_from(&other, pinned.seen_by(&other).unwrap()).unwrap();
    drop(pinned);
    values.fill(2);
    assert_eq!(uploaded.to_vec().unwrap(), [1; 1000]);
    assert_eq!(read.to_vec().unwrap(), [1; 1000]);
}

#[test]
fn memory_is_pinned_once_and_where_drivers_cannot_pin_it_for_reading() {
    for read_only in ["1", "0"] {
        let name = "order::memory_is_pinned_once_and_where_drivers_cannot_pin_it_for_reading";
        if !alone(name, &[("FAKE_CUDA_READ_ONLY", read_only)]) {
            continue;
        }
        let gpu = Gpu::open(0).unwrap();
        let values = [1u32, 2, 3, 4];
        let pinned = gpu.map_host(&values[1..]).unwrap();
        assert_eq!(pinned.slice().to_vec(&gpu).unwrap(), [2, 3, 4]);
        // Whole pages are pinned: neighbouring values share one.
        for again in [&values[..], &values[..1]] {
            let twice = gpu.map_host(again).unwrap_err().to_string();
            assert!(twice.ends_with("memory range is already mapped"), "{twice}");
        }
        drop(pinned);
        assert_eq!(gpu.map_host(&values).unwrap().slice().to_vec(&gpu).unwrap(), values);
        // A program's constants are read-only.
        static CONSTANT: [u64; 512] = [9; 512];
        let pins_all = std::env::var("FAKE_CUDA_READ_ONLY").as_deref() != Ok("0");
        assert_eq!(gpu.map_host(&CONSTANT).is_ok(), pins_all);
        assert_eq!(gpu.map_host_or_copy(&CONSTANT, 4095).is_ok(), pins_all, "a copy takes more");
        let copied = gpu.map_host_or_copy(&CONSTANT, 4096).unwrap();
        assert_eq!(copied.copied_bytes(), if pins_all { 0 } else { 4096 });
        assert_eq!(copied.slice().to_vec(&gpu).unwrap(), CONSTANT);
        return;
    }
}

/// No call registers more than the driver takes at once, and none waits for another.
#[test]
fn much_memory_is_registered_piece_by_piece() {
    if !alone("order::much_memory_is_registered_piece_by_piece", &[("FAKE_CUDA_REGISTER_MIB", "1")])
    {
        return;
    }
    let gpu = Gpu::open(0).unwrap();
    let values: Vec<u32> = (0..1_000_000).collect();
    let pinned = gpu.map_host(&values[3..]).unwrap();
    // A copy to the host takes one registration at a time.
    assert_eq!(pinned.slice().to_vec(&gpu).unwrap(), values[3..]);
    // 4 MB that start within a page.
    assert_eq!(happened("registering"), 4);
}

/// More than may be under way at a time, and then a small copy.
#[test]
fn uploads_are_from_pinned_memory() {
    if !alone("order::uploads_are_from_pinned_memory", &[("FAKE_CUDA_ASKS", "40")]) {
        return;
    }
    let gpu = Gpu::open(0).unwrap();
    let lengths = [1, 9, 2_000_000, 3, 262_144, 5_000, 0, 70];
    let all: Vec<Vec<u32>> =
        lengths.iter().map(|&len| (0..len).map(|i| i ^ len).collect()).collect();
    let uploaded: Vec<_> = all.iter().map(|values| gpu.upload(values).unwrap()).collect();
    for (values, uploaded) in all.iter().zip(uploaded) {
        assert_eq!(uploaded.to_vec().unwrap(), *values);
    }
    assert_eq!(happened("pageable"), 0);
}

/// Threads of the kernels that `work` launches.
fn threads(work: impl FnOnce()) -> u64 {
    let before = happened("threads");
    work();
    happened("threads") - before
}

/// A kernel that reads over the bus leaves multiprocessors to the null stream's kernels.
#[test]
fn kernels_that_wait_for_the_host_are_small() {
    if !alone("order::kernels_that_wait_for_the_host_are_small", &[]) {
        return;
    }
    let computing = Gpu::open(0).unwrap();
    let gpu = computing.side_stream().unwrap();
    let (vertices, degree) = (9_000u32, 3);
    let indptr: Vec<u64> = (0..=u64::from(vertices)).map(|v| v * degree).collect();
    let indices: Vec<u32> = (0..vertices * degree as u32).map(|e| e * 7 % vertices).collect();
    let ids: Vec<u32> = (0..vertices).collect();
    let starts = gpu.map_host_or_copy(&indptr, u64::MAX).unwrap();
    let sources = gpu.map_host_or_copy(&indices, u64::MAX).unwrap();
    let on_gpu = gpu.upload(&ids).unwrap();
    let graph = DeviceGraph::new(&gpu, starts.slice(), sources.slice()).unwrap();
    let degrees = graph.degrees(&gpu, on_gpu.slice()).unwrap();
    assert_eq!(degrees.to_vec().unwrap(), vec![degree; vertices as usize]);
    let mut sampler = DeviceSampler::new(&gpu).unwrap();
    for (fanout, drawn) in [(Fanout::Take(2), 2), (Fanout::All, 3)] {
        sampler.start(&graph, on_gpu.slice()).unwrap();
        let key = StreamKey::new(1, Stream::Sample);
        let layer =
            sampler.layer(&graph, &DeviceDraw::new(fanout), &key, DeviceEdgeIds::Drop).unwrap();
        assert_eq!(layer.num_edges(), vertices as usize * drawn);
    }
    // A vertex's edges on the GPU: only kernels that need the edges' ids read the host, the others
    // have all of the GPU.
    let on_host = Graph::new(&indptr, &indices).unwrap();
    let every: Vec<u64> = ids.chunks(64).map(|word| u64::MAX >> (64 - word.len())).collect();
    let subgraph = DeviceSubgraph::new(&gpu, &on_host, &every).unwrap();
    let uploaded = gpu.upload(&indptr).unwrap();
    let drawn = |indptr: DeviceSlice<'_, u64>, ids| {
        let part = DeviceGraph::of_subgraph(&gpu, indptr, &subgraph).unwrap();
        let mut sampler = DeviceSampler::new(&gpu).unwrap();
        sampler.start(&part, on_gpu.slice()).unwrap();
        let (draw, key) = (DeviceDraw::new(Fanout::Take(2)), StreamKey::new(1, Stream::Sample));
        threads(|| {
            assert_eq!(
                sampler.layer(&part, &draw, &key, ids).unwrap().num_edges(),
                2 * vertices as usize
            )
        })
    };
    assert_eq!(
        drawn(starts.slice(), DeviceEdgeIds::Drop),
        drawn(uploaded.slice(), DeviceEdgeIds::Drop)
    );
    assert!(
        drawn(starts.slice(), DeviceEdgeIds::Keep) < drawn(uploaded.slice(), DeviceEdgeIds::Keep)
    );

    let (dim, all) = (12, 27_136);
    let values: Vec<f32> = (0..dim * vertices).map(|i| i as f32).collect();
    let (pinned, mut out) =
        (gpu.map_host(&values).unwrap(), gpu.alloc::<f32>(values.len()).unwrap());
    let dim = dim as usize;
    let mut gather = |gpu: &Gpu, cached: Option<&[u32]>| {
        let row = |v: u32| &values[v as usize * dim..][..dim];
        let store = cached.map(|cached| RowStore::new(gpu, dim, cached, row, None).unwrap());
        let table = DeviceTable { values: pinned.slice(), scales: None, dim };
        let cache = store.as_ref().map(|store| DeviceCache::new(gpu, &table, store, &[]).unwrap());
        out.slice_mut().zero(gpu).unwrap();
        let launched = threads(|| match &cache {
            Some(cache) => cache.gather(gpu, &table, on_gpu.slice(), &mut out.slice_mut()).unwrap(),
            None => {
                gather_on_device(gpu, table.values, None, on_gpu.slice(), dim, &mut out.slice_mut())
                    .unwrap()
            }
        });
        gpu.synchronise().unwrap();
        assert_eq!(out.to_vec().unwrap(), values);
        launched
    };
    assert_eq!(gather(&gpu, None), 64 * 256);
    // Kernels that read rows of a cache have all of the GPU, the others do not.
    assert_eq!(gather(&gpu, Some(&ids[..4_000])), all + 64 * 256);
    assert_eq!(gather(&gpu, Some(&ids)), all);
    // Nothing runs next to the null stream.
    assert_eq!([None, Some(&ids[..4_000])].map(|cached| gather(&computing, cached)), [all; 2]);
    assert_eq!(happened("crowded"), 0);
    // A kernel that takes all of the GPU is counted.
    let kernel = Kernel { module: &crate::shuffle::cuda::MODULE, name: "shuffle_select" };
    let (none, selected) = (0u64.into(), gpu.alloc::<u32>(1).unwrap());
    let arguments = [sources.slice().into(), none, on_gpu.slice().into(), none, (&selected).into()];
    gpu.launch(kernel, Shape { blocks: 65, threads: 256, shared: 0 }, &arguments).unwrap();
    assert_eq!(happened("crowded"), 1);
}

#[test]
fn a_stream_waits_for_what_it_was_told_to_wait_for() {
    for haste in 0..4 {
        let seed = haste.to_string();
        if !alone(
            "order::a_stream_waits_for_what_it_was_told_to_wait_for",
            &[("FAKE_CUDA_HASTE", &seed)],
        ) {
            continue;
        }
        let gpu = Gpu::open(0).unwrap();
        let [one, two] = [0, 1].map(|_| gpu.side_stream().unwrap());
        for round in 1..50u32 {
            let ones = one.upload(&vec![1u32; 100 * round as usize]).unwrap();
            let mut sums = two.alloc::<u32>(ones.len()).unwrap();
            two.wait_for(&one).unwrap();
            sums.slice_mut().copy_from(&two, ones.slice()).unwrap();
            sum_before(&two, &mut sums.slice_mut(), None).unwrap();
            // In `two`'s order, which is behind the copy.
            ones.give_to(&two);
            drop(ones);
            sums.give_to(&one);
            one.wait_for(&two).unwrap();
            assert_eq!(sums.to_vec().unwrap(), Vec::from_iter(0..100 * round));
        }
        return;
    }
}

/// Runs the same tests with streams that run ahead by chance, instead of late.
#[test]
fn what_runs_on_gpus_runs_when_streams_go_on_by_themselves() {
    let tests = [
        "sample::sampler::tests::device::differential_batches",
        "comm::tests::gpus::diff",
        "gather::cached",
        "shuffle::cuda",
    ];
    start(&[&tests[..], &["--skip", "real_gpus"]].concat(), &[("FAKE_CUDA_HASTE", "7")], 8);
}
