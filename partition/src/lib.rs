//! Graph partitioning: which rank owns which vertex.
//!
//! ```text
//! weights (limited in each part) ─────────────────┐
//! adjacency (the symmetrised graph) ──────────────┼─▶ metis ─▶ spread ─▶ repair ─┐
//!                                                 │     multilevel ─▶ repair     │
//!                                                 │     range, random, hash,     │
//!                                                 │     import ──────────────────┴─▶ cache order, report
//! ```
//!
//! [`partition()`] does all of it for a dataset; the caller stores the result with
//! `PartitionMap::save`. [`partition_graph`] cuts a graph in memory. [`mod@evaluate`] measures
//! stored maps on fresh mini-batches; [`placement`] decides which device caches which feature rows.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod adjacency;
mod baseline;
mod by_source;
mod cache_order;
mod error;
pub mod evaluate;
mod graph;
mod import;
mod layout;
mod loads;
mod metis;
mod multilevel;
mod options;
mod own;
mod partition;
mod partitioner;
mod pieces;
pub mod placement;
mod range;
mod repair;
mod report;
mod scramble;
mod spread;
mod symmetric;
#[cfg(test)]
mod tests;
mod weights;

use adjacency::Adjacency;
use layout::Layout;
use own::OwnWeights;
use partitioner::{Partitioner, Problem};
use weights::VertexWeights;

pub use error::{Error, Result};
pub use graph::{GraphOptions, partition_graph};
pub use import::{ImportOptions, Imported};
pub use multilevel::Quality;
pub use options::{Load, Method, PartitionOptions, Quantity, Weights};
pub use partition::{Partitioned, assess, partition};
