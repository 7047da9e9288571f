//! The driver's memory pool of a device.
//!
//! Idea: freed memory stays in the pool, so that a mini-batch's buffers are found again by the next. torch keeps what it frees
//! in a pool of its own; when either has too little the other may keep it, so before a device counts as out of memory both
//! give back what nobody uses ([`reclaim`]). A device whose memory others are to read shows them its whole pool.
//!
//! Unsafe code of this file: calls of the driver's C functions.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use cudarc::driver::{result, sys};

use super::GpuError;
use super::driver::refused;

static OTHERS: OnceLock<fn()> = OnceLock::new();

/// `give_back` lets go of device memory that others in this process keep for later: it is called before an allocation fails,
/// by any thread. The first one given counts.
pub fn before_out_of_memory(give_back: fn()) {
    let _ = OTHERS.set(give_back);
}

fn of(device: sys::CUdevice) -> Result<sys::CUmemoryPool, GpuError> {
    // SAFETY: the device exists.
    unsafe { result::device::get_default_mem_pool(device) }.map_err(refused("cuDeviceGetDefaultMemPool"))
}

/// Memory that is freed stays in the pool.
pub(super) fn keep(device: sys::CUdevice) -> Result<(), GpuError> {
    let mut all = u64::MAX;
    let value: *mut u64 = &mut all;
    let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the attribute is a u64.
    unsafe { result::mem_pool::set_attribute(of(device)?, attribute, value.cast()) }
        .map_err(refused("cuMemPoolSetAttribute"))
}

/// The device gets back what nobody uses, of the pool and of what else keeps memory.
pub(super) fn reclaim(device: sys::CUdevice) -> Result<(), GpuError> {
    if let Some(give_back) = OTHERS.get() {
        give_back();
    }
    // SAFETY: what is in use stays.
    unsafe { sys::cuMemPoolTrimTo(of(device)?, 0) }.result().map_err(refused("cuMemPoolTrimTo"))
}

/// Lets `reader` read and write what `device` has allocated or will. (`cuCtxEnablePeerAccess` is for memory outside of pools.)
pub(super) fn show(device: sys::CUdevice, reader: sys::CUdevice) -> Result<(), GpuError> {
    let location = sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: reader };
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let shown = sys::CUmemAccessDesc { location, flags };
    // SAFETY: the description is one long.
    unsafe { sys::cuMemPoolSetAccess(of(device)?, &shown, 1) }.result().map_err(refused("cuMemPoolSetAccess"))
}
