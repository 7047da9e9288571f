//! The emulation finds errors of kernels and streams.

use crate::cuda::{Argument, Gpu, GpuError, Kernel, Module, Shape};

const FAULTY: Kernel = Kernel {
    module: &Module { name: "faulty", source: include_str!("faulty.cu") },
    name: "faulty",
};

/// Two blocks of two warps run fault `which` on a buffer that was not written and one that was.
fn run(which: u32, order: u32) -> Result<(), GpuError> {
    let gpu = Gpu::emulated(order);
    let (unwritten, mut out) = (gpu.alloc::<u32>(128)?, gpu.zeros::<u32>(132)?);
    let arguments: [Argument; 4] =
        [which.into(), 32u32.into(), (&unwritten).into(), (&out.slice_mut()).into()];
    gpu.launch(FAULTY, Shape { blocks: 2, threads: 64, shared: 0 }, &arguments)
}

#[test]
fn faults_of_kernels_are_found_in_every_order_of_threads() {
    let faults = [
        // The later access finds the earlier one: as a reader of memory that is not written yet, or
        // as a writer.
        (1, "s what "),
        (2, "s what "),
        (3, "s what another "),
        (4, "writes what another wrote (thread"),
        (5, " what another "),
        (7, "reads what nobody wrote, 4 bytes of device memory"),
        (8, "reads what nobody wrote, 4 bytes of shared memory"),
        (9, "not a multiple"),
        (10, "a shift by"),
        (11, "a float beyond the integer"),
        (12, "an index beyond its array"),
        (13, "a barrier is not reached by all"),
        (14, "waits for a lane that has returned"),
    ];
    for order in 0..4 {
        for which in [0, 6] {
            assert_eq!(run(which, order), Ok(()), "fault {which}, order {order}");
        }
        for (which, expected) in faults {
            let error = run(which, order).unwrap_err().to_string();
            assert!(
                error.contains("faulty") && error.contains(expected),
                "fault {which}, order {order}: {error}"
            );
        }
    }
}

#[test]
fn streams_that_nothing_orders_are_found() {
    let gpu = Gpu::emulated(0);
    let side = gpu.side_stream().unwrap();
    let refused = |outcome: Result<(), GpuError>, expected: &str| {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let mut made = gpu.upload(&[1u32, 2]).unwrap();
    let mut copy = side.alloc::<u32>(2).unwrap();
    refused(copy.slice_mut().copy_from(&side, made.slice()), "reads what another wrote (launch");
    side.wait_for(&gpu).unwrap();
    copy.slice_mut().copy_from(&side, made.slice()).unwrap();
    refused(made.slice_mut().zero(&gpu), "writes what another read (launch");
    side.synchronise().unwrap();
    made.slice_mut().zero(&gpu).unwrap();
    // A stream that has waited for another also knows the streams that the other had waited for.
    let third = gpu.side_stream().unwrap();
    side.wait_for(&gpu).unwrap();
    third.wait_for(&side).unwrap();
    assert_eq!(made.slice().to_vec(&third).unwrap(), [0, 0]);
}

#[test]
#[should_panic(expected = "free failed: stream")]
fn memory_that_another_stream_reads_is_not_freed() {
    let gpu = Gpu::emulated(0);
    let side = gpu.side_stream().unwrap();
    let made = gpu.upload(&[1u32]).unwrap();
    let mut copy = side.alloc::<u32>(1).unwrap();
    side.wait_for(&gpu).unwrap();
    copy.slice_mut().copy_from(&side, made.slice()).unwrap();
    drop(made);
}
