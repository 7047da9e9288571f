//! Streaming rows into a new feature file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::types::{Float16Type, Float32Type, Int8Type, UInt16Type};
use arrow_array::{ArrayRef, FixedSizeListArray, PrimitiveArray, RecordBatch};
use arrow_buffer::{Buffer, MutableBuffer, ScalarBuffer};
use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{ArrowError, Schema};

use super::narrow::{Loss, Narrow, Narrowing, narrow};
use super::{FeatureDtype, FeatureTable, ROWS_PER_BATCH, item, schema};
use crate::arrow::arrow_error;
use crate::checksum::HashingWriter;
use crate::{Error, FileRecord, Result};

/// Streams rows into a new feature file, and measures what narrowing them costs.
pub struct FeatureWriter {
    path: PathBuf,
    dtype: FeatureDtype,
    dim: usize,
    schema: Arc<Schema>,
    writer: FileWriter<HashingWriter<BufWriter<File>>>,
    pending: Vec<f32>,
    rows: u64,
    loss: Loss,
}

impl std::fmt::Debug for FeatureWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, rows) = (&self.path, self.rows);
        f.debug_struct("FeatureWriter").field("path", path).field("rows", &rows).finish_non_exhaustive()
    }
}

/// A feature file that is written.
#[derive(Clone, Debug)]
pub struct WrittenFeatures {
    /// Number of rows.
    pub rows: u64,
    /// The file's record.
    pub record: FileRecord,
    /// Loss by narrowing; `None` for f32.
    pub narrowing: Option<Narrowing>,
}

