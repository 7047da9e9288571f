//! Distinct vertices of a batch and the position of each occurrence among them.
//!
//! Contract, on every device: distinct vertices come in the order of their first occurrence, so the
//! numbering does not depend on thread count; a frontier that comes first keeps its own order.
//! Memory is proportional to the batch, never to the graph.

mod cpu;
pub(crate) mod cuda;

pub use cpu::unique;
pub(crate) use cuda::{DeviceNumbering, Items};
