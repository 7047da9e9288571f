//! Missing, old and broken libraries are reported in one line, without a panic.

use super::{LIBRARIES, alone};
use crate::cuda::module::MODULES;
use crate::cuda::{CudaSurvey, DeviceBuffer, Gpu, GpuError, IpcHandle, Kernel, Shape, compile};
use crate::scan;

/// A kernel that fails: it reads at an invalid address.
fn wreck(gpu: &Gpu) {
    let kernel = Kernel { module: &scan::cuda::MODULE, name: "scan_of_sums" };
    // Addresses below a page are never allocated.
    gpu.launch(kernel, Shape { blocks: 1, threads: 256, shared: 0 }, &[64u64.into(), 5u64.into()])
        .unwrap();
}

#[test]
fn without_devices_the_driver_says_so() {
    if !alone("failures::without_devices_the_driver_says_so", &[("FAKE_CUDA_DEVICES", "0")]) {
        return;
    }
    let error = Gpu::open(0).unwrap_err().to_string();
    assert_eq!(error, "cuInit failed: no CUDA-capable device is detected");
    let survey = CudaSurvey::look();
    assert!(
        survey
            .driver
            .is_ok_and(|driver| driver.path.is_some_and(|path| path.starts_with(LIBRARIES)))
    );
    assert_eq!(survey.gpus.unwrap_err().to_string(), error);
}

#[test]
fn a_device_that_is_not_there_is_named() {
    if !alone("failures::a_device_that_is_not_there_is_named", &[("FAKE_CUDA_DEVICES", "2")]) {
        return;
    }
    assert_eq!(Gpu::open(2).unwrap_err(), GpuError::NoDevice { ordinal: 2, devices: 2 });
    let survey = CudaSurvey::look();
    assert_eq!(survey.driver.as_ref().unwrap().version, Some((13, 0)));
    let gpus = survey.gpus.unwrap();
    assert_eq!(
        gpus.iter().map(|gpu| gpu.name.as_str()).collect::<Vec<_>>(),
        ["Fake GPU 0", "Fake GPU 1"]
    );
    assert_eq!((gpus[1].compute_capability, gpus[1].multiprocessors), ((9, 0), 2));
    assert_eq!((gpus[1].shared_bytes, gpus[1].most_shared_bytes), (48 << 10, 227 << 10));
}

#[test]
fn a_driver_that_is_too_old_for_the_compiler_is_refused() {
    if !alone(
        "failures::a_driver_that_is_too_old_for_the_compiler_is_refused",
        &[("FAKE_CUDA_VERSION", "11080")],
    ) {
        return;
    }
    let error = Gpu::open(0).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "NVIDIA's driver runs CUDA up to 11.8, but NVRTC, which compiles the kernels, needs 1"
        ),
        "{error}"
    );
    assert!(error.ends_with("or later: update the driver"), "{error}");
}

#[test]
fn a_driver_without_memory_pools_is_refused() {
    if !alone(
        "failures::a_driver_without_memory_pools_is_refused",
        &[("FAKE_CUDA_VERSION", "10020")],
    ) {
        return;
    }
    let error = Gpu::open(0).unwrap_err();
    assert_eq!(error, GpuError::OldDriver { driver: (10, 2), needed: (11, 2), by: "gsplit" });
    let survey = CudaSurvey::look();
    assert_eq!((survey.driver.unwrap_err(), survey.gpus.unwrap_err()), (error.clone(), error));
}

#[test]
fn a_gpu_without_memory_pools_is_refused() {
    if !alone("failures::a_gpu_without_memory_pools_is_refused", &[("FAKE_CUDA_POOLS", "0")]) {
        return;
    }
    let error = Gpu::open(0).unwrap_err();
    assert_eq!(error, GpuError::NoPools { ordinal: 0 });
    assert!(error.to_string().contains("CUDA 11.2"), "{error}");
}

#[test]
fn after_a_failed_kernel_all_calls_fail_and_nothing_panics() {
    // Nothing happens before the host waits for it.
    if !alone(
        "failures::after_a_failed_kernel_all_calls_fail_and_nothing_panics",
        &[("FAKE_CUDA_HASTE", "")],
    ) {
        return;
    }
    let gpu = Gpu::open(0).unwrap();
    let side = gpu.side_stream().unwrap();
    // More than fits into the pinned memory for copies to the host.
    let values = vec![7u32; 20_000];
    let (mut kept, pinned) = (gpu.upload(&values).unwrap(), gpu.map_host(&values).unwrap());
    gpu.synchronise().unwrap();
    wreck(&side);
    // Launches do not wait, so the failure shows later.
    assert_eq!(kept.to_vec().unwrap(), values);
    let failed = side.synchronise().unwrap_err();
    let line = "cuStreamSynchronize failed: an illegal memory access was encountered";
    assert_eq!(failed.to_string(), line);
    let calls: [(&str, Result<(), GpuError>); 11] = [
        ("alloc", gpu.alloc::<u32>(4).map(drop)),
        ("upload", kept.slice_mut().upload(&gpu, &values)),
        ("long download", kept.to_vec().map(drop)),
        ("download", kept.slice().part(0, 9).and_then(|part| part.to_vec(&side)).map(drop)),
        ("copy", kept.slice_mut().copy_from(&gpu, pinned.slice())),
        ("zero", kept.slice_mut().zero(&gpu)),
        ("map", gpu.map_host(&[1u32; 5]).map(drop)),
        ("stream", gpu.side_stream().map(drop)),
        ("wait", gpu.wait_for(&side)),
        ("synchronise", gpu.synchronise()),
        ("memory", gpu.memory().map(drop)),
    ];
    for (call, result) in calls {
        assert!(
            result
                .as_ref()
                .is_err_and(|error| error.to_string().ends_with("memory access was encountered")),
            "{call}: {result:?}"
        );
    }
}

