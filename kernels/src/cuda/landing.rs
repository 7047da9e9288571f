//! Pinned host memory for small copies from a GPU, followed by room for copies to the GPU (`staging.rs`) and for
//! numbers that are read later (`late.rs`).
//!
//! Copies to it are made in the stream's order while the host goes on; each copy to other memory waits for the stream.
//! The memory is pinned at the start: pinning waits for the whole GPU, where NCCL may be waiting for another rank.
//!
//! Unsafe code of this file: calls of the driver's C functions.
#![allow(unsafe_code)]

use std::ffi::c_void;

use cudarc::driver::{result, sys};

use super::GpuError;
use super::driver::refused;
use super::late::Late;
use super::staging::Staging;

/// The memory, until [`Landing::free`].
#[derive(Debug)]
pub(super) struct Landing(usize);

impl Landing {
    /// Length of the part for copies to the host.
    pub(super) const BYTES: usize = 64 << 10;

    /// Allocates it for the GPU whose context is the calling thread's.
    pub(super) fn new() -> Result<Self, GpuError> {
        // SAFETY: any number of bytes may be asked for.
        let start =
            unsafe { result::malloc_host(Self::BYTES + Staging::BYTES + Late::BYTES, sys::CU_MEMHOSTALLOC_PORTABLE) };
        start.map_err(refused("cuMemHostAlloc")).map(|start| Self(start as usize))
    }

    /// Address of its first byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.0 as *mut u8
    }

    /// The part for copies to the GPU; freed with this.
    pub(super) fn staging(&self) -> Staging {
        Staging::at(self.0 + Self::BYTES)
    }

    /// The part for numbers that are read later; freed with this.
    pub(super) fn late(&self) -> Late {
        Late::at(self.0 + Self::BYTES + Staging::BYTES)
    }

    /// Frees it; the context is the calling thread's.
    ///
    /// # Safety
    /// No copy to it is under way, and it is not used any more.
    pub(super) unsafe fn free(&mut self) {
        // SAFETY: as the caller promises.
        let _ = unsafe { result::free_host(self.0 as *mut c_void) };
    }
}
