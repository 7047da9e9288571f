//! What the streams of one device share: its primary context, the kernels loaded into it, and which streams there are.
//!
//! Kernels are compiled and loaded when they are first launched, a file of them at a time, and stay as long as the context.
//!
//! Unsafe code of this file: calls of the driver's C functions.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::{result, sys};

use super::driver::refused;
use super::event::Event;
use super::facts::count;
use super::{GpuError, Kernel, compile, library};

/// How long an allocation for which there is too little waits for what other streams are about to free.
const FREEING: Duration = Duration::from_secs(2);

/// What the streams of one device share.
#[derive(Debug)]
pub(super) struct Device {
    pub ordinal: usize,
    pub handle: sys::CUdevice,
    pub context: sys::CUcontext,
    pub multiprocessors: u32,
    architecture: u32,
    functions: Mutex<HashMap<(&'static str, &'static str), Function>>,
    modules: Mutex<HashMap<&'static str, Function>>,
    /// The null stream, and the side streams that are there.
    streams: Mutex<Vec<u64>>,
}

/// A handle of the driver's, of a kernel or of a file of them, which lives as long as the context.
#[derive(Clone, Copy, Debug)]
struct Function(usize);

// SAFETY: the driver's handles may be used by any thread that has made the context its own.
unsafe impl Send for Device {}
// SAFETY: as above; the tables are behind locks.
unsafe impl Sync for Device {}

impl Device {
    /// Device `ordinal`, whose context is the calling thread's then.
    pub fn open(ordinal: usize) -> Result<Self, GpuError> {
        let devices = count()?;
        library::compiler()?;
        compile::check_driver()?;
        if ordinal >= devices {
            return Err(GpuError::NoDevice { ordinal, devices });
        }
        let handle = result::device::get(ordinal as i32).map_err(refused("cuDeviceGet"))?;
        use sys::CUdevice_attribute as Attribute;
        let attribute = |which| {
            // SAFETY: the device exists.
            unsafe { result::device::get_attribute(handle, which) }.map_err(refused("cuDeviceGetAttribute"))
        };
        let architecture = 10 * attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
            + attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        // SAFETY: the device exists; what is retained here is released when this is dropped.
        let context = unsafe { result::primary_ctx::retain(handle) }.map_err(refused("cuDevicePrimaryCtxRetain"))?;
        let device = Self {
            ordinal,
            handle,
            context,
            multiprocessors: multiprocessors as u32,
            architecture: architecture as u32,
            functions: Mutex::default(),
            modules: Mutex::default(),
            streams: Mutex::new(vec![0]),
        };
        device.enter()?;
        Ok(device)
    }

    /// Makes its context the calling thread's.
    pub fn enter(&self) -> Result<(), GpuError> {
        // SAFETY: the context lives as long as `self`.
        unsafe { result::ctx::set_current(self.context) }.map_err(refused("cuCtxSetCurrent"))
    }

    /// The kernel, compiled and loaded when it is first asked for.
    pub fn function(&self, kernel: Kernel) -> Result<sys::CUfunction, GpuError> {
        let key = (kernel.module.name, kernel.name);
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(&key) {
            return Ok(function.0 as sys::CUfunction);
        }
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let module = match modules.get(kernel.module.name) {
            Some(module) => module.0 as sys::CUmodule,
            None => {
                let cubin = compile::compile_cached(kernel.module, self.architecture)?;
                // SAFETY: the image is a whole cubin.
                let loaded = unsafe { result::module::load_data(cubin.as_ptr().cast()) };
                let module = loaded.map_err(refused("cuModuleLoadData"))?;
                modules.insert(kernel.module.name, Function(module as usize));
                module
            }
        };
        let name = CString::new(kernel.name).unwrap_or_default();
        // SAFETY: the module is loaded and is never unloaded.
        let function = unsafe { result::module::get_function(module, name) }.map_err(refused(kernel.name))?;
        functions.insert(key, Function(function as usize));
        Ok(function)
    }

    /// A side stream is there.
    pub fn add_stream(&self, stream: sys::CUstream) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream as u64);
    }

    /// A side stream is about to be destroyed.
    pub fn remove_stream(&self, stream: sys::CUstream) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).retain(|&at| at != stream as u64);
    }

    /// Waits until every stream has come to what it was told to free until now, but not for ever: NCCL may keep one waiting for another
    /// rank.
    pub fn let_others_free(&self) -> Result<(), GpuError> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a stream is taken from the list before it is destroyed.
        let events = streams.iter().map(|&stream| unsafe { Event::record(stream as sys::CUstream) });
        let mut events = events.collect::<Result<Vec<_>, _>>()?;
        drop(streams);
        let deadline = Instant::now() + FREEING;
        while let Some(event) = events.last() {
            if event.is_over()? {
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

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the context was retained once.
        let _ = unsafe { result::primary_ctx::release(self.handle) };
    }
}
