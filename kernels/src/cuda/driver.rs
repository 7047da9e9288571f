//! A GPU through the CUDA driver.
//!
//! The context is the device's primary one, which torch uses too, and the first stream is the null
//! stream, on which torch launches: launches of both happen in the order of the calls. Memory comes
//! from the driver's own pool (`pool.rs`), in stream order. Empty copies are skipped: the driver
//! refuses some of them.
//!
//! Other processes of the host open memory by a handle of 64 bytes (CUDA IPC, on Linux). The driver
//! gives handles only for memory of `cuMemAlloc`, not of its pool. Such memory is taken in whole
//! blocks of 2 MiB, because a handle opens all that is in its blocks. A process cannot open its own
//! handles. The owner frees the memory after all others have closed it. Where two processes do not
//! see the same devices (`CUDA_VISIBLE_DEVICES`), or are in containers of their own, there is
//! nothing to ask the driver: it opens the handle or refuses. Why not memory by `cuMemCreate`: its
//! file descriptors need a socket between each two processes.
//!
//! Unsafe code of this file: calls of the driver's C functions.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::backend::{Argument, Arriving, Backend, Kernel, Shape};
use super::device::Device;
use super::event::Event;
use super::late::{InSlot, Late};
use super::staging::Staging;
use super::{GpuError, device, pool};

/// Most host memory that is registered by one call: drivers refuse 512 GiB at once.
const PIECE: usize = if cfg!(test) { 1 << 20 } else { 64 << 30 };
/// Size of the blocks of device memory that the driver exports as a whole.
const BLOCK: usize = 2 << 20;
/// Pinned host memory for small copies from a GPU, which are made in the stream's order; each copy
/// to other memory waits for the stream. It is pinned at the start: pinning waits for the whole
/// GPU, where NCCL may be waiting for another rank.
const LANDING: usize = 64 << 10;
/// Bytes of a page of host memory.
const PAGE: usize = 4096;

#[derive(Debug)]
pub(super) struct Driver {
    device: Arc<Device>,
    stream: sys::CUstream,
    /// Whether this owns the stream and destroys it.
    own: bool,
    /// Start of the pinned memory: [`LANDING`] bytes, which the lock is for, then the memory of the
    /// next two.
    landing: Mutex<usize>,
    /// Source of copies to the device.
    staging: Mutex<Staging>,
    /// Target of copies whose values are read later.
    late: Late,
}

// SAFETY: as for `Device`; launches of one stream from several threads happen in some order.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

impl Driver {
    pub(super) fn open(ordinal: usize) -> Result<Arc<Self>, GpuError> {
        let device = Device::open(ordinal)?;
        let driver = Self::null(device)?;
        pool::keep(driver.device.handle)?;
        Ok(Arc::new(driver))
    }

    /// The stream behind another [`Gpu`](super::Gpu) of the driver.
    fn of(backend: &dyn Backend) -> Result<&Self, GpuError> {
        let unlike =
            || GpuError::Call { call: "another GPU", reason: "it is not the driver's".into() };
        (backend as &dyn Any).downcast_ref().ok_or_else(unlike)
    }

    /// On the null stream.
    fn null(device: Arc<Device>) -> Result<Self, GpuError> {
        let bytes = LANDING + Staging::BYTES + Late::BYTES;
        // SAFETY: any number of bytes may be asked for.
        let start = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        let start = start.map_err(refused("cuMemHostAlloc"))? as usize;
        let (staging, late) =
            (Mutex::new(Staging::at(start + LANDING)), Late::at(start + LANDING + Staging::BYTES));
        Ok(Self {
            device,
            stream: result::stream::null(),
            own: false,
            landing: Mutex::new(start),
            staging,
            late,
        })
    }

