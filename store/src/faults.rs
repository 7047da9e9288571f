//! Turns faults that would end a program by a signal into a one-line error and exit code 1.
//!
//! * Refused memory ([`Allocator`]). A request is refused only under a limit of the process
//!   (`ulimit -v`) or on a system that does not overcommit. Otherwise Linux grants it and kills the
//!   process once the pages are touched, which cannot be reported. C and C++ libraries handle
//!   refusals themselves.
//! * SIGBUS, if the page of a mapped file that is read has been lost ([`take_signals`]).
//! * SIGXFSZ, at a limit on the length of files: ignored, so that the write fails instead.
//!
//! Why not the crate `signal-hook`: its handlers call the previous ones, and Rust's own for SIGBUS
//! restores the default action.
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

/// The system's allocator, for a program's `#[global_allocator]`. If memory is refused, the program
/// ends with an `error:` line, except within [`attempt`].
pub struct Allocator;

thread_local! {
    static ATTEMPTS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, in which refused memory is returned as an error, e.g. by `try_reserve`.
pub fn attempt<R>(work: impl FnOnce() -> R) -> R {
    let before = ATTEMPTS.replace(true);
    let result = work();
    ATTEMPTS.set(before);
    result
}

// SAFETY: all memory comes from the system allocator and is returned to it with the layouts that
// are passed in.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantees are passed on.
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

/// Returns `memory`. If it was refused outside of [`attempt`], ends the program.
fn checked(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() && !ATTEMPTS.get() {
        end(bytes);
    }
    memory
}

/// Prints the error without allocating, and ends at once: torch's threads may not survive the
/// destructors of an orderly exit. Unfinished files on the disk are removed by the next run, as
/// after a kill.
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
        "error: out of memory: the system refuses {bytes} bytes more: raise the limit (ulimit -v), \
         or ask for less with --memory \
         or smaller options"
    );
    let free = rest.len();
    let length = line.len() - free;
    // Use a write that neither locks nor buffers.
    let _ = rustix::io::write(rustix::stdio::stderr(), &line[..length]);
    end_at_once(1)
}

/// Ends the process whatever its threads are doing, without running the destructors of libraries:
/// libtorch's destructors crash while its threads run, and others wait for threads that hang.
pub fn end_at_once(exit: u8) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(exit.into()) }
}

/// The end of a pipe to the thread that waits for SIGBUS.
static FAULTS: AtomicI32 = AtomicI32::new(-1);

/// Handles SIGXFSZ and SIGBUS. On SIGBUS, `tell` is called on a separate thread with a description
/// of the fault and must end the program; the thread that read the page waits for that. Must be
/// called only once.
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
    // SAFETY: the handler makes only async-signal-safe calls, and the pipe that it writes to is
    // never closed.
    let taken = unsafe {
        [
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN),
            libc::signal(libc::SIGBUS, on_fault as libc::sighandler_t),
        ]
    };
    match taken.contains(&libc::SIG_ERR) {
        true => Err(io::Error::last_os_error()),
        false => Ok(()),
    }
}

extern "C" fn on_fault(_signal: c_int) {
    // SAFETY: both calls are async-signal-safe. Returning would read the same page again.
    unsafe {
        libc::write(FAULTS.load(Ordering::SeqCst), [0u8].as_ptr().cast(), 1);
        loop {
            libc::pause();
        }
    }
}