impl FeatureWriter {
    /// Creates the file at `path` (folders included) for rows of `dim` values stored as `dtype`.
    pub fn create(path: impl AsRef<Path>, dtype: FeatureDtype, dim: usize) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let width = i32::try_from(dim).ok().filter(|&width| width > 0);
        let width =
            width.ok_or_else(|| Error::Invalid(format!("features of {dim} values a row: expected 1 to 2^31-1")))?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
        }
        let file = File::create(&path).map_err(Error::io(&path))?;
        let out = HashingWriter::new(BufWriter::with_capacity(1 << 20, file));
        let schema = Arc::new(schema(dtype, width));
        let writer = IpcWriteOptions::try_new(64, false, MetadataVersion::V5)
            .and_then(|options| FileWriter::try_new_with_options(out, &schema, options))
            .map_err(|error| arrow_error(&path, error))?;
        Ok(Self { path, dtype, dim, schema, writer, pending: Vec::new(), rows: 0, loss: Loss::default() })
    }

    /// Values of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Type of the stored values.
    pub fn dtype(&self) -> FeatureDtype {
        self.dtype
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends whole rows, row after row. A finite value that the type cannot hold is refused, as is any other with i8.
    pub fn push_rows(&mut self, values: &[f32]) -> Result<()> {
        if !values.len().is_multiple_of(self.dim) {
            let (found, dim) = (values.len(), self.dim);
            return Err(Error::Invalid(format!("{}: {found} values are not whole rows of {dim}", self.path.display())));
        }
        let full = ROWS_PER_BATCH * self.dim;
        let mut rest = values;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(full - self.pending.len()));
            rest = later;
            if now.len() == full {
                self.write_batch(now)?;
                continue;
            }
            self.pending.extend_from_slice(now);
            if self.pending.len() == full {
                self.flush_batch()?;
            }
        }
        Ok(())
    }

    /// Appends the rows of `vertices` bit for bit from `table`, which has the same type and width. Callers that call it
    /// again, or also push rows, must pass whole batches of [`ROWS_PER_BATCH`] before. The loss by narrowing is not known.
    pub(crate) fn copy_rows(&mut self, table: &FeatureTable, vertices: &[u32]) -> Result<()> {
        for batch in vertices.chunks(ROWS_PER_BATCH) {
            let mut bytes = MutableBuffer::new(batch.len() * self.dim * self.dtype.bytes());
            batch.iter().for_each(|&v| bytes.extend_from_slice(table.row::<u8>(v)));
            let bytes = Buffer::from(bytes);
            let values: ArrayRef = match self.dtype {
                FeatureDtype::F32 => Arc::new(PrimitiveArray::<Float32Type>::new(bytes.into(), None)),
                FeatureDtype::F16 => Arc::new(PrimitiveArray::<Float16Type>::new(bytes.into(), None)),
                FeatureDtype::Bf16 => Arc::new(PrimitiveArray::<UInt16Type>::new(bytes.into(), None)),
                FeatureDtype::I8 => Arc::new(PrimitiveArray::<Int8Type>::new(bytes.into(), None)),
            };
            let scales: Vec<f32> = batch.iter().map(|&v| table.scale(v)).collect();
            let scales = || Arc::new(PrimitiveArray::<Float32Type>::new(scales.into(), None)) as ArrayRef;
            self.write_arrays(batch.len(), values, (self.dtype == FeatureDtype::I8).then(scales))?;
        }
        Ok(())
    }

    fn flush_batch(&mut self) -> Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        if !pending.is_empty() {
            self.write_batch(&pending)?;
        }
        pending.clear();
        self.pending = pending;
        Ok(())
    }

    fn write_batch(&mut self, rows: &[f32]) -> Result<()> {
        let (values, scales) = self.stored(rows)?;
        self.write_arrays(rows.len() / self.dim, values, scales)
    }

    fn write_arrays(&mut self, rows: usize, values: ArrayRef, scales: Option<ArrayRef>) -> Result<()> {
        let dim = self.dim as i32;
        let write = || -> Result<(), ArrowError> {
            let list = FixedSizeListArray::try_new(item(values.data_type().clone()), dim, values, None)?;
            let columns = std::iter::once(Arc::new(list) as ArrayRef).chain(scales).collect();
            self.writer.write(&RecordBatch::try_new(self.schema.clone(), columns)?)
        };
        write().map_err(|error| arrow_error(&self.path, error))?;
        self.rows += rows as u64;
        Ok(())
    }

    /// The arrays that hold `rows`.
    fn stored(&mut self, rows: &[f32]) -> Result<(ArrayRef, Option<ArrayRef>)> {
        if self.dtype == FeatureDtype::F32 {
            let values = ScalarBuffer::from(Buffer::from_slice_ref(rows));
            return Ok((Arc::new(PrimitiveArray::<Float32Type>::new(values, None)), None));
        }
        let (narrow, loss) = narrow(rows, self.dim, self.dtype).map_err(|(row, value)| {
            let (row, dtype) = (self.rows + row as u64, self.dtype);
            Error::Invalid(format!("feature {value} in row {row} does not fit {dtype}: store the features as f32"))
        })?;
        self.loss.add(loss);
        Ok(match narrow {
            Narrow::Bits(bits) if self.dtype == FeatureDtype::F16 => {
                let values = ScalarBuffer::from(Buffer::from_vec(bits));
                (Arc::new(PrimitiveArray::<Float16Type>::new(values, None)), None)
            }
            Narrow::Bits(bits) => (Arc::new(PrimitiveArray::<UInt16Type>::new(bits.into(), None)), None),
            Narrow::Scaled(bytes, scales) => {
                let scales = Arc::new(PrimitiveArray::<Float32Type>::new(scales.into(), None));
                (Arc::new(PrimitiveArray::<Int8Type>::new(bytes.into(), None)), Some(scales))
            }
        })
    }

    /// Writes the footer and fsyncs.
    pub fn finish(mut self) -> Result<WrittenFeatures> {
        self.flush_batch()?;
        let out = self.writer.into_inner().map_err(|error| arrow_error(&self.path, error))?;
        let (mut buffer, bytes, checksum) = out.finish();
        buffer.flush().and_then(|()| buffer.get_ref().sync_all()).map_err(Error::io(&self.path))?;
        let narrowing = (self.dtype != FeatureDtype::F32).then(|| self.loss.report());
        Ok(WrittenFeatures { rows: self.rows, record: FileRecord { bytes, checksum }, narrowing })
    }
}