/// Makes each call of opening and using a GPU fail once: everything allocated until then is freed
/// (or the fake ends the process), and the GPU can be opened again.
#[test]
fn whichever_call_fails_everything_is_given_back() {
    let calls = [
        "cuInit:1",
        "cuDeviceGetCount:1",
        "cuDeviceGet:1",
        "cuDeviceGetAttribute:2",
        "cuDevicePrimaryCtxRetain:1",
        "cuCtxSetCurrent:1",
        "cuMemHostAlloc:1",
        "cuMemHostAlloc:2",
        "cuDeviceGetDefaultMemPool:1",
        "cuMemPoolSetAttribute:1",
        "cuStreamCreate:1",
        "cuEventCreate:1",
        "cuEventRecord:1",
        "cuStreamWaitEvent:1",
        "cuMemHostRegister:1",
        "cuMemHostGetDevicePointer:1",
        "cuMemAllocAsync:1",
        "cuMemAlloc:1",
        "cuIpcGetMemHandle:1",
        "cuMemcpyHtoDAsync:1",
        "cuMemcpyDtoHAsync:1",
        "cuModuleLoadData:1",
        "cuModuleGetFunction:1",
        "cuFuncGetAttribute:1",
        "cuLaunchKernel:1",
        "cuStreamSynchronize:1",
    ];
    let use_it = || -> Result<(), GpuError> {
        let gpu = Gpu::open(0)?;
        let side = gpu.side_stream()?;
        let shown = DeviceBuffer::<u32>::exported(&gpu, 4)?;
        shown.ipc_handle()?;
        shown.reclaim();
        let host = [3u32; 40];
        let pinned = gpu.map_host(&host)?;
        let mut values = gpu.upload(&[1u32; 40])?;
        side.wait_for(&gpu)?;
        scan::cuda::sum_before(&side, &mut values.slice_mut(), None)?;
        gpu.wait_for(&side)?;
        assert_eq!(pinned.slice().to_vec(&gpu)?, host);
        values.to_vec().map(|sums| assert_eq!(sums, Vec::from_iter(0..40)))
    };
    for call in calls {
        if alone(
            "failures::whichever_call_fails_everything_is_given_back",
            &[("FAKE_CUDA_REFUSE", call)],
        ) {
            let refused = use_it();
            let name = std::env::var("FAKE_CUDA_REFUSE").unwrap();
            // With less memory left a second attempt may find enough.
            let recovers = ["cuMemAllocAsync:1", "cuMemAlloc:1"].contains(&name.as_str());
            assert_eq!(refused.is_ok(), recovers, "{name}: {refused:?}");
            return assert_eq!(use_it(), Ok(()), "{name}");
        }
        if std::env::var_os(super::ALONE).is_some() {
            return;
        }
    }
}

/// The cubin of every kernel has the same arguments as the host's build, which the tests compare
/// with the launches.
#[test]
fn every_kernel_is_in_its_cubin_with_the_same_arguments() {
    if !alone("failures::every_kernel_is_in_its_cubin_with_the_same_arguments", &[]) {
        return;
    }
    let gpu = Gpu::open(0).unwrap();
    let mut kernels = 0;
    for module in MODULES {
        let cubin: &[u8] = compile::compile_cached(module, 90).unwrap().leak();
        for name in compile::kernels_of(cubin) {
            kernels += 1;
            // More threads than any block may have: found, and refused.
            let shape = Shape { blocks: 1, threads: 2048, shared: 0 };
            let error = gpu.launch(Kernel { module, name }, shape, &[]).unwrap_err();
            assert_eq!(error, GpuError::Call { call: name, reason: "invalid argument".into() });
        }
    }
    assert!(kernels > 50, "{kernels}");
}

#[test]
fn memory_that_is_not_shared_or_not_reached_is_refused() {
    if !alone("failures::memory_that_is_not_shared_or_not_reached_is_refused", &[]) {
        return;
    }
    let refused = |call, reason: &str| GpuError::Call { call, reason: reason.into() };
    let gpu = Gpu::open(0).unwrap();
    let of_pool = gpu.upload(&[1u32, 2]).unwrap();
    assert_eq!(of_pool.ipc_handle().unwrap_err(), refused("cuIpcGetMemHandle", "invalid argument"));
    let shown = DeviceBuffer::<u32>::exported(&gpu, 2).unwrap();
    let open = |handle: &IpcHandle| DeviceBuffer::<u32>::imported(&gpu, handle, 2).unwrap_err();
    assert!(
        matches!(open(&bytemuck::Zeroable::zeroed()), GpuError::Input(_)),
        "it has other bytes"
    );
    let own = shown.ipc_handle().unwrap();
    assert_eq!(open(&own), refused("cuIpcOpenMemHandle", "invalid device context"));
    let mut bytes = bytemuck::bytes_of(&own).to_vec();
    bytes[0] ^= 1;
    let of_another = bytemuck::pod_read_unaligned(&bytes);
    assert_eq!(open(&of_another), refused("cuIpcOpenMemHandle", "mapping of buffer object failed"));
    let free = gpu.memory().unwrap().0;
    drop(DeviceBuffer::<u32>::exported(&gpu, 2).unwrap());
    assert_eq!(gpu.memory().unwrap().0, free, "nobody was shown this one");
}
