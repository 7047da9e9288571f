//! Training: one loop for every parallelism, from a dataset directory and a partition map to a model.
//!
//! Read the modules in this order; each has one line:
//!
//! ```text
//! train.rs       a run: epochs, scores, checkpoints
//! epoch.rs       an epoch: mini-batches, one after the other
//! batch/         a mini-batch from its seeds to loaded rows: prepare = load(sample(seeds))
//! sample/        seeds to sampled layers, over all ranks: the host's by `gsplit_sample`, a GPU's here
//! step/          one mini-batch computed: forward, loss, backward, update
//! exchange/      rows between ranks, there and back
//! model/ task/ optimizer/    the layers, the training targets, the update of parameters
//! residence/     where the graph and the feature rows are stored
//! operator/ autograd/        tensors from kernels, and their gradients
//! ranks/         threads, processes and hosts that train together
//! job/           shared by all ranks of a run: options, columns, partition
//! run/           opens and checks all of the above
//! report/        counters, logs, checkpoints
//! config/        the user's options
//! metric/ evaluate/ infer/   scores, and predictions for a whole graph
//! rates/         how fast this machine is, for plans
//! ```
//!
//! The table in `config/parallelism.rs` says which rank computes which rows; `TrainConfig::frontiers` derives from it
//! the owner of every row of every frontier. A rank's [`Place`] says where it computes: on the host or on a GPU.
//!
//! No module imports one that imports it, directly or through others; a test checks this.
//!
//! Ranks run the same code under every parallelism: `split` exchanges rows with other ranks, `data` and `single`
//! own every vertex they touch and their exchange is the identity. The method is GSplit's (MLSys 2025, sections 4
//! and 5): see `gsplit_sample`.

// `autograd/raw.rs` and `ranks/c10d/raw.rs` allow it again and give their reasons.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

// For the documentation example that a test runs.
#[cfg(test)]
extern crate self as gsplit_trainer;

mod autograd;
mod batch;
mod config;
mod epoch;
mod error;
mod evaluate;
mod exchange;
mod infer;
mod job;
mod metric;
pub mod model;
pub mod operator;
mod optimizer;
mod ranks;
mod rates;
mod report;
mod residence;
mod run;
mod sample;
mod step;
mod task;
#[cfg(test)]
mod tests;
mod train;

pub use autograd::{Pool, most_values_held};
pub use config::{
    ClassWeights, ConfigOption, CooperativeConfig, Device, DrawConfig, DrawFactor, DrawKind, Dtype, FeatureNorm,
    JumpingKnowledge, ModelConfig, ModelKind, NormKind, NumberLoss, OptimizerConfig, OptimizerKind, Parallelism,
    ScheduleConfig, ScheduleKind, ScorerKind, TaskConfig, TaskKind, TrainConfig,
};
pub use error::{Error, Result};
pub use exchange::{Exchange, Shuffled};
pub use gsplit_store::Baseline;
pub use infer::{
    ChosenEpoch, InferConfig, InferSummary, JoinedModel, Predict, Recommended, Trained, Wanted, ids_beside, infer,
    scratch_folder,
};
pub use job::options::{FeatureStorage, RowPlacement, RunOptions, TopologyStorage};
pub use metric::{Metric, unscored};
pub use operator::{GpuList, OwnPlaces, Place};
pub use ranks::c10d::Meeting;
pub use ranks::process::Process;
pub use ranks::traffic::{Phase, Traffic};
pub use rates::{GpuRates, PairRate, Rates};
pub use report::log::{foreign_events, is_json_log};
pub use report::{DiskForecast, EpochReport, LayerRows, Summary, Timings, Work};
pub use residence::cache::CacheSummary;
pub use run::advice::left_behind;
pub use train::train;
