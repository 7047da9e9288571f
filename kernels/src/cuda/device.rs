//! State that the streams of one device share: its primary context, the kernels loaded into it, and
//! the list of its streams.
//!
//! All kernels are compiled and loaded when a device is opened. Loading one later may wait for all
//! of the device, with a lock that other calls need: a rank whose stream waits for another rank
//! would then hang. A device is opened once, and stays open while it is used.
//!
//! Unsafe code of this file: calls of the driver's C functions.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::{result, sys};

use super::driver::refused;
use super::event::Event;
use super::{GpuError, Kernel, compile, facts, library, module};

/// How long an allocation that finds too little memory waits for memory that other streams are
/// about to free.
const FREEING: Duration = Duration::from_secs(2);

/// State that the streams of one device share.
#[derive(Debug)]
pub(super) struct Device {
    pub ordinal: usize,
    pub handle: sys::CUdevice,
    pub context: sys::CUcontext,
    pub multiprocessors: u32,
    /// Whether host memory that must not be written can be registered, such as mapped files.
    pub registers_read_only: bool,
    /// Kernels by their names, then by their files' names.
    functions: HashMap<String, HashMap<&'static str, Function>>,
    /// The null stream, and the existing side streams.
    streams: Mutex<Vec<u64>>,
}

/// Devices that are open.
static OPEN: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());

/// The driver's handle of a kernel, which lives as long as the context.
#[derive(Clone, Copy, Debug)]
struct Function(usize);

// SAFETY: the driver's handles may be used by any thread that has made the context its own.
unsafe impl Send for Device {}
// SAFETY: as above; what changes is behind a lock.
unsafe impl Sync for Device {}

impl Device {
    /// Opens device `ordinal`, with all kernels; makes its context the calling thread's.
    pub fn open(ordinal: usize) -> Result<Arc<Self>, GpuError> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|device| device.strong_count() > 0);
        if let Some(device) = Self::among(&open, ordinal) {
            device.enter()?;
            return Ok(device);
        }
        let device = Arc::new(Self::open_anew(ordinal)?);
        open.push(Arc::downgrade(&device));
        Ok(device)
    }

    /// Device `ordinal`, if it is open.
    pub fn opened(ordinal: usize) -> Option<Arc<Self>> {
        Self::among(&OPEN.lock().unwrap_or_else(PoisonError::into_inner), ordinal)
    }

    fn among(open: &[Weak<Self>], ordinal: usize) -> Option<Arc<Self>> {
        open.iter().filter_map(Weak::upgrade).find(|device| device.ordinal == ordinal)
    }

    fn open_anew(ordinal: usize) -> Result<Self, GpuError> {
        let devices = facts::count()?;
        library::compiler()?;
        compile::check_driver()?;
        if ordinal >= devices {
            return Err(GpuError::NoDevice { ordinal, devices });
        }
        let handle = facts::device(ordinal)?;
        use sys::CUdevice_attribute as Attribute;
        let attribute = |which| facts::attribute(handle, which);
        let (major, minor) = facts::compute_capability(handle)?;
        let multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let read_only =
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)?;
        if attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 0 {
            return Err(GpuError::NoPools { ordinal });
        }
        // SAFETY: the device exists; the context is retained here and released when this is
        // dropped.
        let context = unsafe { result::primary_ctx::retain(handle) }
            .map_err(refused("cuDevicePrimaryCtxRetain"))?;
        let mut device = Self {
            ordinal,
            handle,
            context,
            multiprocessors: multiprocessors as u32,
            registers_read_only: read_only != 0,
            functions: HashMap::new(),
            streams: Mutex::new(vec![0]),
        };
        device.enter()?;
        device.load(10 * major + minor)?;
        Ok(device)
    }

    /// Compiles and loads all kernels.
    fn load(&mut self, architecture: u32) -> Result<(), GpuError> {
        for (module, cubin) in
            module::MODULES.iter().zip(compile::compile_all(module::MODULES, architecture)?)
        {
            // SAFETY: the image is a whole cubin.
            let loaded = unsafe { result::module::load_data(cubin.as_ptr().cast()) };
            let loaded = loaded.map_err(refused("cuModuleLoadData"))?;
            for name in compile::kernels_of(&cubin) {
                let text = CString::new(name).unwrap_or_default();
                // SAFETY: the module is loaded and is never unloaded.
                let function = unsafe { result::module::get_function(loaded, text) };
                let function = function.map_err(refused("cuModuleGetFunction"))?;
                let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
                // SAFETY: the kernel exists. This call loads it, where otherwise its first launch
                // would.
                unsafe { result::function::get_function_attribute(function, which) }
                    .map_err(refused("cuFuncGetAttribute"))?;
                let files = self.functions.entry(name.to_string()).or_default();
                files.insert(module.name, Function(function as usize));
            }
        }
        Ok(())
    }

    /// Makes its context the calling thread's.
    pub fn enter(&self) -> Result<(), GpuError> {
        // SAFETY: the context lives as long as `self`.
        unsafe { result::ctx::set_current(self.context) }.map_err(refused("cuCtxSetCurrent"))
    }

    /// The kernel.
    pub fn function(&self, kernel: Kernel) -> Result<sys::CUfunction, GpuError> {
        let found = self.functions.get(kernel.name).and_then(|files| files.get(kernel.module.name));
        let missing =
            || GpuError::Call { call: kernel.name, reason: "there is no such kernel".into() };
        found.map(|function| function.0 as sys::CUfunction).ok_or_else(missing)
    }

    /// Adds a side stream to the list.
    pub fn add_stream(&self, stream: sys::CUstream) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream as u64);
    }

    /// Removes a side stream that is about to be destroyed.
    pub fn remove_stream(&self, stream: sys::CUstream) {
        self.streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|&at| at != stream as u64);
    }

    /// Waits until every stream has passed the frees that it was given until now, but not for ever:
    /// NCCL may keep one waiting for another rank.
    pub fn let_others_free(&self) -> Result<(), GpuError> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a stream is taken from the list before it is destroyed.
        let events =
            streams.iter().map(|&stream| unsafe { Event::record(stream as sys::CUstream) });
        let mut events = events.collect::<Result<Vec<_>, _>>()?;
        drop(streams);
        let deadline = Instant::now() + FREEING;
        while let Some(event) = events.last() {
            if event.is_over()? {
                event.wait()?;
                events.pop();
            } else if Instant::now() > deadline {
                break;
            } else {
                thread::sleep(Duration::from_micros(100));
            }
        }
        Ok(())
    }
}

/// Waits for every stream of the calling thread's context.
pub(super) fn synchronise() -> Result<(), GpuError> {
    result::ctx::synchronize().map_err(refused("cuCtxSynchronize"))
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the context was retained once.
        let _ = unsafe { result::primary_ctx::release(self.handle) };
    }
}