    /// Memory that `take`, by the driver's `call`, finds. If it finds none at first, memory that is
    /// cached here and by torch goes back to the device.
    fn find(
        &self,
        bytes: usize,
        call: &'static str,
        take: impl Fn() -> Result<u64, DriverError>,
    ) -> Result<u64, GpuError> {
        let take = || match take() {
            Ok(address) => Ok(Some(address)),
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Ok(None),
            Err(error) => Err(refused(call)(error)),
        };
        self.enter()?;
        if let Some(address) = take()? {
            return Ok(address);
        }
        self.synchronise()?;
        self.device.let_others_free()?;
        pool::reclaim(self.device.handle)?;
        take()?.ok_or_else(|| {
            let (free, ordinal) = (self.memory().map_or(0, |(free, _)| free), self.device.ordinal);
            GpuError::OutOfMemory {
                ordinal,
                needed_mib: (bytes >> 20) as u64,
                free_mib: free >> 20,
            }
        })
    }

    /// Starts to copy `parts`, one after the other, to host memory from `to` on.
    ///
    /// # Safety
    /// `to` has room for all parts and stays valid until the stream has been waited for.
    unsafe fn copy_down(&self, parts: &[(u64, usize)], mut to: *mut u8) -> Result<(), GpuError> {
        for &(mut address, mut bytes) in parts {
            while bytes > 0 {
                // Either may be pinned host memory.
                let piece = at_once(to as usize, at_once(address as usize, bytes));
                // SAFETY: as the caller says; the slice on the device is as long.
                unsafe {
                    let copied =
                        sys::cuMemcpyDtoHAsync_v2(to.cast(), address, piece, self.stream).result();
                    copied.map_err(refused("cuMemcpyDtoHAsync"))?;
                    to = to.add(piece);
                }
                (address, bytes) = (address + piece as u64, bytes - piece);
            }
        }
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.enter().is_err() {
            return;
        }
        // Copies from it may be under way.
        let _ = self.synchronise();
        self.staging.get_mut().unwrap_or_else(PoisonError::into_inner).end();
        // SAFETY: no copy from or to it is under way, unless the stream has failed.
        let _ = unsafe {
            result::free_host(
                *self.landing.get_mut().unwrap_or_else(PoisonError::into_inner) as *mut c_void
            )
        };
        if self.own {
            self.device.remove_stream(self.stream);
            // SAFETY: the stream was created by `side_stream`; the driver finishes its work first.
            let _ = unsafe { result::stream::destroy(self.stream) };
        }
    }
}

impl Backend for Driver {
    fn alloc(&self, bytes: usize) -> Result<u64, GpuError> {
        // SAFETY: the stream is the context's.
        self.find(bytes, "cuMemAllocAsync", || unsafe { result::malloc_async(self.stream, bytes) })
    }

    fn free(&self, address: u64, _bytes: usize) {
        if self.enter().is_ok() {
            // SAFETY: `DeviceBuffer` frees each allocation once, after the launches that use it.
            let _ = unsafe { result::free_async(address, self.stream) };
        }
    }

    fn alloc_for_others(&self, bytes: usize) -> Result<u64, GpuError> {
        // SAFETY: any number of bytes may be asked for.
        self.find(bytes, "cuMemAlloc", || unsafe {
            result::malloc_sync(bytes.next_multiple_of(BLOCK))
        })
    }

    fn free_for_others(&self, address: u64, _bytes: usize) {
        // The driver does not free in any stream's order.
        if self.synchronise_all().is_ok() {
            // SAFETY: `DeviceBuffer` frees each allocation once.
            let _ = unsafe { result::free_sync(address) };
        }
    }

    fn export(&self, address: u64) -> Result<[u8; 64], GpuError> {
        self.enter()?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: the handle is written; the driver knows the memory or says that it does not.
        let exported = unsafe { sys::cuIpcGetMemHandle(&mut handle, address) }.result();
        exported
            .map_err(refused("cuIpcGetMemHandle"))
            .map(|()| handle.reserved.map(|byte| byte as u8))
    }

