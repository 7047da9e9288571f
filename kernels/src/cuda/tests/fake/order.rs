//! What the host does too early, or gives back too early, does no harm; memory that is needed is found.

use super::{alone, start};
use crate::cuda::{DeviceBuffer, Gpu, GpuError, before_out_of_memory};
use crate::scan::cuda::sum_before;

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
    // What this stream has yet to free is waited for.
    drop(gpu.alloc::<u8>(90 * MIB).unwrap());
    // What processes share does not come from the pool, which gives it back.
    let shared = DeviceBuffer::<u8>::exported(&gpu, 90 * MIB).unwrap();
    let error = DeviceBuffer::<u8>::exported(&gpu, 11 * MIB).unwrap_err();
    assert_eq!(error, GpuError::OutOfMemory { ordinal: 0, needed_mib: 11, free_mib: 10 });
    drop(shared);
    assert_eq!(gpu.memory().unwrap().0, 100 << 20);
}

/// The sampler's stream frees what it made while the model's has no room.
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
        let twice = gpu.map_host(&values).unwrap_err().to_string();
        assert!(twice.ends_with("memory range is already mapped"), "{twice}");
        drop(pinned);
        assert_eq!(gpu.map_host(&values).unwrap().slice().to_vec(&gpu).unwrap(), values);
        // A program's constants must not be written.
        static CONSTANT: [u64; 512] = [9; 512];
        let constant = gpu.map_host(&CONSTANT);
        assert_eq!(constant.is_ok(), std::env::var("FAKE_CUDA_READ_ONLY").as_deref() != Ok("0"), "{constant:?}");
        return;
    }
}

#[test]
fn a_stream_waits_for_what_it_was_told_to_wait_for() {
    for haste in 0..4 {
        let seed = haste.to_string();
        if !alone("order::a_stream_waits_for_what_it_was_told_to_wait_for", &[("FAKE_CUDA_HASTE", &seed)]) {
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

/// The same tests when streams are fast, by chance, instead of slow.
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
