//! Graph partitioning: which rank owns which vertex.
//!
//! ```text
//! weights (what a part may not have too much of) ─┐
//! adjacency (the symmetrised graph) ──────────────┼─▶ metis ─▶ spread ─▶ repair ─┐
//!                                                 │     random, hash ────────────┴─▶ cache order, report
//! ```
//!
//! [`partition()`] does all of it for a dataset; the caller stores the result with `PartitionMap::save`. [`mod@evaluate`]
//! measures stored maps on fresh mini-batches; [`placement`] decides which device caches which feature rows.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod adjacency;
mod baseline;
mod cache_order;
mod error;
pub mod evaluate;
mod metis;
mod multilevel;
mod options;
mod partition;
mod partitioner;
pub mod placement;
mod repair;
mod report;
mod spread;
#[cfg(test)]
mod tests;
mod weights;

use adjacency::Adjacency;
use partitioner::{Partitioner, Problem};
use weights::VertexWeights;

pub use error::{Error, Result};
pub use multilevel::Quality;
pub use options::{Load, Method, PartitionOptions, Weights};
pub use partition::{Partitioned, partition};
pub use report::cuts;