    fn import(&self, handle: [u8; 64]) -> Result<u64, GpuError> {
        self.enter()?;
        let (handle, mut address) =
            (sys::CUipcMemHandle { reserved: handle.map(|byte| byte as c_char) }, 0);
        let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        // SAFETY: the address is written; the driver knows the handle or says that it does not.
        let opened = unsafe { sys::cuIpcOpenMemHandle_v2(&mut address, handle, flags) }.result();
        opened.map_err(refused("cuIpcOpenMemHandle")).map(|()| address)
    }

    fn close(&self, address: u64) {
        if self.synchronise_all().is_ok() {
            // SAFETY: `DeviceBuffer` closes imported memory once.
            let _ = unsafe { sys::cuIpcCloseMemHandle(address) };
        }
    }

    fn upload(&self, address: u64, from: &[u8]) -> Result<(), GpuError> {
        self.enter()?;
        let (mut address, mut from) = (address, from);
        // Pinned memory is copied directly.
        while from.len() >= Staging::BYTES && self.is_of_host(from.as_ptr() as u64) {
            let (piece, rest) = from.split_at(at_once(from.as_ptr() as usize, from.len()));
            // SAFETY: the slice on the device is as long.
            let copied = unsafe { result::memcpy_htod_async(address, piece, self.stream) };
            copied.map_err(refused("cuMemcpyHtoDAsync"))?;
            (address, from) = (address + piece.len() as u64, rest);
        }
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the slice on the device is as long; the stream is alive.
        unsafe { staging.upload(self.stream, address, from) }
    }

    fn download(&self, parts: &[(u64, usize)], to: &mut [u8]) -> Result<(), GpuError> {
        self.enter()?;
        if to.len() > LANDING {
            // SAFETY: the copies are awaited, those before one that failed too: `to` may be pinned.
            let copied = unsafe { self.copy_down(parts, to.as_mut_ptr()) };
            return self.synchronise().and(copied);
        }
        let landing = self.landing.lock().unwrap_or_else(PoisonError::into_inner);
        let start = *landing as *mut u8;
        // SAFETY: the memory is this lock's, and is there as long as the driver; as many bytes are
        // written as are read.
        unsafe {
            self.copy_down(parts, start)?;
            self.synchronise()?;
            std::ptr::copy_nonoverlapping(start, to.as_mut_ptr(), to.len());
        }
        Ok(())
    }

