//! GPUs for tests on machines without one. They emulate the calls that gsplit makes, and no others.
//!
//! ```text
//! emulated/     a GPU of the kernels' library, run by the host
//! fake/         CUDA's driver, NCCL and torch's CUDA part, for programs to find
//! by_host.rs    ranks that move nothing from GPU to GPU
//! ```

mod by_host;
mod emulated;
mod fake;

pub use by_host::ByHost;
pub use emulated::{Emulation, GpuCounts, accesses, counts, emulated, under_test};
pub use fake::{LIBRARIES, give_fake_cuda, give_fake_gpus, give_late_gpus, happened};
