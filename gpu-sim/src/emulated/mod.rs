//! An emulated GPU: the kernels compiled for the host (`threads.h`). An error of a kernel, or of
//! the order of streams, is an error of the launch or copy (`hazards.h`).
//!
//! The unit tests of `gsplit-kernels` compile this too, as a part of that crate.
//!
//! Unsafe code of this file: calls into the emulation, and copies from and to its memory.
#![allow(unsafe_code)]

mod ipc;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gsplit_kernels::backend::{Argument, Arriving, Backend, Kernel, Shape};
use gsplit_kernels::{Gpu, GpuError};

unsafe extern "C" {
    fn emulate_launch(
        name: *const c_char,
        blocks: u32,
        threads: u32,
        shared: usize,
        arguments: *mut *mut c_void,
        sizes: *const usize,
        count: usize,
    ) -> c_int;
    fn emulate_failure() -> *const c_char;
    fn emulate_on(stream: u32);
    fn emulate_touch(at: *const c_void, bytes: usize, writes: c_int) -> c_int;
    fn emulate_stream() -> u32;
    fn emulate_wait(stream: u32, other: u32);
    fn emulate_completed(stream: u32);
    fn emulate_accesses(found: *mut u64);
    fn emulate_order(order: u32);
    fn emulate_watch(is: c_int);
    fn emulate_alloc(bytes: usize) -> *mut c_void;
    fn emulate_free(at: *mut c_void, bytes: usize);
    fn emulate_is_mapped(start: u64, bytes: usize, written: c_int) -> c_int;
}

/// Bytes of memory of an emulated GPU by default.
const TOTAL: u64 = 1 << 30;

/// Bytes of staged uploads that may be under way before the next upload waits.
const STAGED_BYTES: usize = 2 << 20;

/// An emulated GPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Emulation {
    /// Order in which the threads of a block run; results depend on it only if a kernel is wrong.
    pub order: u32,
    /// Bytes of its memory, if they are limited. Freed memory counts as used, as in a driver that
    /// keeps it for the next buffer.
    pub bytes: Option<u64>,
    /// It reads no other GPU's memory.
    pub apart: bool,
}

impl Emulation {
    /// An emulated GPU: memory of the host, and kernels compiled for it. Slow.
    pub fn gpu(self) -> Gpu {
        // Slow. The kernels' own tests watch every kernel; other tests only with this variable
        // (`make test-all`).
        let watches = cfg!(test) || std::env::var_os("GSPLIT_WATCH").is_some();
        // SAFETY: a number is taken.
        unsafe { emulate_watch(watches.into()) };
        let limited =
            |total| Arc::new(Limited { total, used: AtomicU64::new(0), most: AtomicU64::new(0) });
        Gpu::of_backend(Emulated::sharing(self, self.bytes.map(limited)))
    }
}

/// An emulated GPU with this order of threads.
pub fn emulated(order: u32) -> Gpu {
    Emulation { order, ..Emulation::default() }.gpu()
}

/// The GPU of a test: the emulation, or GPU 0 where `GSPLIT_TEST_GPU` is set (`make test-gpu`);
/// with `keep` it stays open between tests.
///
/// # Panics
/// Without the GPU that is asked for.
pub fn under_test(order: u32) -> Gpu {
    match std::env::var_os("GSPLIT_TEST_GPU") {
        None => emulated(order),
        Some(how) => {
            // A sanitizer takes seconds to open a GPU, so tests may leave it open.
            static OPEN: OnceLock<Gpu> = OnceLock::new();
            let open = || {
                Gpu::open(0).unwrap_or_else(|error| panic!("GSPLIT_TEST_GPU is set, but {error}"))
            };
            if how == "keep" { OPEN.get_or_init(open).clone() } else { open() }
        }
    }
}

/// Counts of this stream of `gpu` so far, if it is emulated; a real one has none.
pub fn counts(gpu: &Gpu) -> GpuCounts {
    gpu.backend_as::<Emulated>().map_or(GpuCounts::default(), |emulated| *emulated.counts())
}

/// Loads and stores of device memory, each of at most 16 bytes, and their bytes, since this thread
/// last called this; counts kernels that this thread launched while they were watched.
pub fn accesses() -> [u64; 2] {
    let mut found = [0; 2];
    // SAFETY: two numbers are written.
    unsafe { emulate_accesses(found.as_mut_ptr()) };
    found
}

/// Counts of the host's calls on one stream of an emulated GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuCounts {
    /// Buffers taken.
    pub taken: u64,
    /// Buffers freed.
    pub freed: u64,
    /// Kernels launched, and copies and fills on the device.
    pub launches: u64,
    /// Times that the host waited for the device: for bytes copied to the host, by an explicit
    /// wait, or (as a driver does) for staging memory when an upload would exceed 2 MiB under way.
    pub waits: u64,
    /// Bytes copied to the host.
    pub bytes_down: u64,
}

