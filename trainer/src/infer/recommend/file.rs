//! File of recommendations: `.parquet` or `.csv`, by its extension.
//!
//! ```text
//! source   original id: int64 or string
//! rank     int32, from 1
//! target   original id
//! score    float32
//! ```
//! The rows of a source follow one another, the best first.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{Float32Array, Int32Array};
use arrow_schema::DataType;
use gsplit_store::staging::{Staging, Target};

use super::Candidate;
use crate::Result;
use crate::infer::table::{ColumnsFile, OutputFormat, OutputIds};

/// Approximate bytes of a row before compression.
const ROW_BYTES: usize = 40;

/// A file of recommendations under construction. If it is dropped before [`Self::finish`], no file
/// is left.
pub struct RecommendationFile<'a> {
    ids: &'a OutputIds,
    staging: Staging,
    file: ColumnsFile,
}

impl<'a> RecommendationFile<'a> {
    /// Supported formats.
    pub const FORMATS: [OutputFormat; 2] = [OutputFormat::Parquet, OutputFormat::Csv];

    /// Creates the file at `out`. Replaces an existing file only with `force`.
    pub fn begin(out: &Path, ids: &'a OutputIds, force: bool) -> Result<Self> {
        let format = OutputFormat::of("--out", out, &Self::FORMATS)?;
        let staging = Staging::begin(Target::file(out), force)?;
        let columns = [
            ("source", ids.data_type()),
            ("rank", DataType::Int32),
            ("target", ids.data_type()),
            ("score", DataType::Float32),
        ];
        let columns = columns.map(|(name, kind)| (name.to_string(), kind));
        let file = ColumnsFile::create(staging.file(), format, columns, ROW_BYTES)?;
        Ok(Self { ids, staging, file })
    }

    /// Appends the rows of each of `sources`, whose targets are `best`.
    pub fn push(&mut self, sources: &[u32], best: &[Vec<Candidate>]) -> Result<()> {
        let of = |(&source, best): (&u32, &'_ Vec<Candidate>)| vec![source; best.len()];
        let sources: Vec<u32> = sources.iter().zip(best).flat_map(of).collect();
        let ranks: Int32Array = best.iter().flat_map(|best| 1..=best.len() as i32).collect();
        let (targets, scores): (Vec<u32>, Vec<f32>) =
            best.iter().flatten().map(|candidate| (candidate.target, candidate.score)).unzip();
        let [source, target] =
            [sources, targets].map(|vertices| self.file.ids(self.ids, &vertices));
        self.file.push(vec![
            source?,
            Arc::new(ranks),
            target?,
            Arc::new(Float32Array::from(scores)),
        ])
    }

    /// Completes the file, which the caller makes visible.
    pub fn finish(self) -> Result<Staging> {
        self.file.finish()?;
        Ok(self.staging)
    }
}
