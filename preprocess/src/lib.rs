//! From raw graphs to dataset directories, and from datasets to pre-sample counters.
//!
//! ```text
//! read (text, arrays, tables)     ──▶ csc (sort, merge, symmetrise) ──▶ gsplit_store::DatasetWriter
//! generate (R-MAT, community)    ──▶        "                               "
//! embed (features for graphs that come without)                            "
//! presample (the training sampler, counted)                       ──▶ gsplit_store::Presample
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod convert;
pub mod csc;
mod disk;
pub mod edges;
pub mod embed;
mod error;
pub mod export;
pub mod generate;
pub mod memory;
pub mod presample;
pub mod read;

pub use error::{Error, Result};
