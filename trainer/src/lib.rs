//! Training: one loop for every parallelism, from a dataset directory and a partition map to a
//! model.
//!
//! A [`Config`] says what is learnt (`data`), by which `model`, on which ranks and devices
//! (`system`), and for how long (`run`); [`train`] takes it. A system is four choices, and
//! [`systems`] has those of each published one in a file of its own:
//!
//! 1. Which rank computes a vertex? [`Parallelism`]
//! 2. Which rank loads its feature row? The number of split layers
//! 3. Which rows are in the memory of GPUs? [`RowPlacement`]
//! 4. By which map are vertices owned? A partition map of the dataset
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
//! systems/       the published systems: four choices each
//! config/        the user's options
//! metric/ evaluate/ infer/   scores, and predictions for a whole graph
//! rates/         how fast this machine is, for plans
//! ```
//!
//! The names in `config/parallelism.rs` say which rank computes which rows; `Config::frontiers`
//! derives from it the owner of every row of every frontier. A rank's [`Place`] says where it
//! computes: on the host or on a GPU.
//!
//! No module imports one that imports it, directly or through others; a test checks this.
//!
//! Ranks run the same code under every parallelism: `split` exchanges rows with other ranks, `data`
//! and `single` own every vertex they touch and their exchange is the identity. The method is
//! GSplit's (MLSys 2025, sections 4 and 5): see `gsplit_sample`.
//!
//! ```no_run
//! use gsplit_store::{Dataset, NoProgress};
//! use gsplit_trainer::{Config, Hooks, Parallelism, train};
//!
//! let mut config = Config::default();
//! (config.system.parallelism, config.system.ranks) = (Parallelism::Split, Some(2));
//! config.run.epochs = 5;
//! let summary = train(&Dataset::open("products")?, &config, &Hooks::default(), &NoProgress, &|_| {})?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
pub mod systems;
mod task;
#[cfg(test)]
mod tests;
mod train;

pub use autograd::{Pool, most_values_held};
pub use config::{
    Betas, ClassWeights, Config, ConfigOption, CooperativeConfig, DataConfig, Device, DrawConfig,
    DrawFactor, DrawKind, Dtype, FeatureNorm, FeatureStorage, GpuList, JumpingKnowledge,
    ModelConfig, ModelKind, NormKind, NumberLoss, OptimizerConfig, OptimizerKind, Parallelism,
    Products, RowPlacement, RunConfig, ScheduleConfig, ScheduleKind, ScorerKind, SystemConfig,
    TaskConfig, TaskKind, TopologyStorage, name_of,
};
pub use error::{Error, Result};
pub use exchange::{Exchange, Shuffled};
pub use gsplit_store::Baseline;
pub use infer::{
    ChosenEpoch, InferConfig, InferSummary, JoinedModel, Predict, Recommended, Trained, Wanted,
    ids_beside, infer, scratch_folder,
};
pub use job::hooks::Hooks;
pub use metric::{Metric, unscored};
pub use operator::{OwnPlaces, Place};
pub use ranks::c10d::Meeting;
pub use ranks::process::Process;
pub use ranks::traffic::{Phase, Traffic};
pub use rates::{GpuRates, PairRate, Rates};
pub use report::log::{foreign_events, is_json_log};
pub use report::{EpochReport, LayerRows, Summary, Timings, Work};
pub use residence::cache::CacheSummary;
pub use run::advice::left_behind;
pub use train::train;
