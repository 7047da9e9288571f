//! What a run tells and keeps: counters, logs, checkpoints.

pub mod checkpoint;
mod counters;
pub mod log;
pub mod stopping;

pub use counters::*;
