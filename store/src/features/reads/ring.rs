//! Reads in flight by io_uring.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use memmap2::MmapMut;

use super::{BLOCK, Finished, Queue, slot_memory};

/// Number of reads submitted to the kernel at once while others are in flight.
const AT_ONCE: usize = 16;
/// Longest wait for abandoned reads.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Submission and completion queue, with the memory that the kernel reads into.
pub struct Ring {
    ring: IoUring,
    file: Arc<File>,
    slots: Vec<MmapMut>,
    /// Reads that were not yet submitted to the kernel.
    pending: usize,
    in_flight: usize,
}

impl Ring {
    /// Queue of reads of `file`, with `slots`: their number and bytes. It has read a block.
    ///
    /// # Errors
    /// Where the kernel has no io_uring, forbids it, or cannot read the file so.
    pub fn new(file: Arc<File>, slots: (usize, usize)) -> io::Result<Self> {
        let ring = IoUring::new(slots.0 as u32)?;
        if !ring.params().is_feature_ext_arg() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut this =
            Self { ring, file, slots: slot_memory(slots.0, slots.1)?, pending: 0, in_flight: 0 };
        this.start(0, 0, BLOCK as usize)?;
        match this.next(Duration::from_secs(5))? {
            Some((_, got)) => got.map(|_| this),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn submit(&mut self) -> io::Result<()> {
        let submitted = tolerate(self.ring.submit())?;
        self.pending -= submitted.min(self.pending);
        Ok(())
    }

    fn finished(&mut self) -> Option<Finished> {
        let entry = self.ring.completion().next()?;
        self.in_flight -= 1;
        let got = usize::try_from(entry.result())
            .map_err(|_| io::Error::from_raw_os_error(-entry.result()));
        Some((entry.user_data() as usize, got))
    }
}

/// Number of reads that the kernel took; 0 where it asks to come again.
fn tolerate(submitted: io::Result<usize>) -> io::Result<usize> {
    const AGAIN: [i32; 4] = [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::ETIME];
    submitted.or_else(|error| {
        match error.raw_os_error().is_some_and(|code| AGAIN.contains(&code)) {
            true => Ok(0),
            false => Err(error),
        }
    })
}

impl Queue for Ring {
    fn start(&mut self, slot: usize, offset: u64, length: usize) -> io::Result<()> {
        let memory = &mut self.slots[slot];
        let length = length.min(memory.len());
        let read = opcode::Read::new(Fd(self.file.as_raw_fd()), memory.as_mut_ptr(), length as u32);
        let entry = read.offset(offset).build().user_data(slot as u64);
        // SAFETY: the slot is free, so nobody else reads or writes its memory until the kernel has
        // finished; it stays mapped until then, also where this queue is dropped. The file is open
        // as long as the queue.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| io::Error::other("more reads than slots"))?;
        self.in_flight += 1;
        self.pending += 1;
        if self.pending >= AT_ONCE { self.submit() } else { Ok(()) }
    }

    fn next(&mut self, wait: Duration) -> io::Result<Option<Finished>> {
        if let Some(finished) = self.finished() {
            return Ok(Some(finished));
        }
        if wait.is_zero() {
            self.submit()?;
        } else {
            let wait = Timespec::from(wait);
            let submitted =
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&wait));
            // If the wait timed out, all pending reads were submitted.
            let all =
                submitted.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ETIME));
            let submitted = if all { self.pending } else { tolerate(submitted)? };
            self.pending -= submitted.min(self.pending);
        }
        Ok(self.finished())
    }

    fn bytes(&self, slot: usize) -> &[u8] {
        &self.slots[slot]
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let since = Instant::now();
        while self.in_flight > 0 && since.elapsed() < LAST_WAIT && self.next(LAST_WAIT / 10).is_ok()
        {
        }
        if self.in_flight > 0 {
            // The kernel may still write there.
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}
