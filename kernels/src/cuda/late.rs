//! Pinned host memory for copies of a few numbers that are read later.
//!
//! Idea: as many slots as there are reads under way. A read is copied into a free slot in the order
//! of its stream, and used once an event behind the copy is over: if that is a step later, nothing
//! waits.
//!
//! Unsafe code of this file: copies from the memory.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::GpuError;
use super::backend::Arriving;
use super::device::Device;
use super::event::Event;

const SLOTS: usize = 4;
const SLOT: usize = 4 << 10;

/// The slots, in memory that another value owns.
#[derive(Clone, Debug)]
pub(super) struct Late {
    start: usize,
    taken: Arc<Mutex<[bool; SLOTS]>>,
}

impl Late {
    /// Length of all slots.
    pub(super) const BYTES: usize = SLOTS * SLOT;

    /// Uses the pinned memory from `start` on.
    pub(super) fn at(start: usize) -> Self {
        Self { start, taken: Arc::default() }
    }

    /// Takes a slot for `bytes`: its number and start. `None` if they are too many, or too many
    /// reads are under way.
    pub(super) fn take(&self, bytes: usize) -> Option<(usize, *mut u8)> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = taken.iter().position(|taken| !taken).filter(|_| bytes <= SLOT)?;
        taken[slot] = true;
        Some((slot, (self.start + slot * SLOT) as *mut u8))
    }

    pub(super) fn give_back(&self, slot: usize) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)[slot] = false;
    }
}

/// Bytes on their way into a slot.
#[derive(Debug)]
pub(super) struct InSlot {
    pub(super) device: Arc<Device>,
    pub(super) late: Late,
    pub(super) slot: usize,
    pub(super) bytes: usize,
    /// Recorded behind the copy.
    pub(super) event: Event,
}

impl InSlot {
    fn arrive(&self) -> Result<(), GpuError> {
        self.device.enter()?;
        while !self.event.is_over()? {
            thread::yield_now();
        }
        // Only a wait lets the driver's pool give memory that this stream has freed to another
        // stream. Without it the pool grows by a mini-batch at every step.
        self.event.wait()
    }
}

impl Arriving for InSlot {
    fn wait(&mut self) -> Result<Vec<u8>, GpuError> {
        self.arrive()?;
        let start = (self.late.start + self.slot * SLOT) as *const u8;
        // SAFETY: the slot belongs to this value, and as many bytes were copied there.
        Ok(unsafe { std::slice::from_raw_parts(start, self.bytes) }.to_vec())
    }
}

impl Drop for InSlot {
    fn drop(&mut self) {
        // The slot must not be reused before the copy is over; after a failure it is.
        let _ = self.arrive();
        self.late.give_back(self.slot);
    }
}

// SAFETY: the driver's handles may be used by any thread that has made the context its own.
unsafe impl Send for InSlot {}
