//! Points in the order of a stream's work.
//!
//! Unsafe code of this file: calls of the driver's C functions.
#![allow(unsafe_code)]

use cudarc::driver::{result, sys};

use super::GpuError;
use super::driver::refused;

/// Point in a stream's work after everything launched until now. The driver keeps it alive for
/// streams that wait for it.
#[derive(Debug)]
pub(super) struct Event(sys::CUevent);

// SAFETY: an event belongs to no thread.
unsafe impl Send for Event {}

impl Event {
    /// An event at the end of `stream`, whose context is the calling thread's.
    ///
    /// # Safety
    /// The stream is alive.
    pub(super) unsafe fn record(stream: sys::CUstream) -> Result<Self, GpuError> {
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
        let event = Self(event.map_err(refused("cuEventCreate"))?);
        // SAFETY: the event was created in the stream's context; the stream is alive.
        unsafe { result::event::record(event.0, stream) }.map_err(refused("cuEventRecord"))?;
        Ok(event)
    }

    /// Holds `stream`, of the calling thread's context: work launched on it from now on starts
    /// after this event, which may be of another context.
    ///
    /// # Safety
    /// The stream is alive.
    pub(super) unsafe fn hold(&self, stream: sys::CUstream) -> Result<(), GpuError> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both are alive.
        unsafe { result::stream::wait_event(stream, self.0, flags) }
            .map_err(refused("cuStreamWaitEvent"))
    }

    /// Whether the stream has passed the event; its context is the calling thread's.
    pub(super) fn is_over(&self) -> Result<bool, GpuError> {
        // SAFETY: the event is alive.
        match unsafe { sys::cuEventQuery(self.0) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            outcome => outcome.result().map(|()| true).map_err(refused("cuEventQuery")),
        }
    }

    /// Waits until the stream has passed the event; its context is the calling thread's. Memory
    /// that the stream freed before then counts as free for the driver's pool, which the query of
    /// [`Event::is_over`] does not achieve.
    pub(super) fn wait(&self) -> Result<(), GpuError> {
        // SAFETY: the event is alive.
        unsafe { sys::cuEventSynchronize(self.0) }.result().map_err(refused("cuEventSynchronize"))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it was created, and is destroyed once.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}
