//! Pinned host memory in which a few numbers land that are asked for later.
//!
//! Idea: as many slots as there are readings under way. A reading is copied into a free slot in the order of its stream, and looked at
//! once an event behind the copy is over: where that is a step later, nobody waits.
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

/// The slots, in memory that is another's.
#[derive(Clone, Debug)]
pub(super) struct Late {
    start: usize,
    taken: Arc<Mutex<[bool; SLOTS]>>,
}

impl Late {
    /// Their length.
    pub(super) const BYTES: usize = SLOTS * SLOT;

    /// In pinned memory from `start` on.
    pub(super) fn at(start: usize) -> Self {
        Self { start, taken: Arc::default() }
    }

    /// A slot for so many bytes: its number, and where it starts. None where they are too many, or too many are under way.
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
    /// Behind the copy.
    pub(super) event: Event,
}

impl InSlot {
    fn arrive(&self) -> Result<(), GpuError> {
        self.device.enter()?;
        while !self.event.is_over()? {
            thread::yield_now();
        }
        // Only a wait lets the driver's pool give memory that this stream has freed to another stream. Without it the pool grows by a
        // mini-batch at every step.
        self.event.wait()
    }
}

impl Arriving for InSlot {
    fn wait(&mut self) -> Result<Vec<u8>, GpuError> {
        self.arrive()?;
        let start = (self.late.start + self.slot * SLOT) as *const u8;
        // SAFETY: the slot is this one's, and as many bytes were copied there.
        Ok(unsafe { std::slice::from_raw_parts(start, self.bytes) }.to_vec())
    }
}

impl Drop for InSlot {
    fn drop(&mut self) {
        // Nobody else writes there before the copy is over; after a failure it is.
        let _ = self.arrive();
        self.late.give_back(self.slot);
    }
}

// SAFETY: the driver's handles may be used by any thread that has made the context its own.
unsafe impl Send for InSlot {}