    fn download_later(&self, parts: &[(u64, usize)]) -> Result<Box<dyn Arriving>, GpuError> {
        self.enter()?;
        let bytes = parts.iter().map(|(_, bytes)| bytes).sum();
        let Some((slot, start)) = self.late.take(bytes) else {
            let mut now = vec![0; bytes];
            self.download(parts, &mut now)?;
            return Ok(Box::new(now));
        };
        // SAFETY: the slot lives as long as this, which the returned value keeps; nothing else uses
        // it. The stream is alive.
        let event =
            unsafe { self.copy_down(parts, start).and_then(|()| Event::record(self.stream)) };
        let event = event.inspect_err(|_| {
            let _ = self.synchronise();
            self.late.give_back(slot);
        })?;
        Ok(Box::new(InSlot {
            device: self.device.clone(),
            late: self.late.clone(),
            slot,
            bytes,
            event,
        }))
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), GpuError> {
        self.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both slices are as long.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream) }
            .map_err(refused("cuMemcpyDtoDAsync"))
    }

    fn copy_across(
        &self,
        from: u64,
        source: &dyn Backend,
        to: u64,
        bytes: usize,
    ) -> Result<(), GpuError> {
        let (here, there) = (self.device.context, Self::of(source)?.device.context);
        if here == there || bytes == 0 {
            return self.copy(from, to, bytes);
        }
        self.enter()?;
        // SAFETY: both slices are as long. The driver finds the way, with peer access or without.
        let copied = unsafe { sys::cuMemcpyPeerAsync(to, here, from, there, bytes, self.stream) };
        copied.result().map_err(refused("cuMemcpyPeerAsync"))
    }

    fn zero(&self, address: u64, bytes: usize) -> Result<(), GpuError> {
        self.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the slice is as long.
        unsafe { result::memset_d8_async(address, 0, bytes, self.stream) }
            .map_err(refused("cuMemsetD8Async"))
    }

    fn map_host(&self, bytes: &[u8]) -> Result<u64, GpuError> {
        self.enter()?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // Files are mapped read-only, which the driver has to know.
        if self.device.registers_read_only {
            flags |= sys::CU_MEMHOSTREGISTER_READ_ONLY;
        }
        let start = bytes.as_ptr() as usize;
        let register = |(at, piece): (usize, usize)| {
            self.enter()?;
            // SAFETY: the memory outlives its registration, which `MappedHost` ends.
            let registered =
                unsafe { sys::cuMemHostRegister_v2(at as *mut c_void, piece, flags) }.result();
            registered.map_err(refused("cuMemHostRegister"))
        };
        // In parallel: 64 GiB take about 6 s.
        let registered: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = pieces(start, bytes.len())
                .map(|piece| (piece, scope.spawn(move || register(piece))))
                .collect();
            let died = |_| {
                Err(GpuError::Call {
                    call: "cuMemHostRegister",
                    reason: "its thread panicked".into(),
                })
            };
            threads
                .into_iter()
                .map(|((at, _), thread)| (at, thread.join().unwrap_or_else(died)))
                .collect()
        });
        if let Some(error) = registered.iter().find_map(|(_, outcome)| outcome.clone().err()) {
            registered
                .iter()
                .filter(|(_, outcome)| outcome.is_ok())
                .for_each(|&(at, _)| unregister(at));
            return Err(error);
        }
        let address =
            self.host_address(start).inspect_err(|_| self.unmap_host(start, bytes.len()))?;
        if bytes.len() > PIECE && address != start as u64 {
            self.unmap_host(start, bytes.len());
            let reason = "this GPU does not read host memory at the host's addresses".to_string();
            return Err(GpuError::Call { call: "cuMemHostGetDevicePointer", reason });
        }
        Ok(address)
    }

    fn host_address(&self, start: usize) -> Result<u64, GpuError> {
        self.enter()?;
        let mut address = 0;
        // SAFETY: the driver knows the memory or says that it does not.
        let found = unsafe {
            sys::cuMemHostGetDevicePointer_v2(&mut address, start as *mut c_void, 0).result()
        };
        found.map_err(refused("cuMemHostGetDevicePointer")).map(|()| address)
    }

    fn unmap_host(&self, start: usize, bytes: usize) {
        if bytes > 0 && self.synchronise_all().is_ok() {
            pieces(start, bytes).for_each(|(at, _)| unregister(at));
        }
    }

    fn launch(&self, kernel: Kernel, shape: Shape, arguments: &[Argument]) -> Result<(), GpuError> {
        self.enter()?;
        let function = self.device.function(kernel)?;
        let pointer = |argument: &Argument| argument.bytes().as_ptr().cast_mut().cast::<c_void>();
        let mut arguments: Vec<*mut c_void> = arguments.iter().map(pointer).collect();
        let (grid, block) = ((shape.blocks, 1, 1), (shape.threads, 1, 1));
        // SAFETY: the arguments are of the kernel's types (tests compare their sizes), and the
        // caller has checked the memory that they point to.
        let launched = unsafe {
            result::launch_kernel(function, grid, block, shape.shared, self.stream, &mut arguments)
        };
        launched.map_err(refused(kernel.name))
    }

    fn synchronise_all(&self) -> Result<(), GpuError> {
        self.enter()?;
        device::synchronise()
    }

    fn synchronise(&self) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the stream is alive.
        unsafe { result::stream::synchronize(self.stream) }.map_err(refused("cuStreamSynchronize"))
    }

    fn multiprocessors(&self) -> u32 {
        self.device.multiprocessors
    }

    fn memory(&self) -> Result<(u64, u64), GpuError> {
        self.enter()?;
        let (free, total) = result::mem_get_info().map_err(refused("cuMemGetInfo"))?;
        Ok((free as u64, total as u64))
    }

    fn pool_bytes(&self) -> Result<u64, GpuError> {
        Ok(pool::bytes(self.device.handle)?.0)
    }

    fn side_stream(&self) -> Result<Arc<dyn Backend>, GpuError> {
        self.enter()?;
        let mut side = Self::null(self.device.clone())?;
        let kind = result::stream::StreamKind::NonBlocking;
        side.stream = result::stream::create(kind).map_err(refused("cuStreamCreate"))?;
        side.own = true;
        self.device.add_stream(side.stream);
        Ok(Arc::new(side))
    }

    fn wait_for(&self, other: &dyn Backend) -> Result<(), GpuError> {
        let other = Self::of(other)?;
        other.enter()?;
        // SAFETY: both streams are alive.
        unsafe {
            let event = Event::record(other.stream)?;
            self.enter()?;
            event.hold(self.stream)
        }
    }

    fn enter(&self) -> Result<(), GpuError> {
        self.device.enter()
    }

    fn stream(&self) -> u64 {
        self.stream as u64
    }

    fn ordinal(&self) -> Option<usize> {
        Some(self.device.ordinal)
    }

    fn reach(&self, other: &dyn Backend) -> Result<bool, GpuError> {
        let (other, mut reaches) = (&Self::of(other)?.device, 0);
        self.enter()?;
        // SAFETY: both devices exist.
        let asked =
            unsafe { sys::cuDeviceCanAccessPeer(&mut reaches, self.device.handle, other.handle) }
                .result();
        asked.map_err(refused("cuDeviceCanAccessPeer"))?;
        if reaches == 0 {
            return Ok(false);
        }
        pool::show(other.handle, self.device.handle)?;
        // SAFETY: the other context is alive.
        match unsafe { sys::cuCtxEnablePeerAccess(other.context, 0) } {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(true),
            enabled => enabled.result().map(|()| true).map_err(refused("cuCtxEnablePeerAccess")),
        }
    }

    fn is_of_host(&self, address: u64) -> bool {
        let (mut kind, which) = (0u32, sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
        // SAFETY: the kind is a u32; the driver knows the address or says that it does not.
        let asked = unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), which, address) };
        asked.result().is_ok() && kind == sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32
    }
}

