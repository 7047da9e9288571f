//! Survey of a machine's CUDA, for people who want to know why it does not work.
//!
//! Returns: libraries with versions and paths, GPUs, the links between them, and the speed of
//! copies; for each missing part, the error with its remedy. Cost: well under a second, and a
//! context on each GPU whose copies are timed.

use std::path::PathBuf;
use std::time::Instant;

use super::{Gpu, GpuError, compile, facts, library};

/// A library of CUDA's that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaLibrary {
    /// Version, e.g. (13, 0); for the driver, the newest CUDA that it can run.
    pub version: Option<(u32, u32)>,
    /// The file.
    pub path: Option<PathBuf>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuFacts {
    /// Name given by NVIDIA.
    pub name: String,
    /// Compute capability, e.g. (9, 0).
    pub compute_capability: (u32, u32),
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory that a block of any kernel may use.
    pub shared_bytes: u32,
    /// Shared memory of a block for kernels that request more.
    pub most_shared_bytes: u32,
    /// Whether mapped files can be pinned; otherwise the parts that GPUs read in host memory are
    /// copied first.
    pub pins_mapped_files: bool,
    /// Whether it reads pinned memory at the host's addresses, as needed for more than 64 GiB.
    pub host_addresses: bool,
}

/// How one GPU reaches the memory of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Directly, over NVLink (recognised by atomic operations, which PCIe does not carry).
    NvLink,
    /// Directly, over PCIe.
    Pcie,
    /// Not directly: copies go through the host's memory.
    ThroughHost,
}

/// CUDA as this process finds it.
#[derive(Debug)]
pub struct CudaSurvey {
    /// The driver.
    pub driver: Result<CudaLibrary, GpuError>,
    /// NVRTC, which compiles the kernels.
    pub compiler: Result<CudaLibrary, GpuError>,
    /// NCCL, which joins GPUs.
    pub nccl: Result<CudaLibrary, GpuError>,
    /// The GPUs that CUDA_VISIBLE_DEVICES allows, by number.
    pub gpus: Result<Vec<GpuFacts>, GpuError>,
}

impl CudaSurvey {
    /// Looks for everything.
    pub fn look() -> Self {
        // Encodings of versions, e.g. 13000 for CUDA, and 22703 or, before 2.9, 2804 for NCCL.
        let cuda = |number: i32| (number as u32 / 1000, number as u32 % 1000 / 10);
        let nccl = |number: i32| match number as u32 {
            number @ 10_000.. => (number / 10_000, number / 100 % 100),
            number => (number / 1000, number / 100 % 10),
        };
        let ask = |file: &str, function: &str, shape: &dyn Fn(i32) -> (u32, u32)| CudaLibrary {
            version: library::number(file, function).map(shape),
            path: library::loaded(file),
        };
        let compiler = |()| {
            let (major, minor) = compile::version();
            CudaLibrary {
                version: Some((major as u32, minor as u32)),
                path: library::loaded("libnvrtc.so"),
            }
        };
        Self {
            driver: library::driver().map(|()| ask("libcuda.so", "cuDriverGetVersion", &cuda)),
            compiler: library::compiler().map(compiler),
            nccl: library::nccl().map(|()| ask("libnccl.so", "ncclGetVersion", &nccl)),
            gpus: facts::count().and_then(|count| (0..count).map(facts::describe).collect()),
        }
    }

    /// How GPU `from` reaches GPU `to`, another one.
    pub fn link(&self, from: usize, to: usize) -> Result<Link, GpuError> {
        facts::link(from, to)
    }
}

/// Speed of copies from pinned host memory to `gpu`, in bytes per second: the best of a few of 64
/// MiB.
pub fn pinned_copy_speed(gpu: &Gpu) -> Result<f64, GpuError> {
    const WORDS: usize = 8 << 20;
    let host = vec![1u64; WORDS];
    let mut device = gpu.alloc::<u64>(WORDS)?;
    let _pinned = gpu.map_host(&host)?;
    let mut best = f64::INFINITY;
    for _ in 0..4 {
        gpu.synchronise()?;
        let started = Instant::now();
        device.slice_mut().upload(gpu, &host)?;
        gpu.synchronise()?;
        best = best.min(started.elapsed().as_secs_f64());
    }
    Ok(size_of_val(host.as_slice()) as f64 / best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_says_what_to_do() {
        let survey = CudaSurvey::look();
        for found in [&survey.driver, &survey.compiler, &survey.nccl] {
            match found {
                Ok(library) => {
                    assert!(library.path.as_ref().is_some_and(|path| path.exists()), "{library:?}")
                }
                Err(error) => assert!(error.to_string().contains(": "), "{error}"),
            }
        }
        assert!(survey.driver.is_ok() || survey.gpus.is_err());
        if let Ok(compiler) = survey.compiler {
            assert!(compiler.version.is_some_and(|version| version >= (11, 0)), "{compiler:?}");
        }
        assert!(pinned_copy_speed(&Gpu::under_test(0)).unwrap() > 0.0);
    }
}
