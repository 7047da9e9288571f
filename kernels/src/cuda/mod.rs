//! GPUs: memory, streams, and kernels compiled when they are first needed.
//!
//! Each operation's folder has its kernels in `cuda.cu` and their launches in `cuda.rs`, next to
//! `cpu.rs`, with the same results. CUDA is found when a program runs: without a driver
//! [`Gpu::open`] returns an error that says so, and everything else works.
//!
//! ```text
//! gpu.rs        one GPU and stream          backend.rs    interface to the driver
//! buffer.rs     its memory                  driver.rs     the CUDA driver
//! module.rs     the kernels' sources        compile.rs    NVRTC, and a cache
//! device.cuh    shared code of kernels      library.rs    finding CUDA
//! table.cuh     ids and first positions     survey.rs     report of this machine's CUDA
//! nccl.rs       messages between GPUs       pool.rs       memory between uses
//! facts.rs      GPUs, unused                event.rs      points in a stream's work
//! device.rs     state shared by streams     late.rs       numbers that are read later
//! staging.rs    sources of copies to a GPU
//! ```

pub mod backend;
mod buffer;
mod compile;
mod device;
mod driver;
// The unit tests are a build of this crate other than the one that gpu-sim links, so they compile
// its backend themselves.
#[cfg(test)]
#[path = "../../../gpu-sim/src/emulated/mod.rs"]
mod emulated;
mod error;
mod event;
mod facts;
mod gpu;
mod late;
mod library;
mod module;
mod nccl;
mod pool;
mod staging;
mod survey;
#[cfg(test)]
mod tests;

pub(crate) use backend::{Argument, Kernel, Module, Shape, THREADS, arguments, pair};
pub use buffer::{DeviceBuffer, DeviceSlice, DeviceSliceMut, IpcHandle, MappedHost};
pub use error::GpuError;
pub use gpu::{Gpu, HostBytes, LateBytes};
pub use library::{before_cuda, load_torch_cuda};
pub(crate) use nccl::{NCCL_ID_BYTES, NcclEnd, NcclId, new_nccl_id};
pub use pool::{before_out_of_memory, make_room};
pub use survey::{CudaLibrary, CudaSurvey, GpuFacts, Link, pinned_copy_speed};
