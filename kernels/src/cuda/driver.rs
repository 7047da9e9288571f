//! A GPU through the CUDA driver.
//!
//! The context is the device's primary one, which torch uses too, and the first stream is the null stream, on which torch
//! launches: what either launches there happens in the order of the calls. Memory comes from the driver's own pool (`pool.rs`), in
//! stream order. Copies of nothing are left out: the driver refuses some of them.
//!
//! Unsafe code of this file: calls of the driver's C functions.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::backend::{Argument, Backend, Kernel, Shape};
use super::device::Device;
use super::event::Event;
use super::landing::Landing;
use super::{GpuError, pool};

#[derive(Debug)]
pub(super) struct Driver {
    device: Arc<Device>,
    stream: sys::CUstream,
    /// Whether the stream is this one's to destroy.
    own: bool,
    /// Where small copies to the host land.
    landing: Mutex<Landing>,
}

// SAFETY: as for `Device`; launches of one stream from several threads happen in some order.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

impl Driver {
    pub(super) fn open(ordinal: usize) -> Result<Arc<Self>, GpuError> {
        let device = Arc::new(Device::open(ordinal)?);
        let landing = Mutex::new(Landing::new()?);
        let driver = Self { device, stream: result::stream::null(), own: false, landing };
        pool::keep(driver.device.handle)?;
        Ok(Arc::new(driver))
    }

    /// Memory, if there is as much.
    fn take(&self, bytes: usize) -> Result<Option<u64>, GpuError> {
        // SAFETY: the stream is the context's.
        match unsafe { result::malloc_async(self.stream, bytes) } {
            Ok(address) => Ok(Some(address)),
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Ok(None),
            Err(error) => Err(refused("cuMemAllocAsync")(error)),
        }
    }

    /// What `take` finds; what is kept for later here and by torch goes back to the device where it finds nothing at first.
    fn find(&self, bytes: usize, take: impl Fn() -> Result<Option<u64>, GpuError>) -> Result<u64, GpuError> {
        self.enter()?;
        if let Some(address) = take()? {
            return Ok(address);
        }
        self.synchronise()?;
        self.device.let_others_free()?;
        pool::reclaim(self.device.handle)?;
        take()?.ok_or_else(|| {
            let (free, ordinal) = (self.memory().map_or(0, |(free, _)| free), self.device.ordinal);
            GpuError::OutOfMemory { ordinal, needed_mib: (bytes >> 20) as u64, free_mib: free >> 20 }
        })
    }

