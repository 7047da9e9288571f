//! Memory of feature rows, used again once Python has dropped the array that shows it.
//!
//! The rows of a mini-batch are tens of megabytes. Fresh memory of that size costs a page fault for every 4 KiB, which takes longer than
//! copying the rows there. So a loader keeps what Python has given back, a few buffers at most.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use numpy::PyArray1;
use numpy::ndarray::ArrayView1;
use pyo3::prelude::*;

/// Buffers that are free.
#[derive(Default)]
pub struct Pool {
    free: Mutex<Vec<Vec<f32>>>,
    most: usize,
}

impl Pool {
    /// One that keeps up to `most` free buffers.
    pub fn new(most: usize) -> Self {
        Self { free: Mutex::default(), most }
    }

    /// A buffer of at least `len` values, which hold anything.
    pub fn take(&self, len: usize) -> Vec<f32> {
        let mut values = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        if values.len() < len {
            // Sizes differ a little from one mini-batch to the next.
            values.reserve_exact(len + len / 16 - values.len());
            values.resize(len, 0.0);
        }
        values
    }

    fn give_back(&self, values: Vec<f32>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.most {
            free.push(values);
        }
    }
}

/// Owner of an array's memory, which goes back to the pool with the last array that shows it.
#[pyclass(frozen, module = "gsplit._native")]
pub struct Memory {
    values: Vec<f32>,
    pool: Arc<Pool>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.values));
    }
}

impl Memory {
    /// The first `len` values as an array, which owns them.
    pub fn into_array(
        py: Python<'_>,
        values: Vec<f32>,
        len: usize,
        pool: Arc<Pool>,
    ) -> PyResult<Bound<'_, PyArray1<f32>>> {
        let memory = Bound::new(py, Self { values, pool })?;
        let shown = ArrayView1::from(&memory.get().values[..len]);
        // SAFETY: the array holds a reference to `memory`, which neither moves, shrinks nor reads the values while it lives: its only
        // access to them is in `drop`, after the array is gone.
        Ok(unsafe { PyArray1::borrow_from_array(&shown, memory.clone().into_any()) })
    }
}
