//! gsplit's sampler and gather for Python: the base of `gsplit.NeighborLoader` and the loaders of
//! `gsplit.torch`.
//!
//! ```text
//! lib.rs      the module                       batch.rs     a mini-batch: seeds, layers, rows
//! loader.rs   what Python holds                subgraph.rs  layers as one graph, each vertex expanded once
//! arrays.rs   Rust's memory as NumPy arrays    rows.rs      feature rows and labels
//! carried.rs  messages between ranks           memory.rs    memory of rows that is used again
//! links.rs    edges held out, and pairs        on_gpu.rs    layers that a GPU samples
//! types.rs    layers between several types of vertices
//! partition.rs  partitions of graphs in memory
//! ```
//!
//! Draws equal those of `gsplit train` and `gsplit presample` with the same seed: the keys come
//! from [`gsplit_kernels::schedule`]. Everything is computed without Python's lock, on threads that
//! belong to one epoch of one loader.

mod arrays;
mod batch;
mod carried;
mod links;
mod loader;
mod memory;
mod on_gpu;
mod partition;
mod rows;
mod subgraph;
mod types;

use pyo3::prelude::*;

/// The module `gsplit._native`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::arrays::{Batch, ByType, Layer, Moved, Pairs};
    #[pymodule_export]
    use crate::loader::{Epoch, Loader};
    #[pymodule_export]
    use crate::on_gpu::GpuArray;
    #[pymodule_export]
    use crate::partition::partition;
}