    /// Starts to copy `parts`, one behind the other, to the host's memory from `to` on, which has room for them and is there until
    /// the stream has been waited for.
    ///
    /// # Safety
    /// As above.
    unsafe fn copy_down(&self, parts: &[(u64, usize)], mut to: *mut u8) -> Result<(), GpuError> {
        for &(address, bytes) in parts.iter().filter(|(_, bytes)| *bytes > 0) {
            // SAFETY: as the caller says; the slice on the device is as long.
            unsafe {
                let copied = sys::cuMemcpyDtoHAsync_v2(to.cast(), address, bytes, self.stream).result();
                copied.map_err(refused("cuMemcpyDtoHAsync"))?;
                to = to.add(bytes);
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
        // SAFETY: who copies to it waits for the copies, so none is under way, unless the stream has failed.
        unsafe { self.landing.get_mut().unwrap_or_else(PoisonError::into_inner).free() };
        if self.own {
            self.device.remove_stream(self.stream);
            // SAFETY: the stream was created by `side_stream`; the driver finishes its work first.
            let _ = unsafe { result::stream::destroy(self.stream) };
        }
    }
}

impl Backend for Driver {
    fn alloc(&self, bytes: usize) -> Result<u64, GpuError> {
        self.find(bytes, || self.take(bytes))
    }

    fn free(&self, address: u64, _bytes: usize) {
        if self.enter().is_ok() {
            // SAFETY: `DeviceBuffer` gives back what it was given, once, after what uses it was launched.
            let _ = unsafe { result::free_async(address, self.stream) };
        }
    }

    fn alloc_for_others(&self, bytes: usize) -> Result<u64, GpuError> {
        self.find(bytes, || pool::take_for_others(bytes))
    }

    fn free_for_others(&self, address: u64, _bytes: usize) {
        // The driver does not free in any stream's order.
        if self.synchronise_all().is_ok() {
            pool::free_for_others(address);
        }
    }

    fn export(&self, address: u64) -> Result<[u8; 64], GpuError> {
        self.enter()?;
        pool::export(address)
    }

    fn import(&self, handle: [u8; 64]) -> Result<u64, GpuError> {
        self.enter()?;
        pool::import(handle)
    }

    fn close(&self, address: u64) {
        if self.synchronise_all().is_ok() {
            pool::close(address);
        }
    }

    fn upload(&self, address: u64, from: &[u8]) -> Result<(), GpuError> {
        self.enter()?;
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: the slice on the device is as long. From pageable memory the driver copies before it returns.
        unsafe { result::memcpy_htod_async(address, from, self.stream) }.map_err(refused("cuMemcpyHtoDAsync"))
    }

    fn download(&self, parts: &[(u64, usize)], to: &mut [u8]) -> Result<(), GpuError> {
        self.enter()?;
        if to.len() > Landing::BYTES {
            // SAFETY: the copies are awaited, those before one that failed too: `to` may be pinned.
            let copied = unsafe { self.copy_down(parts, to.as_mut_ptr()) };
            return self.synchronise().and(copied);
        }
        let landing = self.landing.lock().unwrap_or_else(PoisonError::into_inner);
        let start = landing.start();
        // SAFETY: the memory is this lock's, and is there as long as the driver; as many bytes are written as are read.
        unsafe {
            self.copy_down(parts, start)?;
            self.synchronise()?;
            std::ptr::copy_nonoverlapping(start, to.as_mut_ptr(), to.len());
        }
        Ok(())
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), GpuError> {
        self.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both slices are as long.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream) }.map_err(refused("cuMemcpyDtoDAsync"))
    }

    fn copy_across(&self, from: u64, source: &dyn Backend, to: u64, bytes: usize) -> Result<(), GpuError> {
        if source.context() == self.context() || bytes == 0 {
            return self.copy(from, to, bytes);
        }
        self.enter()?;
        let there = source.context() as sys::CUcontext;
        // SAFETY: both slices are as long. The driver finds the way, with peer access or without.
        let copied = unsafe { sys::cuMemcpyPeerAsync(to, self.device.context, from, there, bytes, self.stream) };
        copied.result().map_err(refused("cuMemcpyPeerAsync"))
    }

    fn zero(&self, address: u64, bytes: usize) -> Result<(), GpuError> {
        self.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the slice is as long.
        unsafe { result::memset_d8_async(address, 0, bytes, self.stream) }.map_err(refused("cuMemsetD8Async"))
    }

    fn map_host(&self, bytes: &[u8]) -> Result<u64, GpuError> {
        self.enter()?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let start = bytes.as_ptr().cast_mut().cast::<c_void>();
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the memory outlives its registration, which `MappedHost` ends. Files are mapped for reading only, which
        // the driver has to be told; where it cannot, memory that may be written is registered without.
        unsafe {
            let read_only = sys::cuMemHostRegister_v2(start, bytes.len(), flags | sys::CU_MEMHOSTREGISTER_READ_ONLY);
            if read_only.result().is_err() {
                let register = sys::cuMemHostRegister_v2(start, bytes.len(), flags).result();
                register.map_err(refused("cuMemHostRegister"))?;
            }
        }
        self.host_address(start as usize).inspect_err(|_| self.unmap_host(start as usize, bytes.len()))
    }

