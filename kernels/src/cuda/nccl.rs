//! One end of a group of GPUs that NCCL joins.
//!
//! The communicator never blocks (NCCL's configuration `blocking = 0`): every call returns at once,
//! and its progress is polled, so that a rank that waits in vain can abort. An aborted end is
//! unusable, and so is one after an error. One thread may abort a call that another has begun:
//! calls are short, and behind a lock. Its functions are looked up by name and return plain
//! numbers, because `cudarc`'s bindings panic where they do not find the library, and they do not
//! look for `libnccl.so.2`. Unsafe code of this file: calls of NCCL's C functions.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::nccl::sys;

use super::event::Event;
use super::{Gpu, GpuError, library};
use crate::comm::{Transfer, Transport};

/// `ncclSuccess` and `ncclInProgress`.
const SUCCESS: c_int = 0;
const IN_PROGRESS: c_int = 7;
/// `NCCL_CONFIG_UNDEF_INT`, and the magic number of a configuration.
const UNDEFINED: c_int = c_int::MIN;
const MAGIC: u32 = 0xcafe_beef;
/// The version whose configuration fields are set here: 2.14, the first with `blocking`. NCCL uses
/// its defaults for the fields of later versions.
const VERSION: u32 = 21400;
/// How long a closing end waits for its sends to finish.
const FAREWELL: Duration = Duration::from_secs(10);

/// Id that rank 0 makes; all ranks of a group need it to find each other.
pub(crate) type NcclId = [u8; NCCL_ID_BYTES];
pub(crate) const NCCL_ID_BYTES: usize = 128;

/// Makes a new id. The process that makes it listens for the others from then on.
pub(crate) fn new_nccl_id() -> Result<NcclId, GpuError> {
    let api = Api::get()?;
    let mut id = sys::ncclUniqueId { internal: [0; NCCL_ID_BYTES] };
    // SAFETY: `id` is written.
    let outcome = unsafe { (api.unique_id)(&mut id) };
    api.check("ncclGetUniqueId", outcome)?;
    Ok(id.internal.map(|byte| byte as u8))
}

/// The start of `ncclConfig_t`, as long as [`VERSION`]'s.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    /// Padding that the compiler adds anyway; later versions have a field in its place.
    padding: c_int,
}

