//! Memory for feature rows, reused once Python has dropped the array that shows it.
//!
//! The rows of a mini-batch are tens of megabytes. Fresh memory of that size costs a page fault per
//! 4 KiB, which takes longer than copying the rows. So a loader keeps the buffers that Python has
//! returned, a few at most.
//!
//! A GPU copies asynchronously only from pinned memory, which PyTorch allocates. Threads that
//! gather rows never call Python, so the first mini-batches use Rust's own memory; on receiving
//! one, Python allocates a buffer of the same size for a later mini-batch.
#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use numpy::ndarray::ArrayView1;
use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;

/// Memory for feature rows.
pub enum Buffer {
    Own(Vec<f32>),
    /// The values of an array, which is kept alive.
    Array(NonNull<[f32]>, #[expect(dead_code, reason = "it is only kept")] Py<PyArray1<f32>>),
}

// SAFETY: only the buffer uses the values of the array (`Pool::new`), so they can be moved and
// shared like a vector's.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Own(values) => values,
            // SAFETY: the array lives as long as the buffer, and nothing else uses its values.
            Self::Array(values, _) => unsafe { values.as_ref() },
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Own(values) => values,
            // SAFETY: as for `deref`.
            Self::Array(values, _) => unsafe { values.as_mut() },
        }
    }
}

/// Buffers that are free.
pub struct Pool {
    free: Mutex<Vec<Buffer>>,
    most: usize,
    allocate: Option<Py<PyAny>>,
}

impl Pool {
    /// A pool that keeps up to `most` free buffers. If `allocate` is given, they are the float32
    /// arrays that it makes for a number of values; nothing else may use such an array.
    pub fn new(most: usize, allocate: Option<Py<PyAny>>) -> Self {
        Self { free: Mutex::default(), most, allocate }
    }

    /// A buffer of at least `len` values, whose content is arbitrary.
    pub fn take(&self, len: usize) -> Buffer {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = free.iter().position(|values| values.len() >= len) {
            return free.swap_remove(place);
        }
        // A larger one takes the place of one that is too small.
        free.pop();
        // Sizes differ a little from one mini-batch to the next.
        Buffer::Own(vec![0.0; len + len / 16])
    }

    fn give_back(&self, values: Buffer) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.most
            && (self.allocate.is_none() || matches!(values, Buffer::Array(..)))
        {
            free.push(values);
        }
    }
}

/// Owner of an array's memory, which goes back to the pool with the last array that shows it.
#[pyclass(frozen, module = "gsplit._native")]
pub struct Memory {
    values: Buffer,
    pool: Arc<Pool>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::replace(&mut self.values, Buffer::Own(Vec::new())));
    }
}

impl Memory {
    /// The first `len` values as an array, which owns them.
    pub fn into_array(
        py: Python<'_>,
        values: Buffer,
        len: usize,
        pool: Arc<Pool>,
    ) -> PyResult<Bound<'_, PyArray1<f32>>> {
        if let (Buffer::Own(values), Some(allocate)) = (&values, &pool.allocate) {
            let array: Bound<'_, PyArray1<f32>> =
                allocate.bind(py).call1((values.len(),))?.cast_into()?;
            // SAFETY: nothing else uses the values (`Pool::new`).
            let place = NonNull::from(unsafe { array.as_slice_mut()? });
            pool.give_back(Buffer::Array(place, array.unbind()));
        }
        let memory = Bound::new(py, Self { values, pool })?;
        let shown = ArrayView1::from(&memory.get().values[..len]);
        // SAFETY: the array holds a reference to `memory`, which neither moves, shrinks nor reads
        // the values while it lives: its only access to them is in `drop`, after the array is gone.
        Ok(unsafe { PyArray1::borrow_from_array(&shown, memory.clone().into_any()) })
    }
}
