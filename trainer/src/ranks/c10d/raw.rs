//! Calls of `shim.cpp`: torch's store, its groups of processes, and messages between two of them.
//!
//! Why it is sound:
//!
//! * **Ownership.** An object that the shim makes with `new` is one pointer here, freed once when
//!   dropped. torch's store and groups accept calls from several threads: the store has a lock,
//!   messages go through the thread of Gloo's device.
//! * **Memory of messages.** An [`Underway`] borrows its buffer until it is dropped; after that
//!   Gloo forgets the memory. A leaked work would go on: this folder leaks none. A [`Parcel`] has
//!   its memory behind a pointer and frees it last.
//! * **Ends of waits.** A [`Waits`] knows a work while a thread waits for it, under a lock, and no
//!   longer.
//! * **No unwinding.** Every function of the shim catches all exceptions, and writes a line of at
//!   most [`ERROR_BYTES`] bytes.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::net::TcpListener;
use std::os::fd::IntoRawFd;
use std::ptr::{NonNull, null, null_mut};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Room for a message, its closing zero included; must equal the size in `shim.cpp`.
const ERROR_BYTES: usize = 512;
/// Room for a value of the store.
const VALUE_BYTES: usize = 16 << 10;
/// Bytes of a [`Parcel`].
pub const SLOT: usize = 512;

unsafe extern "C" {
    fn gsplit_c10d_store(
        host: *const c_char,
        port: u16,
        listener: c_int,
        timeout: i64,
        store: *mut *mut c_void,
        error: *mut c_char,
    ) -> c_int;
    fn gsplit_c10d_free_store(store: *mut c_void);
    fn gsplit_c10d_add(
        store: *const c_void,
        key: *const c_char,
        amount: i64,
        sum: *mut i64,
        error: *mut c_char,
    ) -> c_int;
    fn gsplit_c10d_offer(
        store: *const c_void,
        key: *const c_char,
        value: *mut u8,
        bytes: *mut usize,
        room: usize,
        error: *mut c_char,
    ) -> c_int;
    fn gsplit_c10d_group(
        store: *const c_void,
        name: *const c_char,
        rank: c_int,
        size: c_int,
        timeout: i64,
        host: *const c_char,
        interface: *const c_char,
        group: *mut *mut c_void,
        error: *mut c_char,
    ) -> c_int;
    fn gsplit_c10d_free_group(group: *mut c_void);
    fn gsplit_c10d_send(
        group: *const c_void,
        to: c_int,
        tag: c_int,
        data: *const u8,
        bytes: usize,
        work: *mut *mut c_void,
        error: *mut c_char,
    ) -> c_int;
    fn gsplit_c10d_receive(
        group: *const c_void,
        from: c_int,
        tag: c_int,
        data: *mut u8,
        bytes: usize,
        work: *mut *mut c_void,
        error: *mut c_char,
    ) -> c_int;
    fn gsplit_c10d_wait(work: *const c_void, timeout: i64, error: *mut c_char) -> c_int;
    fn gsplit_c10d_abort(work: *const c_void, error: *mut c_char) -> c_int;
    fn gsplit_c10d_free_work(work: *mut c_void);
}

/// Result, or a line with torch's error.
type Answer<T> = Result<T, String>;

/// Runs a function of the shim; the first line of its message is the error.
fn checked(call: impl FnOnce(*mut c_char) -> c_int) -> Answer<()> {
    let mut message: [c_char; ERROR_BYTES] = [0; ERROR_BYTES];
    if call(message.as_mut_ptr()) == 0 {
        return Ok(());
    }
    // SAFETY: the shim closed its message with a zero inside the array.
    let text = unsafe { CStr::from_ptr(message.as_ptr()) };
    Err(text.to_string_lossy().lines().next().unwrap_or_default().to_string())
}

/// The pointer that `call` of the shim returns.
fn made(call: impl FnOnce(*mut *mut c_void, *mut c_char) -> c_int) -> Answer<NonNull<c_void>> {
    let mut pointer = null_mut();
    checked(|error| call(&raw mut pointer, error))?;
    NonNull::new(pointer).ok_or_else(|| "torch made nothing".to_string())
}

