//! Training: one loop for every parallelism, from a dataset directory and a partition map to a model.
//!
//! Read in this order: [`train()`] (ranks and epochs) → `epoch` (mini-batches) → `step` (loss, update) → `pass` (forward,
//! backward) → `batch` (seeds, sampling, loading) → `exchange` (rows between ranks) → `model` (what a model author writes).
//!
//! A rank runs the same code whatever the parallelism: `split` exchanges rows with other ranks, `data` and `single`
//! own every vertex they touch and their exchange is the identity. The method is GSplit's (MLSys 2025, sections 4
//! and 5): see `batch::sample`.

// `autograd/raw.rs` allows it again, with its reasons.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

// For the example that a test runs.
#[cfg(test)]
extern crate self as gsplit_trainer;

mod autograd;
pub mod batch;
mod checkpoint;
mod config;
mod epoch;
mod error;
mod evaluate;
mod exchange;
mod job;
pub mod model;
pub mod operator;
mod optimizer;
mod pass;
mod report;
mod step;
#[cfg(test)]
mod tests;
mod train;

pub use batch::Ownership;
pub use config::{
    Device, JumpingKnowledge, ModelConfig, ModelKind, NormKind, OptimizerConfig, Parallelism, TrainConfig,
};
pub use error::{Error, Result};
pub use exchange::Exchange;
pub use report::{EpochReport, Summary, Timings};
pub use train::{RunOptions, train};