    fn host_address(&self, start: usize) -> Result<u64, GpuError> {
        self.enter()?;
        let mut address = 0;
        // SAFETY: the driver knows the memory or says that it does not.
        let found = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, start as *mut c_void, 0).result() };
        found.map_err(refused("cuMemHostGetDevicePointer")).map(|()| address)
    }

    fn unmap_host(&self, start: usize, bytes: usize) {
        if bytes > 0 && self.synchronise_all().is_ok() {
            // SAFETY: registered by `map_host`; nothing reads it any more, of any stream.
            let _ = unsafe { sys::cuMemHostUnregister(start as *mut c_void) };
        }
    }

    fn launch(&self, kernel: Kernel, shape: Shape, arguments: &[Argument]) -> Result<(), GpuError> {
        self.enter()?;
        let function = self.device.function(kernel)?;
        let pointer = |argument: &Argument| argument.bytes().as_ptr().cast_mut().cast::<c_void>();
        let mut arguments: Vec<*mut c_void> = arguments.iter().map(pointer).collect();
        let (grid, block) = ((shape.blocks, 1, 1), (shape.threads, 1, 1));
        // SAFETY: the arguments are of the kernel's types (tests compare their sizes), and who launches has checked what
        // they point to.
        let launched =
            unsafe { result::launch_kernel(function, grid, block, shape.shared, self.stream, &mut arguments) };
        launched.map_err(refused(kernel.name))
    }

    fn synchronise_all(&self) -> Result<(), GpuError> {
        self.enter()?;
        result::ctx::synchronize().map_err(refused("cuCtxSynchronize"))
    }

    fn synchronise(&self) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the stream is alive.
        unsafe { result::stream::synchronize(self.stream) }.map_err(refused("cuStreamSynchronize"))
    }

    fn is_done(&self) -> Result<bool, GpuError> {
        self.enter()?;
        // SAFETY: the stream is alive.
        match unsafe { sys::cuStreamQuery(self.stream) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            outcome => outcome.result().map(|()| true).map_err(refused("cuStreamQuery")),
        }
    }

    fn multiprocessors(&self) -> u32 {
        self.device.multiprocessors
    }

    fn memory(&self) -> Result<(u64, u64), GpuError> {
        self.enter()?;
        let (free, total) = result::mem_get_info().map_err(refused("cuMemGetInfo"))?;
        Ok((free as u64, total as u64))
    }

    fn side_stream(&self) -> Result<Arc<dyn Backend>, GpuError> {
        self.enter()?;
        let landing = Mutex::new(Landing::new()?);
        let mut side = Self { device: self.device.clone(), stream: result::stream::null(), own: false, landing };
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        side.stream = stream.map_err(refused("cuStreamCreate"))?;
        side.own = true;
        self.device.add_stream(side.stream);
        Ok(Arc::new(side))
    }

    fn wait_for(&self, other: &dyn Backend) -> Result<(), GpuError> {
        // SAFETY: it was handed on just now; the stream is alive.
        unsafe {
            let event = Event::from_handle(other.record()?);
            self.enter()?;
            event.hold(self.stream)
        }
    }

    fn record(&self) -> Result<u64, GpuError> {
        self.enter()?;
        // SAFETY: the stream is alive.
        unsafe { Event::record(self.stream) }.map(Event::into_handle)
    }

    fn enter(&self) -> Result<(), GpuError> {
        self.device.enter()
    }

    fn context(&self) -> u64 {
        self.device.context as u64
    }

    fn stream(&self) -> u64 {
        self.stream as u64
    }

    fn ordinal(&self) -> Option<usize> {
        Some(self.device.ordinal)
    }

    fn reach(&self, other: &dyn Backend) -> Result<bool, GpuError> {
        let Some(other) = other.ordinal() else { return Ok(false) };
        self.enter()?;
        let other = result::device::get(other as i32).map_err(refused("cuDeviceGet"))?;
        let mut reaches = 0;
        // SAFETY: both devices exist.
        let asked = unsafe { sys::cuDeviceCanAccessPeer(&mut reaches, self.device.handle, other) }.result();
        asked.map_err(refused("cuDeviceCanAccessPeer"))?;
        if reaches == 0 {
            return Ok(false);
        }
        pool::show(other, self.device.handle)?;
        Ok(true)
    }
}

pub(super) fn refused(call: &'static str) -> impl Fn(DriverError) -> GpuError {
    move |error| {
        let said =
            |text: Result<&std::ffi::CStr, DriverError>| text.ok().map(|text| text.to_string_lossy().into_owned());
        let reason = said(error.error_string()).unwrap_or_else(|| format!("{:?}", error.0));
        GpuError::Call { call, reason }
    }
}