/// Start and length of each piece of `bytes` from `start` on: no page is in two.
fn pieces(start: usize, bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    let (end, mut at) = (start + bytes, start);
    std::iter::from_fn(move || {
        let from = at;
        at = end.min((from + PIECE) & !(PAGE - 1));
        (from < end).then(|| (from, at - from))
    })
}

/// How many of `bytes` from `start` on one copy may take: up to the end of one registration or
/// allocation, or all if they are not pinned. The driver refuses a copy that spans several
/// registrations (seen with driver 580).
fn at_once(start: usize, bytes: usize) -> usize {
    use sys::CUpointer_attribute::{
        CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
    };
    let ask = |which| {
        let mut value = 0usize;
        // SAFETY: both are as wide as a usize; the driver knows the address or says that it does
        // not.
        let asked =
            unsafe { sys::cuPointerGetAttribute((&raw mut value).cast(), which, start as u64) };
        asked.result().ok().map(|()| value)
    };
    match (ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE)) {
        (Some(first), Some(size)) if first <= start && start < first + size => {
            bytes.min(first + size - start)
        }
        _ => bytes,
    }
}

/// Ends a registration by `map_host` of memory that no stream reads any more, in the calling
/// thread's context.
fn unregister(at: usize) {
    // SAFETY: as above.
    let _ = unsafe { sys::cuMemHostUnregister(at as *mut c_void) };
}

pub(super) fn refused(call: &'static str) -> impl Fn(DriverError) -> GpuError {
    move |error| {
        let said = |text: Result<&std::ffi::CStr, DriverError>| {
            text.ok().map(|text| text.to_string_lossy().into_owned())
        };
        let reason = said(error.error_string()).unwrap_or_else(|| format!("{:?}", error.0));
        GpuError::Call { call, reason }
    }
}