#[derive(Debug)]
struct Emulated {
    emulation: Emulation,
    stream: u32,
    counts: Mutex<GpuCounts>,
    /// Memory of the device, where it has a limit.
    limited: Option<Arc<Limited>>,
}

/// Memory with a limit, in bytes.
#[derive(Debug)]
struct Limited {
    total: u64,
    used: AtomicU64,
    /// Maximum used at a time: freed memory stays in the pool, as with the driver's pool here.
    most: AtomicU64,
}

impl Limited {
    fn take(&self, bytes: u64) -> Result<(), GpuError> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > self.total {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            let free_mib = self.total.saturating_sub(used - bytes) >> 20;
            return Err(GpuError::OutOfMemory { ordinal: 0, needed_mib: bytes >> 20, free_mib });
        }
        self.most.fetch_max(used, Ordering::Relaxed);
        Ok(())
    }
}

impl Emulated {
    fn sharing(emulation: Emulation, limited: Option<Arc<Limited>>) -> Arc<Self> {
        // SAFETY: a number is taken.
        let stream = unsafe { emulate_stream() };
        Arc::new(Self { emulation, stream, counts: Mutex::default(), limited })
    }

    fn counts(&self) -> MutexGuard<'_, GpuCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the emulation that `bytes` from `address` on are read or written in this stream's
    /// order.
    fn touches(
        &self,
        call: &'static str,
        address: u64,
        bytes: usize,
        writes: bool,
    ) -> Result<(), GpuError> {
        // SAFETY: addresses are compared and not followed.
        let outcome = unsafe {
            emulate_on(self.stream);
            emulate_touch(address as *const c_void, bytes, writes.into())
        };
        if outcome == 0 { Ok(()) } else { Err(failure(call)) }
    }

    /// The bytes of `parts`, one after the other.
    fn read(&self, parts: &[(u64, usize)]) -> Result<Vec<u8>, GpuError> {
        let mut all = Vec::new();
        for &(address, bytes) in parts {
            self.touches("download", address, bytes, false)?;
            self.counts().bytes_down += bytes as u64;
            // SAFETY: a slice of that length, in memory of the emulation.
            all.extend_from_slice(unsafe {
                std::slice::from_raw_parts(address as *const u8, bytes)
            });
        }
        Ok(all)
    }

    /// The host has waited for this stream.
    fn completed(&self) {
        // SAFETY: the stream's number was given by the emulation.
        unsafe { emulate_completed(self.stream) }
    }
}

/// The failure of the calling thread's last launch or copy.
fn failure(call: &'static str) -> GpuError {
    // SAFETY: a C string that lives until the next launch of this thread.
    let reason = unsafe { CStr::from_ptr(emulate_failure()) };
    GpuError::Call { call, reason: reason.to_string_lossy().into_owned() }
}

impl Backend for Emulated {
    fn alloc(&self, bytes: usize) -> Result<u64, GpuError> {
        self.limited.as_ref().map_or(Ok(()), |limited| limited.take(bytes as u64))?;
        self.counts().taken += 1;
        // SAFETY: any number of bytes may be asked for.
        let address = unsafe { emulate_alloc(bytes) } as u64;
        let needed_mib = (bytes >> 20) as u64;
        if address == 0 {
            Err(GpuError::OutOfMemory { ordinal: 0, needed_mib, free_mib: 0 })
        } else {
            Ok(address)
        }
    }

    fn free(&self, address: u64, bytes: usize) {
        self.counts().freed += 1;
        if let Some(limited) = &self.limited {
            limited.used.fetch_sub(bytes as u64, Ordering::Relaxed);
        }
        if let Err(error) = self.touches("free", address, bytes, true) {
            // Dropping a buffer cannot return an error; while a test fails already, one error is
            // enough.
            assert!(std::thread::panicking(), "{error}");
        }
        // SAFETY: `DeviceBuffer` frees each allocation once.
        unsafe { emulate_free(address as *mut c_void, bytes) }
    }

    fn alloc_for_others(&self, bytes: usize) -> Result<u64, GpuError> {
        self.alloc(bytes).inspect(|&address| ipc::add(address, self.stream))
    }

    fn free_for_others(&self, address: u64, bytes: usize) {
        ipc::remove(address);
        self.free(address, bytes);
    }

    fn export(&self, address: u64) -> Result<[u8; 64], GpuError> {
        ipc::export(address)
    }

    fn import(&self, handle: [u8; 64]) -> Result<u64, GpuError> {
        if self.emulation.apart {
            Err(ipc::refused("import", "it is apart"))
        } else {
            ipc::import(handle, self.stream)
        }
    }

    fn close(&self, address: u64) {
        ipc::close(address);
    }

    fn upload(&self, address: u64, from: &[u8]) -> Result<(), GpuError> {
        match from.len() > STAGED_BYTES {
            true => self.counts().waits += 1,
            false => self.counts().launches += 1,
        }
        self.touches("upload", address, from.len(), true)?;
        // SAFETY: a slice of the same length, in memory of the emulation.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), address as *mut u8, from.len()) };
        Ok(())
    }

