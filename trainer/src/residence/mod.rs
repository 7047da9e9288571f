//! Residence of graph and feature rows, and their way to the rank that computes.
//!
//! ```text
//! places.rs       the host or the GPU that a rank computes on
//! topology/       where a GPU reads the graph: its own memory, parts of it, the host's
//! cache/          which feature rows GPUs keep
//! source/         rows by vertex, from wherever they are stored
//! ```

pub mod cache;
pub mod places;
pub mod source;
pub mod topology;