/// Declares [`Api`] and looks its functions up: each field, its name in NCCL and its type in
/// nccl.h.
macro_rules! api {
    ($($field:ident = $name:literal: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// NCCL's functions.
        struct Api {
            $($field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Api {
            fn load() -> Result<Self, GpuError> {
                let library = library::open_nccl()?;
                let api = Self {
                    $($field: {
                        let too_old = |_| GpuError::Missing {
                            library: concat!("NCCL's function ", $name),
                            remedy: "this NCCL is older than 2.14: `pip install -U nvidia-nccl-cu13` into PyTorch's environment",
                        };
                        // SAFETY: the function has the type of its field in nccl.h.
                        unsafe { *library.get($name.as_bytes()).map_err(too_old)? }
                    },)*
                };
                // Its functions are used until the process ends.
                std::mem::forget(library);
                Ok(api)
            }
        }
    };
}

api! {
    unique_id = "ncclGetUniqueId": fn(*mut sys::ncclUniqueId) -> c_int;
    init = "ncclCommInitRankConfig": fn(*mut sys::ncclComm_t, c_int, sys::ncclUniqueId, c_int, *mut Config) -> c_int;
    finalize = "ncclCommFinalize": fn(sys::ncclComm_t) -> c_int;
    destroy = "ncclCommDestroy": fn(sys::ncclComm_t) -> c_int;
    abort = "ncclCommAbort": fn(sys::ncclComm_t) -> c_int;
    state = "ncclCommGetAsyncError": fn(sys::ncclComm_t, *mut c_int) -> c_int;
    group_start = "ncclGroupStart": fn() -> c_int;
    group_end = "ncclGroupEnd": fn() -> c_int;
    send = "ncclSend": fn(*const c_void, usize, c_int, c_int, sys::ncclComm_t, sys::cudaStream_t) -> c_int;
    receive = "ncclRecv": fn(*mut c_void, usize, c_int, c_int, sys::ncclComm_t, sys::cudaStream_t) -> c_int;
    error_string = "ncclGetErrorString": fn(c_int) -> *const c_char;
    last_error = "ncclGetLastError": fn(sys::ncclComm_t) -> *const c_char;
}

impl Api {
    fn get() -> Result<&'static Self, GpuError> {
        static FOUND: OnceLock<Result<Api, GpuError>> = OnceLock::new();
        FOUND.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    /// Returns an error unless `outcome` is success or in progress.
    fn check(&self, call: &'static str, outcome: c_int) -> Result<(), GpuError> {
        if matches!(outcome, SUCCESS | IN_PROGRESS) {
            return Ok(());
        }
        let text = |text: *const c_char| match text.is_null() {
            true => String::new(),
            // SAFETY: NCCL returns texts that end with 0 and stay.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().replace('\n', ", "),
        };
        // SAFETY: any number may be passed; a null communicator asks for the thread's last error.
        let (what, last) = unsafe {
            (text((self.error_string)(outcome)), text((self.last_error)(std::ptr::null_mut())))
        };
        let last = if last.is_empty() { last } else { format!(" ({last})") };
        Err(GpuError::Call { call, reason: format!("{what}{last}; NCCL_DEBUG=WARN tells more") })
    }
}

/// One rank's end.
#[derive(Debug)]
pub(crate) struct NcclEnd(Mutex<State>);

#[derive(Debug)]
struct State {
    /// `None` once it was aborted.
    comm: Option<Handle>,
    /// Point behind the last launched transfers. It is dropped before its GPU.
    behind: Option<Event>,
    /// Stream of the transfers.
    gpu: Gpu,
}

/// NCCL's communicator.
#[derive(Clone, Copy, Debug)]
struct Handle(sys::ncclComm_t);

// SAFETY: a communicator may be used by any thread, by one at a time.
unsafe impl Send for Handle {}

impl NcclEnd {
    /// Joins the group of `id` as `rank` of `size`, with `gpu`, which no other rank has. `wait` is
    /// called repeatedly until the others have joined; its error, within an error of NCCL, ends the
    /// wait.
    pub(crate) fn join<E>(
        gpu: &Gpu,
        id: NcclId,
        rank: usize,
        size: usize,
        mut wait: impl FnMut() -> Result<(), E>,
    ) -> Result<Result<Self, E>, GpuError> {
        let api = Api::get()?;
        gpu.backend().enter()?;
        let id = sys::ncclUniqueId { internal: id.map(|byte| byte as c_char) };
        let mut config = Config {
            size: size_of::<Config>(),
            magic: MAGIC,
            version: VERSION,
            blocking: 0,
            padding: UNDEFINED,
        };
        let mut comm = std::ptr::null_mut();
        // SAFETY: `comm` is written; NCCL reads as many bytes of the configuration as it says it
        // has.
        let started =
            unsafe { (api.init)(&mut comm, size as c_int, id, rank as c_int, &mut config) };
        api.check("ncclCommInitRankConfig", started)?;
        let end =
            Self(Mutex::new(State { comm: Some(Handle(comm)), gpu: gpu.clone(), behind: None }));
        while end.lock().is_busy()? {
            if let Err(error) = wait() {
                end.abort();
                return Ok(Err(error));
            }
        }
        Ok(Ok(end))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn comm(&self) -> Result<(&'static Api, sys::ncclComm_t), GpuError> {
        let gone =
            || GpuError::Call { call: "NCCL", reason: "this communicator was given up".into() };
        Ok((Api::get()?, self.comm.ok_or_else(gone)?.0))
    }

    /// Whether a call is still under way.
    fn is_busy(&self) -> Result<bool, GpuError> {
        let ((api, comm), mut state) = (self.comm()?, SUCCESS);
        // SAFETY: the communicator was not aborted; `state` is written.
        let asked = unsafe { (api.state)(comm, &mut state) };
        api.check("ncclCommGetAsyncError", asked)?;
        api.check("NCCL", state)?;
        Ok(state == IN_PROGRESS)
    }

    fn abort(&mut self) {
        if let (Some(comm), Ok(api)) = (self.comm.take(), Api::get()) {
            // SAFETY: the communicator was not aborted before; its kernels end.
            unsafe { (api.abort)(comm.0) };
        }
    }
}

impl Transport for NcclEnd {
    fn start(&self, gpu: &Gpu, transfers: &mut [Transfer<'_>]) -> Result<(), GpuError> {
        let mut state = self.lock();
        let (api, comm) = state.comm()?;
        (state.gpu, state.behind) = (gpu.clone(), None);
        state.gpu.backend().enter()?;
        let stream = state.gpu.backend().stream() as sys::cudaStream_t;
        let kind = sys::ncclDataType_t::ncclUint8 as c_int;
        // SAFETY: no arguments.
        api.check("ncclGroupStart", unsafe { (api.group_start)() })?;
        let mut outcome = Ok(());
        for transfer in transfers {
            // SAFETY: the slices are of this GPU's memory, which is freed in the order of the
            // stream.
            let called = unsafe {
                match transfer {
                    Transfer::Send { to, bytes } => (api.send)(
                        bytes.address() as *const c_void,
                        bytes.len(),
                        kind,
                        *to as c_int,
                        comm,
                        stream,
                    ),
                    Transfer::Receive { from, bytes } => (api.receive)(
                        bytes.address() as *mut c_void,
                        bytes.len(),
                        kind,
                        *from as c_int,
                        comm,
                        stream,
                    ),
                }
            };
            outcome = outcome.and(api.check("ncclSend or ncclRecv", called));
        }
        // SAFETY: a group was started; it is ended in any case.
        let ended = unsafe { (api.group_end)() };
        outcome.and(api.check("ncclGroupEnd", ended))
    }

    fn is_launched(&self, _transfers: &mut [Transfer<'_>]) -> Result<bool, GpuError> {
        let mut state = self.lock();
        if state.is_busy()? {
            return Ok(false);
        }
        state.gpu.backend().enter()?;
        // SAFETY: the GPU has the stream.
        state.behind = Some(unsafe {
            Event::record(state.gpu.backend().stream() as cudarc::driver::sys::CUstream)
        }?);
        Ok(true)
    }

    fn is_done(&self) -> Result<bool, GpuError> {
        let state = self.lock();
        if state.is_busy()? {
            return Ok(false);
        }
        state.gpu.backend().enter()?;
        state.behind.as_ref().map_or(Ok(true), Event::is_over)
    }

    fn abort(&self) {
        self.lock().abort();
    }
}

impl Drop for NcclEnd {
    fn drop(&mut self) {
        let mut state = self.lock();
        let Ok((api, comm)) = state.comm() else { return };
        // SAFETY: the communicator exists, and nothing else uses it.
        let started = unsafe { (api.finalize)(comm) };
        let deadline = Instant::now() + FAREWELL;
        let mut busy = api.check("ncclCommFinalize", started).and_then(|()| state.is_busy());
        while busy == Ok(true) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
            busy = state.is_busy();
        }
        match busy {
            // SAFETY: as above; it was finalised.
            Ok(false) => drop(unsafe { (api.destroy)(comm) }),
            _ => state.abort(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_made_where_nccl_is_and_its_lack_is_said() {
        match new_nccl_id() {
            Ok(id) => assert_ne!(id, [0; NCCL_ID_BYTES]),
            Err(error) => assert!(error.to_string().contains(": "), "{error}"),
        }
    }

    #[test]
    fn without_a_driver_nccl_says_so() {
        if let (Ok(id), Err(_)) = (new_nccl_id(), library::driver()) {
            let error =
                NcclEnd::join(&Gpu::emulated(0), id, 0, 1, || Ok::<(), GpuError>(())).unwrap_err();
            assert!(matches!(error, GpuError::Call { .. }), "{error}");
        }
    }
}
