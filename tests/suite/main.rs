//! The whole of gsplit from outside: the binary on real input, bad input, interruption; and the
//! promises that span crates.

// A test that fails should say where.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bad_input;
mod benchmarks;
#[cfg(feature = "train")]
mod compare;
mod convert;
mod corpora;
mod damage;
mod doctor;
mod documents;
mod evaluate;
mod export;
mod faults;
#[cfg(feature = "train")]
mod first_run;
#[cfg(feature = "train")]
mod gpus;
mod inspect;
#[cfg(feature = "train")]
mod joined;
mod json;
mod layering;
mod markup;
#[cfg(feature = "train")]
mod memory;
#[cfg(feature = "train")]
mod numbers;
mod outputs;
mod own_weights;
mod partitioners;
#[cfg(feature = "train")]
mod pipeline;
mod place;
#[cfg(feature = "train")]
mod plan;
#[cfg(feature = "train")]
mod processes;
#[cfg(feature = "train")]
mod remedies;
mod report;
#[cfg(feature = "train")]
mod run;
mod setup;
mod shard;
mod size;
mod support;
#[cfg(feature = "train")]
mod tables;
#[cfg(feature = "train")]
mod train;
mod trust;
#[cfg(feature = "train")]
mod weights;
mod words;
