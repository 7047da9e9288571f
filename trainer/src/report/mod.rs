//! Reports of a run: counters, logs, checkpoints.

pub mod baseline;
pub mod checkpoint;
mod counters;
pub mod log;
pub mod stopping;

pub use counters::*;
