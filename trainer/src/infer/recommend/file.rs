//! File of recommendations: `.parquet` or `.csv`, by its extension.
//!
//! ```text
//! source   original id: int64 or string
//! rank     int32, from 1
//! target   original id
//! score    float32
//! ```
//! The rows of a source follow one another, the best first.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Float32Array, Int32Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use gsplit_store::Error as StoreError;
use gsplit_store::staging::{Staging, Target};
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;

use super::Candidate;
use crate::Result;
use crate::infer::table::{OutputFormat, OutputIds, csv_field, failed, id_column, parquet_file};

/// Number of rows written at once.
const ROWS: usize = 1 << 16;
/// Approximate bytes of a row before compression.
const ROW_BYTES: usize = 40;

/// A file of recommendations under construction. If it is dropped before [`Self::finish`], no file is left.
pub struct RecommendationFile<'a> {
    ids: &'a OutputIds,
    staging: Staging,
    writer: FileWriter,
    rows: Pending,
}

enum FileWriter {
    Csv(BufWriter<File>),
    Parquet(Box<ArrowWriter<File>>, Arc<Schema>),
}

/// Rows that are not written yet.
#[derive(Default)]
struct Pending {
    sources: Vec<u32>,
    ranks: Vec<i32>,
    targets: Vec<u32>,
    scores: Vec<f32>,
}

impl<'a> RecommendationFile<'a> {
    /// Supported formats.
    pub const FORMATS: [OutputFormat; 2] = [OutputFormat::Parquet, OutputFormat::Csv];

    /// Creates the file at `out`. Replaces an existing file only with `force`.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) for another extension; [`Error::Store`](crate::Error::Store) if `out` exists.
    pub fn begin(out: &Path, ids: &'a OutputIds, force: bool) -> Result<Self> {
        let is_csv = OutputFormat::of("--out", out, &Self::FORMATS)? == OutputFormat::Csv;
        let staging = Staging::begin(Target::file(out), force)?;
        let path = staging.file();
        let writer = if is_csv {
            let mut file = BufWriter::new(File::create(&path).map_err(StoreError::io(&path))?);
            file.write_all(b"source,rank,target,score\n").map_err(StoreError::io(&path))?;
            FileWriter::Csv(file)
        } else {
            let fields = [
                ("source", ids.data_type()),
                ("rank", DataType::Int32),
                ("target", ids.data_type()),
                ("score", DataType::Float32),
            ];
            let fields = fields.map(|(name, data_type)| Field::new(name, data_type, false));
            let schema = Arc::new(Schema::new(fields.to_vec()));
            FileWriter::Parquet(Box::new(parquet_file(&path, &schema, ROW_BYTES)?), schema)
        };
        Ok(Self { ids, staging, writer, rows: Pending::default() })
    }

    /// Appends the rows of `source`.
    pub fn push(&mut self, source: u32, best: &[Candidate]) -> Result<()> {
        for (candidate, rank) in best.iter().zip(1..) {
            self.rows.sources.push(source);
            self.rows.ranks.push(rank);
            self.rows.targets.push(candidate.target);
            self.rows.scores.push(candidate.score);
        }
        if self.rows.sources.len() >= ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let Pending { sources, ranks, targets, scores } = std::mem::take(&mut self.rows);
        let path = self.staging.file();
        match &mut self.writer {
            FileWriter::Csv(out) => {
                for (((&source, rank), &target), score) in sources.iter().zip(ranks).zip(&targets).zip(scores) {
                    let [source, target] = [csv_field(&self.ids.text(source)?), csv_field(&self.ids.text(target)?)];
                    writeln!(out, "{source},{rank},{target},{score}").map_err(StoreError::io(&path))?;
                }
            }
            FileWriter::Parquet(out, schema) => {
                let ends = [id_column(self.ids, &sources)?, id_column(self.ids, &targets)?];
                let [source, target] = ends;
                let (rank, score) = (Arc::new(Int32Array::from(ranks)), Arc::new(Float32Array::from(scores)));
                let batch = RecordBatch::try_new(schema.clone(), vec![source, rank, target, score]);
                let batch = batch.map_err(ParquetError::from).and_then(|batch| out.write(&batch));
                batch.map_err(|error| failed(&path, error))?;
            }
        }
        Ok(())
    }

    /// Completes the file, which the caller makes visible.
    pub fn finish(mut self) -> Result<Staging> {
        self.flush()?;
        let path = self.staging.file();
        let file = match self.writer {
            FileWriter::Csv(out) => out.into_inner().map_err(|error| StoreError::io(&path)(error.into_error()))?,
            FileWriter::Parquet(out, _) => out.into_inner().map_err(|error| failed(&path, error))?,
        };
        file.sync_all().map_err(StoreError::io(&path))?;
        Ok(self.staging)
    }
}
