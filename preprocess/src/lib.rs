//! From raw graphs to dataset directories, and from datasets to pre-sample counters.
//!
//! ```text
//! read (text, arrays, tables)     ──▶ csc (sort, merge, symmetrise) ──▶ gsplit_store::DatasetWriter
//! generate (R-MAT, community)    ──▶        "                               "
//! embed (features for graphs that come without)                            "
//! presample (the training sampler, counted)                       ──▶ gsplit_store::Presample
//! ```
//!
//! ```
//! use gsplit_preprocess::convert::{ConvertOptions, convert};
//! use gsplit_store::NoProgress;
//!
//! let folder = tempfile::tempdir()?;
//! let (edges, out) = (folder.path().join("edges.csv"), folder.path().join("ds"));
//! std::fs::write(&edges, "source,target\n0,1\n0,2\n1,0\n")?;
//! let (dataset, _) = convert(&edges, &out, &ConvertOptions::default(), false, &NoProgress)?;
//! assert_eq!((dataset.topology().in_neighbours(1), dataset.topology().in_neighbours(2)), (&[0][..], &[0][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
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
