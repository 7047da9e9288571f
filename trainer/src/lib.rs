//! Training: one loop for every parallelism, from a dataset directory and a partition map to a model.
//!
//! Read in this order: [`train()`] (epochs) → `epoch` (mini-batches) → `step` (loss, update) → `batch` (seeds, sampling): one mini-batch
//! in 450 lines. What they stand on: `setup` (what a run needs, opened and checked) → `pipeline` (mini-batches ahead of time) →
//! `source` (feature rows) → `pass` (forward, backward) → `exchange` (rows between ranks) → `model` (what a model author writes).
//!
//! Who computes what is a row of the table in `config/parallelism.rs`; `batch/frontiers.rs` makes of it an owner for every
//! frontier. A system that needs more than that has a file in `strategy`.
//!
//! Which columns of the edges weigh them says `columns`, what is drawn more often `batch::near` and `locality`.
//! What is learnt says `task`, how it is scored `metric` and `evaluate`; `infer` runs a model over a whole graph, for [`infer()`] and
//! for the evaluation while training. Where a rank computes says its [`Place`], the host or a GPU; `cache` says which feature rows
//! GPUs keep, `topology` where they read the graph, `dry_run` how much memory there is for both. Ranks are threads (`ranks`) or
//! processes (`process`, `rendezvous`) on one host or several (`hosts`), which may hold the rows of their
//! own vertices alone (`shard`), and talk through their `comms`.
//!
//! A room imports none that imports it, by way of others either: a test sees to it.
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

mod advice;
mod autograd;
pub mod batch;
mod cache;
mod checkpoint;
mod columns;
mod comms;
mod config;
mod dry_run;
mod epoch;
mod error;
mod evaluate;
mod exchange;
mod hosts;
mod ids;
mod infer;
mod job;
mod labels;
mod locality;
mod log;
mod metric;
pub mod model;
pub mod operator;
mod optimizer;
mod options;
mod partition;
mod pass;
mod pipeline;
mod places;
mod process;
mod ranks;
mod rates;
mod rendezvous;
mod report;
mod setup;
mod shard;
mod source;
mod step;
mod stopping;
mod strategy;
mod task;
#[cfg(test)]
mod tests;
mod topology;
mod traffic;
mod train;

pub use cache::CacheSummary;
pub use config::{
    ConfigOption, CooperativeConfig, Device, DrawConfig, DrawFactor, DrawKind, Dtype, ExchangeKind, FeatureNorm,
    JumpingKnowledge, ModelConfig, ModelKind, NormKind, OptimizerConfig, OptimizerKind, Parallelism, ScheduleConfig,
    ScheduleKind, ScorerKind, Sums, TaskConfig, TaskKind, TrainConfig,
};
pub use error::{Error, Result};
pub use exchange::{Exchange, NO_VERTEX, Shuffled};
#[cfg(feature = "mpi")]
pub use gsplit_kernels::MpiWorld;
pub use infer::{InferConfig, InferSummary, Predict, Wanted, ids_beside, infer};
pub use locality::next_draw_factor;
pub use log::{foreign_events, is_csv_log, is_json_log};
pub use metric::Metric;
pub use operator::{GpuList, OwnPlaces, Place};
pub use options::{FeatureStorage, RowPlacement, RunOptions, TopologyStorage};
pub use process::Process;
pub use rates::{GpuRates, PairRate, Rates};
pub use rendezvous::Rendezvous;
pub use report::{EpochReport, LayerRows, Summary, Timings, Work};
pub use traffic::{Phase, Traffic};
pub use train::train;
