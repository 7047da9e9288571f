//! Advice about missing or contradicting parts of this machine's set-up.

use std::fs;
use std::path::{Path, PathBuf};

use gsplit_kernels::{CudaLibrary, CudaSurvey, GpuError};
use gsplit_preprocess::memory::shown;

use super::{OnGpu, Training};

/// Shared memory that NCCL may use per GPU whose messages go through the host.
const SHM_OF_A_GPU: u64 = 64 << 20;
/// Oldest GPUs that NVRTC 13 compiles for.
const OLDEST: (u32, u32) = (7, 5);

/// One line for each missing part.
pub fn advice(survey: &CudaSurvey, gpus: &[OnGpu<'_>], training: &Training) -> Vec<String> {
    let mut lines = Vec::new();
    if let Training::Fails(reason) = training {
        lines.push(format!("training: {reason}"));
    }
    lines.extend(no_gpus(survey));
    if gpus.is_empty() {
        return lines;
    }
    let errors = [&survey.compiler, &survey.nccl].into_iter().filter_map(|of| of.as_ref().err());
    lines.extend(errors.map(ToString::to_string));
    let version = |found: &Result<CudaLibrary, GpuError>| {
        found.as_ref().ok().and_then(|library| library.version)
    };
    if let (Some(driver), Some(compiler)) = (version(&survey.driver), version(&survey.compiler)) {
        lines.extend(too_new(compiler, driver));
        if compiler.0 >= 13 {
            let old = gpus.iter().filter(|gpu| gpu.facts.compute_capability < OLDEST);
            let remedy = "use PyTorch for CUDA 12, which brings NVRTC 12";
            let line = |gpu: &OnGpu<'_>| {
                format!("GPU {}: NVRTC 13 does not know it; {remedy}", gpu.ordinal)
            };
            lines.extend(old.map(line));
        }
    }
    lines.extend(gpus.iter().filter_map(unusable));
    lines
}

/// Advice where the driver shows no GPU.
fn no_gpus(survey: &CudaSurvey) -> Option<String> {
    if survey.driver.is_err() {
        let devices = nvidia_devices(Path::new("/sys/bus/pci/devices"));
        return Some(no_driver(devices, Path::new("/proc/driver/nvidia")));
    }
    match &survey.gpus {
        Err(error) => Some(format!(
            "GPUs: {error}; see whether `nvidia-smi` works, and whether CUDA_VISIBLE_DEVICES hides \
             them"
        )),
        Ok(found) => {
            found.is_empty().then(|| "GPUs: none; CUDA_VISIBLE_DEVICES may hide them".to_string())
        }
    }
}

/// The reason why none of `gpus` can be used; `None` if one can.
pub fn no_gpu(survey: &CudaSurvey, gpus: &[OnGpu<'_>]) -> Option<String> {
    let all = gpus.iter().map(unusable).collect::<Option<Vec<String>>>()?;
    all.into_iter().next().or_else(|| no_gpus(survey))
}

/// The reason why `gpu` cannot be used, if any.
fn unusable(gpu: &OnGpu<'_>) -> Option<String> {
    Some(format!("GPU {}: {}", gpu.ordinal, gpu.measured.as_ref().err()?))
}

/// Advice where `bytes` of shared memory are too few for this number of `gpus`.
pub fn little_shm(bytes: u64, gpus: usize) -> Option<String> {
    let needed = SHM_OF_A_GPU * gpus as u64;
    (gpus > 1 && bytes < needed).then(|| {
        format!(
            "shared memory: /dev/shm has {}, processes with {gpus} GPUs may need {}: start the \
             container with `--shm-size=1g`",
            shown(bytes),
            shown(needed)
        )
    })
}

/// Advice where NVRTC belongs to a later CUDA than the driver supports.
fn too_new(compiler: (u32, u32), driver: (u32, u32)) -> Option<String> {
    (compiler.0 > driver.0).then(|| {
        format!(
            "NVRTC is of CUDA {}.{}, the driver runs CUDA up to {}.{}: update the driver, or use \
             PyTorch for CUDA {}",
            compiler.0, compiler.1, driver.0, driver.1, driver.0
        )
    })
}

/// Advice without a driver: `devices` NVIDIA devices are on the bus; `kernel` exists if the
/// driver's kernel module is loaded.
fn no_driver(devices: usize, kernel: &Path) -> String {
    match (devices, kernel.exists()) {
        (_, true) => "driver: the host has one, its library (libcuda.so.1) is not here: start the container with \
                      `--gpus all` and NVIDIA's container toolkit"
            .to_string(),
        (0, false) => "driver: none, and no NVIDIA GPU was found: train on the CPU (--device cpu)".to_string(),
        (devices, false) => {
            format!("driver: none for {devices} NVIDIA GPUs: install NVIDIA's driver, 580 or later \
                     for CUDA 13")
        }
    }
}

/// Number of NVIDIA display devices on the bus.
fn nvidia_devices(bus: &Path) -> usize {
    let is = |device: PathBuf, file: &str, prefix: &str| {
        fs::read_to_string(device.join(file)).is_ok_and(|text| text.trim().starts_with(prefix))
    };
    let devices = gsplit_store::entries(bus).unwrap_or_default().into_iter();
    devices
        .filter(|device| {
            is(device.clone(), "vendor", "0x10de") && is(device.clone(), "class", "0x03")
        })
        .count()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_lack_has_its_advice() {
        let folder = std::env::temp_dir();
        assert!(no_driver(0, Path::new("/nowhere")).contains("--device cpu"));
        assert!(no_driver(2, Path::new("/nowhere")).contains("install"));
        assert!(no_driver(0, &folder).contains("--gpus all"));
        assert!(too_new((13, 0), (12, 8)).is_some_and(|line| line.contains("CUDA 12")));
        assert_eq!(too_new((12, 9), (12, 4)), None);
        assert!(little_shm(64 << 20, 4).is_some_and(|line| line.contains("--shm-size")));
        assert_eq!((little_shm(64 << 20, 1), little_shm(1 << 30, 8)), (None, None));
    }

    #[test]
    fn devices_are_counted_by_their_class() {
        let bus = tempfile::tempdir().unwrap();
        for (name, vendor, class) in
            [("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300"), ("c", "0x1002", "0x030000")]
        {
            let device = bus.path().join(name);
            fs::create_dir(&device).unwrap();
            fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
            fs::write(device.join("class"), format!("{class}\n")).unwrap();
        }
        assert_eq!(nvidia_devices(bus.path()), 1);
        assert_eq!(nvidia_devices(Path::new("/nowhere")), 0);
    }
}
