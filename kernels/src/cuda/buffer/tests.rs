//! Memory of a GPU: taken, copied, shown to other processes, given back.

use super::*;

#[test]
fn a_gpu_without_the_room_says_so_and_goes_on() {
    let gpu = Gpu::under_test(0);
    let kept = gpu.upload(&[1u32, 2, 3]).unwrap();
    let asked = gpu.alloc::<u8>(1 << 50);
    assert!(
        matches!(asked, Err(GpuError::OutOfMemory { needed_mib: 0x4000_0000, .. })),
        "{asked:?}"
    );
    assert_eq!(kept.to_vec().unwrap(), [1, 2, 3]);
    assert_eq!(gpu.zeros::<u32>(2).unwrap().to_vec().unwrap(), [0, 0]);
}

#[test]
fn values_of_another_gpu_are_copied() {
    let [gpu, other] = [0, 1].map(Gpu::under_test);
    let values = other.upload(&[1u32, 2, 3]).unwrap();
    let mut here = gpu.zeros::<u32>(5).unwrap();
    let mut part = here.slice_mut().part(1, 4).unwrap();
    let side = gpu.side_stream().unwrap();
    side.wait_for(&gpu).unwrap();
    part.copy_from_other(&side, &other, values.slice()).unwrap();
    gpu.wait_for(&side).unwrap();
    assert!(part.copy_from_other(&gpu, &other, values.slice().part(0, 2).unwrap()).is_err());
    assert_eq!(here.to_vec().unwrap(), [0, 1, 2, 3, 0]);
}

#[test]
fn nothing_is_copied_as_nothing() {
    let gpu = Gpu::under_test(0);
    let mut empty = gpu.upload::<u32>(&[]).unwrap();
    empty.slice_mut().zero(&gpu).unwrap();
    let other = gpu.zeros::<u32>(0).unwrap();
    empty.slice_mut().copy_from(&gpu, other.slice()).unwrap();
    assert_eq!(empty.to_vec().unwrap(), []);
}

#[test]
fn what_another_process_keeps_is_read_until_it_is_closed() {
    // In emulation each stream is as good as a process of its own; a real driver refuses memory of
    // its own process.
    let [gpu, other] = [0, 1].map(Gpu::emulated);
    let mut kept = DeviceBuffer::exported(&other, 3).unwrap();
    kept.slice_mut().upload(&other, &[4u32, 5, 6]).unwrap();
    other.synchronise().unwrap();
    let handle = kept.ipc_handle().unwrap();
    assert!(
        DeviceBuffer::<u32>::imported(&other, &handle, 3)
            .unwrap_err()
            .to_string()
            .contains("its own")
    );
    assert!(matches!(DeviceBuffer::<u32>::imported(&gpu, &handle, 5), Err(GpuError::Input(_))));
    let opened = [0, 1].map(|_| DeviceBuffer::<u32>::imported(&gpu, &handle, 3).unwrap());
    assert_eq!(opened[1].to_vec().unwrap(), [4, 5, 6]);
    drop(opened);
    kept.reclaim();
    drop(kept);
    assert!(
        DeviceBuffer::<u32>::imported(&gpu, &handle, 3)
            .unwrap_err()
            .to_string()
            .contains("not there")
    );
    assert!(gpu.alloc::<u32>(3).unwrap().ipc_handle().is_err(), "of the pool");
}

#[test]
fn what_others_may_have_open_stays() {
    let [gpu, other] = [0, 1].map(Gpu::emulated);
    let kept = DeviceBuffer::<u32>::exported(&other, 3).unwrap();
    let handle = kept.ipc_handle().unwrap();
    let opened = DeviceBuffer::<u32>::imported(&gpu, &handle, 3).unwrap();
    drop(kept);
    drop(DeviceBuffer::<u32>::imported(&gpu, &handle, 3).unwrap());
    drop(opened);
    // This one was not shown to another process.
    drop(DeviceBuffer::<u32>::exported(&other, 3).unwrap());
    assert_eq!(other.counts().freed, 1);
}

#[test]
#[should_panic(expected = "memory is freed that is open elsewhere")]
fn what_others_have_open_is_not_freed() {
    let [gpu, other] = [0, 1].map(Gpu::emulated);
    let kept = DeviceBuffer::<u32>::exported(&other, 3).unwrap();
    let opened = DeviceBuffer::<u32>::imported(&gpu, &kept.ipc_handle().unwrap(), 3).unwrap();
    kept.reclaim();
    drop(kept);
    drop(opened);
}

/// The bytes of a handle, in a process that is to open it.
const HANDLE: &str = "GSPLIT_TEST_HANDLE";

/// Two processes may be on one GPU.
#[test]
fn another_process_reads_what_a_gpu_keeps() {
    if std::env::var_os("GSPLIT_TEST_GPU").is_none() {
        return eprintln!("skipped: an emulated GPU is one process's");
    }
    let gpu = Gpu::under_test(0);
    if let Ok(hex) = std::env::var(HANDLE) {
        let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
        let handle: [u8; size_of::<IpcHandle>()] = std::array::from_fn(byte);
        let kept =
            DeviceBuffer::<f32>::imported(&gpu, &bytemuck::pod_read_unaligned(&handle), 3).unwrap();
        assert_eq!(kept.to_vec().unwrap(), [4.0, 5.0, 6.0]);
        let (positions, mut rows) = (gpu.upload(&[2u32, 0]).unwrap(), gpu.alloc::<f32>(2).unwrap());
        crate::gather_on_device(
            &gpu,
            kept.slice(),
            None,
            positions.slice(),
            1,
            &mut rows.slice_mut(),
        )
        .unwrap();
        return assert_eq!(rows.to_vec().unwrap(), [6.0, 4.0], "by a kernel");
    }
    let mut kept = DeviceBuffer::exported(&gpu, 3).unwrap();
    kept.slice_mut().upload(&gpu, &[4.0f32, 5.0, 6.0]).unwrap();
    gpu.synchronise().unwrap();
    let handle = kept.ipc_handle().unwrap();
    let hex: String =
        bytemuck::bytes_of(&handle).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    program
        .args(["--exact", "cuda::buffer::tests::another_process_reads_what_a_gpu_keeps"])
        .env(HANDLE, hex);
    let output = program.output().unwrap();
    let said = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    kept.reclaim();
}
