//! Raw graphs, one file per format. Every reader streams its input and hands over a [`Raw`].
//!
//! ```text
//! snap      edge list, plain or gz ──▶ text (blocks of lines, in parallel) ──▶ ids (compaction) ──▶ Raw
//! ogb_csv   raw/*.csv.gz           ──▶ text                                                     ──▶ Raw
//! ogb_npz   raw/*.npz              ──▶ npz (members as streams)                                 ──▶ Raw
//! splits    split/NAME/*.csv.gz, or drawn at random
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gsplit_store::{FeatureDtype, FeatureWriter, Progress};

use crate::{Error, Result};

mod field;
mod ids;
mod npz;
mod ogb_csv;
mod ogb_npz;
pub mod raw;
mod splits;
mod text;

pub(crate) mod ogb;
pub(crate) mod snap;

pub use ogb::OgbSource;
pub use snap::SnapSource;
pub use splits::RandomSplit;

use splits::Splits;

/// A raw graph with everything in memory but its features.
pub(crate) struct Raw {
    /// `n`.
    pub num_vertices: usize,
    /// Where every edge comes from.
    pub sources: Vec<u32>,
    /// Where every edge leads.
    pub targets: Vec<u32>,
    /// The input's id of every vertex, where ids were changed.
    pub original_ids: Option<Vec<u64>>,
    /// One class a vertex, -1 for unlabelled.
    pub labels: Option<Vec<i32>>,
    /// The input's own splits.
    pub splits: Option<Splits>,
    /// Where the feature rows lie.
    pub features: Option<RawFeatures>,
    /// What was counted while reading.
    pub facts: BTreeMap<String, u64>,
}

/// Refuses a number of vertices that only a damaged count or id explains, before memory is asked for.
fn check_size(path: &Path, num_vertices: usize, num_edges: u64) -> Result<()> {
    const ALWAYS_FINE: usize = 1 << 26;
    if num_vertices <= ALWAYS_FINE || num_vertices as u64 / 64 <= num_edges {
        return Ok(());
    }
    let problem = format!(
        "{num_vertices} vertices and only {num_edges} edges: expected an edge for every 64 vertices; check the counts and ids"
    );
    Err(Error::input(path, problem))
}

/// Feature rows that still lie in the raw input.
pub(crate) struct RawFeatures {
    /// Values of a row.
    pub dim: usize,
    path: PathBuf,
    read: ReadFeatures,
}

/// Streams `num_vertices` rows of `dim` values from a file into the writer.
type ReadFeatures = fn(&Path, &FeatureShape, &mut FeatureWriter, &dyn Progress) -> Result<()>;

/// What feature rows must look like.
struct FeatureShape {
    num_vertices: usize,
    dim: usize,
    dtype: FeatureDtype,
}

impl RawFeatures {
    /// Streams all rows into `writer`, which stores them as `dtype`. Fails where a row is not `dim` finite values that
    /// `dtype` can hold, or the rows are not `num_vertices`.
    pub fn write(
        &self,
        num_vertices: usize,
        dtype: FeatureDtype,
        writer: &mut FeatureWriter,
        progress: &dyn Progress,
    ) -> Result<()> {
        (self.read)(&self.path, &FeatureShape { num_vertices, dim: self.dim, dtype }, writer, progress)
    }
}
