//! Distinct vertices of a batch and the position of each occurrence among them.
//!
//! Contract, on every device: distinct vertices come in the order of their first occurrence, so the numbering does
//! not depend on thread count; a frontier that comes first keeps its own order. Memory is proportional to the batch,
//! never to the graph.

mod cpu;

pub use cpu::{unique, unique_frontier_first};

/// A frontier extended by its sampled neighbours, and the neighbours renumbered into it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Relabelled {
    /// The mixed frontier: the frontier, then every other neighbour once, in order of first occurrence.
    pub mixed: Vec<u32>,
    /// `mixed[local[i]]` is `neighbours[i]`.
    pub local: Vec<u32>,
}
