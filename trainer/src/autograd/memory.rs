//! Memory for activations and gradients that is used again.
//!
//! Every mini-batch needs about the same tensors as the one before. A [`Buffer`] takes the smallest free piece of memory
//! that holds it without waste and gives it back when it is dropped, with the tensor on it if there was one. Free
//! pieces that have become too small go when larger ones are made, so what is kept follows the largest mini-batch.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tch::Tensor;

use super::raw::{Pages, adopt};
use crate::Result;

/// Pieces below this many values are left to the allocator, which has them at hand.
const SMALLEST: usize = 1 << 14;
/// A piece may be this many times larger than needed.
const WASTE: usize = 2;

static FREE: Mutex<Vec<Pages>> = Mutex::new(Vec::new());

fn free() -> MutexGuard<'static, Vec<Pages>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `f32` values to write to; what they hold at first is arbitrary.
#[derive(Default)]
pub struct Buffer {
    /// `None` only while it is dropped.
    pages: Option<Pages>,
    len: usize,
}

impl Buffer {
    /// Room for `len` values.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) if `len` is beyond any memory.
    pub fn new(len: usize) -> Result<Self> {
        let reused = take(len);
        let pages = match reused {
            Some(pages) => pages,
            // The next mini-batch may be a little larger.
            None if len >= SMALLEST => Pages::zeroed(len.saturating_add(len / 8))?,
            None => Pages::zeroed(len)?,
        };
        Ok(Self { pages: Some(pages), len })
    }

    /// The values.
    pub fn as_slice(&self) -> &[f32] {
        self.pages.as_ref().map_or(&[], |pages| &pages.as_slice()[..self.len])
    }

    /// The values.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        let len = self.len;
        self.pages.as_mut().map_or(&mut [], |pages| &mut pages.as_mut_slice()[..len])
    }

    /// A tensor of `shape` on this memory, without copying.
    ///
    /// # Errors
    /// [`Error::Torch`](crate::Error::Torch) if `shape` holds more values.
    pub fn into_tensor(self, shape: &[i64]) -> Result<Tensor> {
        adopt(self, shape)
    }
}

impl AsMut<[f32]> for Buffer {
    fn as_mut(&mut self) -> &mut [f32] {
        self.as_mut_slice()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(pages) = self.pages.take() else { return };
        if pages.len() >= SMALLEST {
            free().push(pages);
        }
    }
}

/// The best free piece for `len` values; if all are too small, the largest that is nearly enough goes.
fn take(len: usize) -> Option<Pages> {
    if len < SMALLEST {
        return None;
    }
    let mut free = free();
    let pick = |from: usize, to: usize, largest: bool| {
        let within = free.iter().enumerate().filter(|(_, pages)| (from..to).contains(&pages.len()));
        let best = match largest {
            true => within.max_by_key(|(_, pages)| pages.len()),
            false => within.min_by_key(|(_, pages)| pages.len()),
        };
        best.map(|(at, _)| at)
    };
    let (fitting, outgrown) = (pick(len, len.saturating_mul(WASTE), false), pick(len / WASTE, len, true));
    if let Some(at) = fitting {
        return Some(free.swap_remove(at));
    }
    let gone = outgrown.map(|at| free.swap_remove(at));
    std::mem::drop(free);
    std::mem::drop(gone);
    None
}
