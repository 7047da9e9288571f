//! Errors of GPUs.

use crate::error::KernelError;

/// An operation of a GPU that failed; the GPU may not be usable any more.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GpuError {
    /// A library that is not installed, or not found.
    #[error("{library} was not found: {remedy}")]
    Missing {
        /// Name of the library.
        library: &'static str,
        /// Remedy, for the user.
        remedy: &'static str,
    },
    /// A driver that cannot run the code that is compiled for it.
    #[error("NVIDIA's driver runs CUDA up to {}.{}, but {by} needs {}.{} or later: update the driver", driver.0, driver.1, needed.0, needed.1)]
    OldDriver {
        /// The newest CUDA that it runs, e.g. (12, 4).
        driver: (u32, u32),
        /// CUDA version that is needed.
        needed: (u32, u32),
        /// The library that needs it.
        by: &'static str,
    },
    /// A device that does not exist.
    #[error(
        "GPU {ordinal}: this machine shows {devices} (CUDA_VISIBLE_DEVICES may hide some); `gsplit \
         doctor` lists them"
    )]
    NoDevice {
        /// Number of the GPU, from 0.
        ordinal: usize,
        /// How many there are.
        devices: usize,
    },
    /// A device that has no memory pools.
    #[error(
        "GPU {ordinal} has no memory pools: a driver of CUDA 11.2 or newer is needed; some virtual \
         GPUs have none, take another"
    )]
    NoPools {
        /// Number of the GPU, from 0.
        ordinal: usize,
    },
    /// Memory that the device does not have.
    #[error("GPU {ordinal} is out of memory: {needed_mib} MiB asked for, {free_mib} MiB free")]
    OutOfMemory {
        /// Number of the GPU, from 0.
        ordinal: usize,
        /// Memory that was asked for.
        needed_mib: u64,
        /// Memory that was left.
        free_mib: u64,
    },
    /// A call that the driver, NVRTC or NCCL refused.
    #[error("{call} failed: {reason}")]
    Call {
        /// The function.
        call: &'static str,
        /// The driver's reason.
        reason: String,
    },
    /// A kernel that did not compile.
    #[error("kernels of {module} do not compile for {architecture}: {log}")]
    Compile {
        /// The operation.
        module: &'static str,
        /// Architecture, e.g. `sm_90`.
        architecture: String,
        /// The compiler's first error.
        log: String,
    },
    /// Inputs that are invalid.
    #[error(transparent)]
    Input(#[from] KernelError),
}
