//! Memory of a device, by the driver: its pool, and memory that other processes read.
//!
//! Idea: freed memory stays in the pool, so that the next mini-batch finds its buffers again. torch's allocator caches
//! its free memory too. Either may hold memory that the other needs, so both give back unused memory before a device
//! counts as out of memory: [`reclaim`] asks torch for it, and torch calls [`make_room`]. A device whose memory others
//! are to read gives them access to its whole pool.
//! Why not torch's `backend:cudaMallocAsync`, which takes tensors from this pool: it locks all GPUs at each allocation,
//! and lets streams wait for each other again.
//!
//! Other processes of the host open memory by a handle of 64 bytes (CUDA IPC, on Linux). The driver gives handles only
//! for memory of `cuMemAlloc`, not of its pool. Such memory is taken in whole blocks of 2 MiB, because a handle opens
//! all that is in its blocks. A process cannot open its own handles. The owner frees the memory after all others have
//! closed it. Where two processes do not see the same devices (`CUDA_VISIBLE_DEVICES`), or are in containers of their
//! own, there is nothing to ask the driver: it opens the handle or refuses. Why not memory by `cuMemCreate`: its file
//! descriptors need a socket between each two processes.
//!
//! Unsafe code of this file: calls of the driver's C functions.
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::sync::OnceLock;

use cudarc::driver::result::DriverError;
use cudarc::driver::{result, sys};

use super::GpuError;
use super::device::Device;
use super::driver::refused;

/// Size of the blocks that the driver exports as a whole.
pub(super) const BLOCK: usize = 2 << 20;

static OTHERS: OnceLock<fn()> = OnceLock::new();

/// Registers `give_back`, which frees device memory that other code in this process caches: it is called before an
/// allocation fails, by any thread. Only the first call has an effect.
pub fn before_out_of_memory(give_back: fn()) {
    let _ = OTHERS.set(give_back);
}

fn of(device: sys::CUdevice) -> Result<sys::CUmemoryPool, GpuError> {
    // SAFETY: the device exists.
    unsafe { result::device::get_default_mem_pool(device) }.map_err(refused("cuDeviceGetDefaultMemPool"))
}

/// Configures the pool to keep freed memory, and never to make a stream wait for another's free.
pub(super) fn keep(device: sys::CUdevice) -> Result<(), GpuError> {
    use sys::CUmemPool_attribute::{
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
    };
    let (pool, mut all, mut no) = (of(device)?, u64::MAX, 0i32);
    // SAFETY: the one attribute is a u64, the other an int.
    unsafe {
        result::mem_pool::set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (&raw mut all).cast())
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

/// Gives the unused memory of GPU `ordinal`'s pool back to the GPU if that exceeds the free memory, or nearly nothing is free.
///
/// torch calls this whenever the memory that it caches has no room for a tensor, with a lock that others need in order
/// to allocate, and does not say how much it is about to ask the driver for. So this calls nothing but the driver, and
/// does not trim the pool if that would at most double the free memory.
///
/// # Errors
/// Errors of the GPU.
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
    use sys::CUmemPool_attribute::{CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT};
    let (pool, mut reserved, mut used) = (of(device)?, 0u64, 0u64);
    // SAFETY: both attributes are u64.
    unsafe {
        result::mem_pool::get_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, (&raw mut reserved).cast())
            .and_then(|()| {
                result::mem_pool::get_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, (&raw mut used).cast())
            })
            .map_err(refused("cuMemPoolGetAttribute"))?;
    }
    Ok((reserved, used))
}

fn trim(device: sys::CUdevice) -> Result<(), GpuError> {
    // SAFETY: memory in use stays.
    unsafe { sys::cuMemPoolTrimTo(of(device)?, 0) }.result().map_err(refused("cuMemPoolTrimTo"))
}

/// Lets `reader` read and write all memory from the pool of `device`, now and later. (`cuCtxEnablePeerAccess` is for the rest.)
pub(super) fn show(device: sys::CUdevice, reader: sys::CUdevice) -> Result<(), GpuError> {
    let location = sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: reader };
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let shown = sys::CUmemAccessDesc { location, flags };
    // SAFETY: the description is one long.
    unsafe { sys::cuMemPoolSetAccess(of(device)?, &shown, 1) }.result().map_err(refused("cuMemPoolSetAccess"))
}

/// Allocates memory outside any pool, in the calling thread's context, if there is enough. Other processes may open whole blocks.
pub(super) fn take_alone(bytes: usize) -> Result<Option<u64>, GpuError> {
    // SAFETY: the thread has a context.
    match unsafe { result::malloc_sync(bytes) } {
        Ok(address) => Ok(Some(address)),
        Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Ok(None),
        Err(error) => Err(refused("cuMemAlloc")(error)),
    }
}

/// Frees memory of [`take_alone`], which is not in use or open any more.
pub(super) fn free_alone(address: u64) {
    // SAFETY: `DeviceBuffer` frees each allocation once.
    let _ = unsafe { result::free_sync(address) };
}

/// Handle by which other processes open the memory at `address`.
pub(super) fn export(address: u64) -> Result<[u8; 64], GpuError> {
    let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
    // SAFETY: the handle is written; the driver knows the memory or says that it does not.
    let exported = unsafe { sys::cuIpcGetMemHandle(&mut handle, address) }.result();
    exported.map_err(refused("cuIpcGetMemHandle")).map(|()| handle.reserved.map(|byte| byte as u8))
}

/// Opens another process's memory in the calling thread's context.
pub(super) fn import(handle: [u8; 64]) -> Result<u64, GpuError> {
    let (handle, mut address) = (sys::CUipcMemHandle { reserved: handle.map(|byte| byte as c_char) }, 0);
    let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
    // SAFETY: the address is written; the driver knows the handle or says that it does not.
    let opened = unsafe { sys::cuIpcOpenMemHandle_v2(&mut address, handle, flags) }.result();
    opened.map_err(refused("cuIpcOpenMemHandle")).map(|()| address)
}

/// Closes memory of [`import`], which is not in use any more.
pub(super) fn close(address: u64) {
    // SAFETY: `DeviceBuffer` closes imported memory once.
    let _ = unsafe { sys::cuIpcCloseMemHandle(address) };
}
