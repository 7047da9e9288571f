//! Reports of a run: counters, logs, checkpoints.

pub mod checkpoint;
mod counters;
pub mod log;
pub mod notes;
pub mod stopping;

pub use counters::*;
