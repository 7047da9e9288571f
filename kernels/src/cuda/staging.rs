//! Pinned host memory through which copies go to a GPU.
//!
//! Idea: three pieces in turn. The bytes of an upload are copied into a piece, and the GPU fetches
//! them from there while the host goes on. A full piece is used again once the GPU has fetched all
//! of it. So an upload does not wait before 2 MiB are under way, and no copy starts in memory that
//! the driver would have to copy itself, at a third of the speed.
//!
//! Unsafe code of this file: copies into the memory, and calls of the driver's C functions.
#![allow(unsafe_code)]

use std::thread;

use cudarc::driver::{result, sys};

use super::GpuError;
use super::driver::refused;
use super::event::Event;

const PIECE: usize = 1 << 20;
const PIECES: usize = 3;

/// The memory of one stream, owned by another value.
#[derive(Debug)]
pub(super) struct Staging {
    start: usize,
    /// The piece that is being filled, and the number of bytes in it.
    piece: usize,
    filled: usize,
    /// Recorded after the last copy from each full piece.
    full: [Option<Event>; PIECES],
}

impl Staging {
    /// Length of the memory.
    pub(super) const BYTES: usize = PIECES * PIECE;

    /// Uses the pinned memory from `start` on.
    pub(super) fn at(start: usize) -> Self {
        Self { start, piece: 0, filled: 0, full: [const { None }; PIECES] }
    }

    /// Drops its events, before the device is closed; the context is the calling thread's.
    pub(super) fn end(&mut self) {
        self.full = [const { None }; PIECES];
    }

    /// Starts to copy `from` to `address`, on `stream`, whose context is the calling thread's.
    /// `from` may be changed afterwards.
    ///
    /// # Safety
    /// The memory on the device is as long; the stream is alive, and always the same.
    pub(super) unsafe fn upload(
        &mut self,
        stream: sys::CUstream,
        mut address: u64,
        mut from: &[u8],
    ) -> Result<(), GpuError> {
        while !from.is_empty() {
            if self.filled == PIECE {
                // SAFETY: as the caller says.
                self.full[self.piece] = Some(unsafe { Event::record(stream) }?);
                (self.piece, self.filled) = ((self.piece + 1) % PIECES, 0);
            }
            if let Some(event) = &self.full[self.piece] {
                while !event.is_over()? {
                    thread::yield_now();
                }
                self.full[self.piece] = None;
            }
            let (part, rest) = from.split_at(from.len().min(PIECE - self.filled));
            let to = (self.start + self.piece * PIECE + self.filled) as *mut u8;
            // SAFETY: the part fits into the piece, and no copy reads the piece beyond its filled
            // part any more.
            let staged = unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
                std::slice::from_raw_parts(to, part.len())
            };
            // SAFETY: as the caller says.
            unsafe { result::memcpy_htod_async(address, staged, stream) }
                .map_err(refused("cuMemcpyHtoDAsync"))?;
            // Each upload starts at an address that wide loads support.
            self.filled = PIECE.min((self.filled + part.len()).next_multiple_of(16));
            address += part.len() as u64;
            from = rest;
        }
        Ok(())
    }
}
