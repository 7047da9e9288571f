//! Reusable memory for activations and gradients.
//!
//! Every mini-batch needs about the same tensors as the one before. A [`Buffer`] takes the smallest
//! free piece of memory that holds it without waste and gives it back when it is dropped, with the
//! tensor on it if there was one. Sizes are multiples of an eighth of a power of two, so that
//! mini-batches of similar size request equal sizes. When free and used pieces together exceed the
//! peak use by more than a third, free pieces are released, the longest unused first. With a limit
//! of a quarter, two matrices of each mini-batch found no free piece.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tch::Tensor;

use super::raw::{Pages, adopt};
use crate::Result;

/// Pieces with fewer values than this are left to the allocator, which serves them quickly.
const SMALLEST: usize = 1 << 14;
/// A piece may be this many times larger than needed.
const WASTE: usize = 2;

static POOL: Mutex<Pool<Pages>> = Mutex::new(Pool::new());

/// A pool of free memory. Lengths are numbers of values.
///
/// A piece is either pages or nothing; a pool of nothing predicts the memory of a sequence of
/// allocations.
#[derive(Debug, Default)]
pub struct Pool<P> {
    /// Lengths and pieces, in the order in which they were given back.
    free: Vec<(usize, P)>,
    in_use: usize,
    /// Peak of `in_use`.
    most: usize,
}

fn pool() -> MutexGuard<'static, Pool<Pages>> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Peak number of values that the matrices of this process held at once.
pub fn most_values_held() -> usize {
    pool().most
}

/// Memory for `f32` values to write; its initial contents are arbitrary.
#[derive(Default)]
pub struct Buffer {
    /// `None` only during `drop`.
    pages: Option<Pages>,
    len: usize,
}

impl Buffer {
    /// Allocates room for `len` values.
    pub fn new(len: usize) -> Result<Self> {
        if len < SMALLEST {
            return Ok(Self { pages: Some(Pages::zeroed(len)?), len });
        }
        let reused = pool().take(len);
        let pages = match reused {
            Some((_, pages)) => pages,
            None => Pages::zeroed(size_class(len))?,
        };
        pool().lend(pages.len());
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
            let gone = pool().give_back(pages.len(), pages);
            drop(gone);
        }
    }
}

/// The smallest length of a piece for `len` values: a multiple of an eighth of the power of two at
/// or below `len`.
fn size_class(len: usize) -> usize {
    let eighth = (1usize << len.max(8).ilog2()) / 8;
    len.checked_next_multiple_of(eighth).unwrap_or(len)
}

impl Pool<()> {
    /// Takes or makes a piece for `len` values and returns its length; 0 if the allocator serves so
    /// small a length.
    pub fn take_or_make(&mut self, len: usize) -> usize {
        if len < SMALLEST {
            return 0;
        }
        let piece = self.take(len).map_or_else(|| size_class(len), |(piece, ())| piece);
        self.lend(piece);
        piece
    }
}

impl<P> Pool<P> {
    /// Creates an empty pool.
    pub const fn new() -> Self {
        Self { free: Vec::new(), in_use: 0, most: 0 }
    }

    /// Peak number of values in use.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Number of values in use and free.
    pub fn kept(&self) -> usize {
        self.in_use + self.free.iter().map(|(len, _)| len).sum::<usize>()
    }

    /// The smallest free piece that holds `len` values without waste.
    fn take(&mut self, len: usize) -> Option<(usize, P)> {
        let fits = size_class(len)..size_class(len).saturating_mul(WASTE);
        let lengths = self.free.iter().map(|(len, _)| len).enumerate();
        let best = lengths.filter(|(_, len)| fits.contains(len)).min_by_key(|(_, len)| **len);
        best.map(|(at, _)| at).map(|at| self.free.remove(at))
    }

    fn lend(&mut self, len: usize) {
        self.in_use += len;
        self.most = self.most.max(self.in_use);
    }

    /// Takes a `piece` of length `len` back and returns the pieces to release.
    pub fn give_back(&mut self, len: usize, piece: P) -> Vec<(usize, P)> {
        self.in_use = self.in_use.saturating_sub(len);
        self.free.push((len, piece));
        let mut beyond = self.kept().saturating_sub(self.most + self.most / 3);
        let gone = self.free.iter().take_while(|(len, _)| {
            let goes = beyond > 0;
            beyond = beyond.saturating_sub(*len);
            goes
        });
        let gone = gone.count();
        self.free.drain(..gone).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(pool: &mut Pool<Pages>, len: usize) -> Pages {
        let reused = pool.take(len).map(|(_, pages)| pages);
        let pages = reused.unwrap_or_else(|| Pages::zeroed(size_class(len)).unwrap());
        pool.lend(pages.len());
        pages
    }

    #[test]
    fn a_batch_of_about_the_same_size_makes_nothing_new() {
        let mut pool = Pool::new();
        let batch = |pool: &mut Pool<Pages>, sizes: [usize; 4]| -> Vec<*const f32> {
            let pieces = sizes.map(|len| piece(pool, len));
            let places = pieces.iter().map(|pages| pages.as_slice().as_ptr()).collect();
            for (pages, len) in pieces.into_iter().zip(sizes) {
                assert!(pages.len() >= len);
                drop(pool.give_back(pages.len(), pages));
            }
            places
        };
        let first = batch(&mut pool, [100_000, 150_000, 200_000, 190_000]);
        let mut second = batch(&mut pool, [99_000, 151_000, 189_000, 201_000]);
        assert!(second.iter().all(|place| first.contains(place)), "{first:?} {second:?}");
        second.sort_unstable();
        second.dedup();
        assert_eq!(second.len(), 4, "no piece is in use twice");
    }

    #[test]
    fn what_is_kept_follows_what_was_in_use() {
        let mut pool = Pool::new();
        for shift in 0..6 {
            let pages = piece(&mut pool, SMALLEST << shift);
            drop(pool.give_back(pages.len(), pages));
            let kept: usize = pool.free.iter().map(|(len, _)| len).sum();
            assert!(kept <= (SMALLEST << shift) * 4 / 3, "{kept} kept after {}", SMALLEST << shift);
        }
        assert!(pool.take(SMALLEST).is_none(), "waste");
        assert!(pool.take(SMALLEST << 5).is_some());
    }
}