fn text(text: &str) -> Answer<CString> {
    CString::new(text).map_err(|_| format!("{text:?}: expected no zero byte"))
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).max(1)
}

/// One process's end of the store in rank 0's process.
pub struct Store(NonNull<c_void>);

// SAFETY: a store has a lock of its own, and belongs to no thread.
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Sync for Store {}

impl Store {
    /// Connects to the store at `host` and `port`, within `timeout`; with a `listener`, hosts the
    /// store.
    pub fn open(
        host: &str,
        port: u16,
        listener: Option<TcpListener>,
        timeout: Duration,
    ) -> Answer<Self> {
        let host = text(host)?;
        let listener = listener.map_or(-1, IntoRawFd::into_raw_fd);
        // SAFETY: the string outlives the call; the store takes ownership of the socket.
        made(|store, error| unsafe {
            gsplit_c10d_store(host.as_ptr(), port, listener, millis(timeout), store, error)
        })
        .map(Self)
    }

    /// Adds `amount` to the number under `key` and returns the sum.
    pub fn add(&self, key: &str, amount: i64) -> Answer<i64> {
        let (key, mut sum) = (text(key)?, 0);
        // SAFETY: the string and the number outlive the call.
        checked(|error| unsafe {
            gsplit_c10d_add(self.0.as_ptr(), key.as_ptr(), amount, &raw mut sum, error)
        })?;
        Ok(sum)
    }

    /// Sets `key` to `value` unless it has one; returns the value it has then.
    pub fn offer(&self, key: &str, value: &str) -> Answer<String> {
        let key = text(key)?;
        let mut found = value.as_bytes()[..value.len().min(VALUE_BYTES)].to_vec();
        let mut bytes = found.len();
        found.resize(VALUE_BYTES, 0);
        // SAFETY: the strings outlive the call, and the buffer has the room that is passed.
        checked(|error| unsafe {
            gsplit_c10d_offer(
                self.0.as_ptr(),
                key.as_ptr(),
                found.as_mut_ptr(),
                &raw mut bytes,
                VALUE_BYTES,
                error,
            )
        })?;
        Ok(String::from_utf8_lossy(&found[..bytes.min(VALUE_BYTES)]).into_owned())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: the shim made it, and this is the only pointer to it.
        unsafe { gsplit_c10d_free_store(self.0.as_ptr()) };
    }
}

/// Addresses that Gloo may listen at.
pub enum Via<'a> {
    /// This address.
    Host(&'a str),
    /// The addresses of an interface.
    Interface(&'a str),
    /// The address of this host's name.
    Chosen,
}

/// One process's end of a group that Gloo connects.
pub struct Group(NonNull<c_void>);

// SAFETY: messages are given to Gloo's device, which has locks; a group belongs to no thread.
unsafe impl Send for Group {}
// SAFETY: as above.
unsafe impl Sync for Group {}

impl Group {
    /// Connects `rank` with the others of `size` that use the store under this `name`. Collective.
    pub fn open(
        store: &Store,
        name: &str,
        rank: usize,
        size: usize,
        timeout: Duration,
        via: &Via<'_>,
    ) -> Answer<Self> {
        let name = text(name)?;
        let (host, interface) = match via {
            Via::Host(host) => (Some(text(host)?), None),
            Via::Interface(interface) => (None, Some(text(interface)?)),
            Via::Chosen => (None, None),
        };
        let pointer = |text: &Option<CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
        // SAFETY: the strings and the store outlive the call.
        made(|group, error| unsafe {
            gsplit_c10d_group(
                store.0.as_ptr(),
                name.as_ptr(),
                rank as c_int,
                size as c_int,
                millis(timeout),
                pointer(&host),
                pointer(&interface),
                group,
                error,
            )
        })
        .map(Self)
    }

    /// Starts to send `message` to `to`.
    pub fn send<'a>(&self, to: usize, tag: i32, message: &'a [u8]) -> Answer<Underway<'a>> {
        // SAFETY: the work borrows the message.
        let work = made(|work, error| unsafe {
            gsplit_c10d_send(
                self.0.as_ptr(),
                to as c_int,
                tag,
                message.as_ptr(),
                message.len(),
                work,
                error,
            )
        })?;
        Ok(Underway { work, memory: PhantomData })
    }

    /// Starts to receive a message of `from`, of the length of `room`.
    pub fn receive<'a>(&self, from: usize, tag: i32, room: &'a mut [u8]) -> Answer<Underway<'a>> {
        // SAFETY: the work borrows the room.
        unsafe { self.receive_at(from, tag, room) }
    }

    /// Starts to receive a message of `from` into `room`.
    ///
    /// # Safety
    /// The room is valid, and nothing else uses it, until the work is dropped.
    unsafe fn receive_at<'a>(
        &self,
        from: usize,
        tag: i32,
        room: *mut [u8],
    ) -> Answer<Underway<'a>> {
        let (group, from, start, len) = (self.0.as_ptr(), from as c_int, room.cast(), room.len());
        // SAFETY: promised by the caller.
        let work = made(|work, error| unsafe {
            gsplit_c10d_receive(group, from, tag, start, len, work, error)
        })?;
        Ok(Underway { work, memory: PhantomData })
    }

    /// Starts to receive a short message from `from` into memory of its own.
    pub fn receive_slot(&self, from: usize, tag: i32) -> Answer<Parcel> {
        let memory = Box::into_raw(Box::new([0u8; SLOT]));
        let mut slot = Parcel { work: None, memory };
        // SAFETY: the slot owns the memory and frees it after the work.
        slot.work = Some(unsafe { self.receive_at(from, tag, memory) }?);
        Ok(slot)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: the shim made it, and this is the only pointer to it.
        unsafe { gsplit_c10d_free_group(self.0.as_ptr()) };
    }
}