    fn download(&self, parts: &[(u64, usize)], to: &mut [u8]) -> Result<(), GpuError> {
        to.copy_from_slice(&self.read(parts)?);
        self.counts().waits += 1;
        self.completed();
        Ok(())
    }

    fn download_later(&self, parts: &[(u64, usize)]) -> Result<Box<dyn Arriving>, GpuError> {
        Ok(Box::new(self.read(parts)?))
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), GpuError> {
        self.counts().launches += 1;
        self.touches("copy", from, bytes, false)?;
        self.touches("copy", to, bytes, true)?;
        // SAFETY: both are slices of that length.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
        Ok(())
    }

    fn copy_across(
        &self,
        from: u64,
        _source: &dyn Backend,
        to: u64,
        bytes: usize,
    ) -> Result<(), GpuError> {
        self.copy(from, to, bytes)
    }

    fn zero(&self, address: u64, bytes: usize) -> Result<(), GpuError> {
        self.counts().launches += 1;
        self.touches("zero", address, bytes, true)?;
        // SAFETY: a slice of that length.
        unsafe { std::ptr::write_bytes(address as *mut u8, 0, bytes) };
        Ok(())
    }

    fn map_host(&self, bytes: &[u8]) -> Result<u64, GpuError> {
        let start = bytes.as_ptr() as u64;
        // SAFETY: addresses are compared and not followed.
        if unsafe { emulate_is_mapped(start, bytes.len(), 1) } == 0 {
            let reason =
                "memory that must not be written: most drivers do not register it".to_string();
            return Err(GpuError::Call { call: "cuMemHostRegister", reason });
        }
        Ok(start)
    }

    fn host_address(&self, start: usize) -> Result<u64, GpuError> {
        Ok(start as u64)
    }

    fn unmap_host(&self, _start: usize, _bytes: usize) {}

    fn launch(&self, kernel: Kernel, shape: Shape, arguments: &[Argument]) -> Result<(), GpuError> {
        self.counts().launches += 1;
        let name = CString::new(kernel.name).unwrap_or_default();
        // Values aligned for every type that a kernel takes.
        let mut values: Vec<[u64; 8]> = vec![[0; 8]; arguments.len()];
        for (value, argument) in values.iter_mut().zip(arguments) {
            let bytes = argument.bytes();
            bytemuck::bytes_of_mut(value)[..bytes.len()].copy_from_slice(bytes);
        }
        let sizes: Vec<usize> = arguments.iter().map(|argument| argument.bytes().len()).collect();
        let mut pointers: Vec<*mut c_void> =
            values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        let Shape { blocks, threads, shared } = shape;
        // SAFETY: number and sizes of the arguments are checked against the kernel's; the memory
        // that they point to was checked by the caller.
        let outcome = unsafe {
            emulate_order(self.emulation.order);
            emulate_on(self.stream);
            let shared = shared as usize;
            emulate_launch(
                name.as_ptr(),
                blocks,
                threads,
                shared,
                pointers.as_mut_ptr(),
                sizes.as_ptr(),
                sizes.len(),
            )
        };
        let reason = match outcome {
            0 => return Ok(()),
            1 => "there is no such kernel".to_string(),
            3 => return Err(failure(kernel.name)),
            _ => format!("the kernel takes arguments of other sizes than {sizes:?}"),
        };
        Err(GpuError::Call { call: kernel.name, reason })
    }

    fn synchronise(&self) -> Result<(), GpuError> {
        self.counts().waits += 1;
        self.completed();
        Ok(())
    }

    fn multiprocessors(&self) -> u32 {
        2
    }

    fn memory(&self) -> Result<(u64, u64), GpuError> {
        let free = |limited: &Arc<Limited>| {
            (limited.total - limited.most.load(Ordering::Relaxed), limited.total)
        };
        Ok(self.limited.as_ref().map_or((TOTAL, TOTAL), free))
    }

    fn pool_bytes(&self) -> Result<u64, GpuError> {
        self.memory().map(|(free, total)| total - free)
    }

    fn side_stream(&self) -> Result<Arc<dyn Backend>, GpuError> {
        Ok(Self::sharing(self.emulation, self.limited.clone()))
    }

    fn wait_for(&self, other: &dyn Backend) -> Result<(), GpuError> {
        // SAFETY: both numbers were given by the emulation.
        unsafe { emulate_wait(self.stream, other.stream() as u32) };
        Ok(())
    }

    fn enter(&self) -> Result<(), GpuError> {
        Ok(())
    }

    fn stream(&self) -> u64 {
        self.stream.into()
    }

    fn ordinal(&self) -> Option<usize> {
        None
    }

    fn reach(&self, _other: &dyn Backend) -> Result<bool, GpuError> {
        Ok(!self.emulation.apart)
    }
}
