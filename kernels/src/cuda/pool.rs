//! The pool of a device, by the driver.
//!
//! Idea: freed memory stays in the pool, so that the next mini-batch finds its buffers again.
//! torch's allocator caches its free memory too. Either may hold memory that the other needs, so
//! both give back unused memory before a device counts as out of memory: [`reclaim`] asks torch for
//! it, and torch calls [`make_room`]. A device whose memory others are to read gives them access to
//! its whole pool. Why not torch's `backend:cudaMallocAsync`, which takes tensors from this pool:
//! it locks all GPUs at each allocation, and lets streams wait for each other again.
//!
//! Unsafe code of this file: calls of the driver's C functions.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use cudarc::driver::{result, sys};

use super::GpuError;
use super::device::Device;
use super::driver::refused;

static OTHERS: OnceLock<fn()> = OnceLock::new();

/// Registers `give_back`, which frees device memory that other code in this process caches: it is
/// called before an allocation fails, by any thread. Only the first call has an effect.
pub fn before_out_of_memory(give_back: fn()) {
    let _ = OTHERS.set(give_back);
}

fn of(device: sys::CUdevice) -> Result<sys::CUmemoryPool, GpuError> {
    // SAFETY: the device exists.
    unsafe { result::device::get_default_mem_pool(device) }
        .map_err(refused("cuDeviceGetDefaultMemPool"))
}

/// Configures the pool to keep freed memory, and never to make a stream wait for another's free.
pub(super) fn keep(device: sys::CUdevice) -> Result<(), GpuError> {
    use sys::CUmemPool_attribute::{
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
    };
    let (pool, mut all, mut no) = (of(device)?, u64::MAX, 0i32);
    // SAFETY: the one attribute is a u64, the other an int.
    unsafe {
        result::mem_pool::set_attribute(
            pool,
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            (&raw mut all).cast(),
        )
        .and_then(|()| {
            let attribute = CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
            result::mem_pool::set_attribute(pool, attribute, (&raw mut no).cast())
        })
        .map_err(refused("cuMemPoolSetAttribute"))
    }
}

/// Gives unused memory back to the device, from other caches and from the pool of `device`.
pub(super) fn reclaim(device: sys::CUdevice) -> Result<(), GpuError> {
    if let Some(give_back) = OTHERS.get() {
        give_back();
    }
    trim(device)
}

/// Gives the unused memory of GPU `ordinal`'s pool back to the GPU if that exceeds the free memory,
/// or nearly nothing is free.
///
/// torch calls this whenever the memory that it caches has no room for a tensor, with a lock that
/// others need in order to allocate, and does not say how much it is about to ask the driver for.
/// So this calls nothing but the driver, and does not trim the pool if that would at most double
/// the free memory.
pub fn make_room(ordinal: usize) -> Result<(), GpuError> {
    const LITTLE: usize = 32;
    let Some(device) = Device::opened(ordinal) else { return Ok(()) };
    device.enter()?;
    let (free, total) = result::mem_get_info().map_err(refused("cuMemGetInfo"))?;
    let (reserved, used) = bytes(device.handle)?;
    if free >= total / LITTLE && free as u64 >= reserved.saturating_sub(used) {
        return Ok(());
    }
    device.let_others_free()?;
    trim(device.handle)
}

/// Bytes that the pool of `device` holds, and how many of them are in use.
pub(super) fn bytes(device: sys::CUdevice) -> Result<(u64, u64), GpuError> {
    use sys::CUmemPool_attribute::{
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
    };
    let pool = of(device)?;
    let ask = |attribute| {
        let mut value = 0u64;
        // SAFETY: both attributes are u64.
        unsafe { result::mem_pool::get_attribute(pool, attribute, (&raw mut value).cast()) }
            .map(|()| value)
            .map_err(refused("cuMemPoolGetAttribute"))
    };
    Ok((ask(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?, ask(CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?))
}

fn trim(device: sys::CUdevice) -> Result<(), GpuError> {
    // SAFETY: memory in use stays.
    unsafe { sys::cuMemPoolTrimTo(of(device)?, 0) }.result().map_err(refused("cuMemPoolTrimTo"))
}

/// Lets `reader` read and write all memory from the pool of `device`, now and later.
/// (`cuCtxEnablePeerAccess` is for the rest.)
pub(super) fn show(device: sys::CUdevice, reader: sys::CUdevice) -> Result<(), GpuError> {
    let location = sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: reader,
    };
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let shown = sys::CUmemAccessDesc { location, flags };
    // SAFETY: the description is one long.
    unsafe { sys::cuMemPoolSetAccess(of(device)?, &shown, 1) }
        .result()
        .map_err(refused("cuMemPoolSetAccess"))
}