/// A message being sent or received.
pub struct Underway<'a> {
    work: NonNull<c_void>,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: a work belongs to no thread.
unsafe impl Send for Underway<'_> {}

impl Underway<'_> {
    /// Waits until the message has arrived or was sent, for at most `timeout`; after a timeout its
    /// group is unusable.
    pub fn wait(&self, watch: &Waits, timeout: Duration) -> Answer<()> {
        watch.begin(self.work)?;
        // SAFETY: the work is here.
        let waited = checked(|error| unsafe {
            gsplit_c10d_wait(self.work.as_ptr(), millis(timeout), error)
        });
        watch.end();
        waited
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        // SAFETY: the shim made it, and this is the only pointer to it.
        unsafe { gsplit_c10d_free_work(self.work.as_ptr()) };
    }
}

/// A short message that is received into memory of its own.
pub struct Parcel {
    work: Option<Underway<'static>>,
    memory: *mut [u8; SLOT],
}

// SAFETY: the memory is the slot's.
unsafe impl Send for Parcel {}

impl Parcel {
    /// Waits for the bytes for at most `timeout`.
    pub fn wait(mut self, watch: &Waits, timeout: Duration) -> Answer<[u8; SLOT]> {
        let work = self.work.take();
        work.map_or(Ok(()), |work| work.wait(watch, timeout))?;
        // SAFETY: the work is freed, so only the slot has access to the memory.
        Ok(unsafe { *self.memory })
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        self.work = None;
        // SAFETY: it was a box, and the work is freed.
        drop(unsafe { Box::from_raw(self.memory) });
    }
}

/// Switch that ends the waits of a rank, on any thread.
#[derive(Default)]
pub struct Waits(Mutex<Watched>);

#[derive(Default)]
struct Watched {
    ended: bool,
    work: Option<NonNull<c_void>>,
}

// SAFETY: the pointer belongs to a work that a thread waits for; the thread removes it before the
// work is freed.
unsafe impl Send for Watched {}

impl Waits {
    fn begin(&self, work: NonNull<c_void>) -> Answer<()> {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.ended {
            return Err("given up".to_string());
        }
        watched.work = Some(work);
        Ok(())
    }

    fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).work = None;
    }

    /// Ends the current wait and all later ones.
    pub fn give_up(&self) {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.ended = true;
        if let Some(work) = watched.work {
            // SAFETY: a thread waits for it, and the lock is held.
            let _ = checked(|error| unsafe { gsplit_c10d_abort(work.as_ptr(), error) });
        }
    }
}
