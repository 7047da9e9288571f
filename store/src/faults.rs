//! Faults that would end a program by a signal, made into one line and exit code 1.
//!
//! * Memory that is refused ([`Allocator`]). Only a limit of the process (`ulimit -v`) or a system that does not overcommit
//!   refuses it when it is asked for. Linux otherwise promises it and kills the process once the pages are touched, which nothing
//!   can be said about. What C and C++ libraries ask for is theirs to refuse.
//! * SIGBUS, where a mapped file has lost the page that is read ([`take_signals`]).
//! * SIGXFSZ, at a limit on the length of files: ignored, so that the write fails instead.
//!
//! Why not the crate `signal-hook`: its handlers call those of before, and Rust's own for SIGBUS restores the end by the signal.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::c_int;
use std::io::{self, Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

/// The system's allocator, for a program's `#[global_allocator]`. Where it has no memory, the program ends with an `error:`
/// line, unless the memory is only asked for ([`attempt`]).
pub struct Allocator;

thread_local! {
    static ATTEMPTS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, in which `try_reserve` and its kin may fail.
pub fn attempt<R>(work: impl FnOnce() -> R) -> R {
    let before = ATTEMPTS.replace(true);
    let result = work();
    ATTEMPTS.set(before);
    result
}

// SAFETY: all memory is the system allocator's, asked for and given back with the layouts that are passed in.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are handed on.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// `memory`, unless it was refused to somebody who cannot do without.
fn checked(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() && !ATTEMPTS.get() {
        end(bytes);
    }
    memory
}

/// Says so without memory, and ends at once: a thread of torch's may not survive the destructors of an orderly exit. What is
/// unfinished on the disk is removed by the next run, as after a kill.
#[cold]
fn end(bytes: usize) -> ! {
    static ENDING: AtomicBool = AtomicBool::new(false);
    while ENDING.swap(true, Ordering::SeqCst) {
        // Another thread is about to end the program.
        thread::sleep(Duration::from_secs(1));
    }
    let mut line = [0; 200];
    let mut rest = &mut line[..];
    let _ = writeln!(
        rest,
        "error: out of memory: the system refuses {bytes} bytes more: raise the limit (ulimit -v), or ask for less with --memory \
         or smaller options"
    );
    let free = rest.len();
    let length = line.len() - free;
    // Neither locked nor buffered.
    let _ = rustix::io::write(rustix::stdio::stderr(), &line[..length]);
    end_at_once(1)
}

/// Ends the process whatever its threads do, without the destructors of libraries: libtorch's do not survive its threads, and some
/// wait for what hangs.
pub fn end_at_once(exit: u8) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(exit.into()) }
}

/// The end of a pipe to the thread that waits for SIGBUS.
static FAULTS: AtomicI32 = AtomicI32::new(-1);

/// Takes SIGXFSZ and SIGBUS. On the latter `tell` is called on a thread of its own with what is known of it, and has to end the
/// program; the thread that read the page waits for that. To be called once.
pub fn take_signals(tell: fn(&str)) -> io::Result<()> {
    let (mut faults, handler) = UnixStream::pair()?;
    let wait = move || {
        if faults.read_exact(&mut [0]).is_ok() {
            tell(&crate::mmap::lost_pages());
        }
    };
    thread::Builder::new().name("sigbus".into()).spawn(wait)?;
    FAULTS.store(handler.into_raw_fd(), Ordering::SeqCst);
    let on_fault: extern "C" fn(c_int) = on_fault;
    // SAFETY: the handler does only what a handler may do, and the pipe that it writes to is never closed.
    let taken = unsafe {
        [libc::signal(libc::SIGXFSZ, libc::SIG_IGN), libc::signal(libc::SIGBUS, on_fault as libc::sighandler_t)]
    };
    match taken.contains(&libc::SIG_ERR) {
        true => Err(io::Error::last_os_error()),
        false => Ok(()),
    }
}

extern "C" fn on_fault(_signal: c_int) {
    // SAFETY: both calls are async-signal-safe. A return would read the same page again.
    unsafe {
        libc::write(FAULTS.load(Ordering::SeqCst), [0u8].as_ptr().cast(), 1);
        loop {
            libc::pause();
        }
    }
}
