//! Streaming rows into a new feature file.

use std::path::Path;
use std::sync::Arc;

use arrow_array::types::{Float16Type, Float32Type, Int8Type, UInt16Type};
use arrow_array::{ArrayRef, FixedSizeListArray, PrimitiveArray};
use arrow_buffer::{Buffer, MutableBuffer, ScalarBuffer};

use super::narrow::{Loss, Narrow, Narrowing, narrow};
use super::{FeatureDtype, FeatureTable, ROWS_PER_BATCH, item, schema};
use crate::arrow::ArrowWriter;
use crate::{Error, FileRecord, Result};

/// Streams rows into a new feature file, and measures what narrowing them costs.
#[derive(Debug)]
pub struct FeatureWriter {
    writer: ArrowWriter,
    dtype: FeatureDtype,
    dim: usize,
    pending: Vec<f32>,
    rows: u64,
    loss: Loss,
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
        let width = i32::try_from(dim).ok().filter(|&width| width > 0);
        let width = width.ok_or_else(|| {
            Error::Invalid(format!("features of {dim} values a row: expected 1 to 2^31-1"))
        })?;
        let writer = ArrowWriter::create(path.as_ref(), schema(dtype, width))?;
        Ok(Self { writer, dtype, dim, pending: Vec::new(), rows: 0, loss: Loss::default() })
    }

    /// Values of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Type of the stored values.
    pub fn dtype(&self) -> FeatureDtype {
        self.dtype
    }

    /// Appends whole rows, row after row. A finite value that the type cannot hold is refused, as
    /// is any other with i8.
    pub fn push_rows(&mut self, values: &[f32]) -> Result<()> {
        if !values.len().is_multiple_of(self.dim) {
            let (found, dim) = (values.len(), self.dim);
            return Err(Error::Invalid(format!(
                "{}: {found} values are not whole rows of {dim}",
                self.writer.path().display()
            )));
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

    /// Appends the rows of `vertices` bit for bit from `table`, which has the same type and width.
    /// Callers that call it again, or also push rows, must pass whole batches of [`ROWS_PER_BATCH`]
    /// before. The loss by narrowing is not known.
    pub(crate) fn copy_rows(&mut self, table: &FeatureTable, vertices: &[u32]) -> Result<()> {
        for batch in vertices.chunks(ROWS_PER_BATCH) {
            let mut bytes = MutableBuffer::new(batch.len() * self.dim * self.dtype.bytes());
            batch.iter().for_each(|&v| bytes.extend_from_slice(table.row::<u8>(v)));
            let values = array_of(self.dtype, bytes.into());
            let scales: Vec<f32> = batch.iter().map(|&v| table.scale(v)).collect();
            let scales = || array_of(FeatureDtype::F32, Buffer::from_vec(scales));
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

    fn write_arrays(
        &mut self,
        rows: usize,
        values: ArrayRef,
        scales: Option<ArrayRef>,
    ) -> Result<()> {
        let dim = self.dim as i32;
        self.writer.write(|| {
            let list =
                FixedSizeListArray::try_new(item(values.data_type().clone()), dim, values, None)?;
            Ok(std::iter::once(Arc::new(list) as ArrayRef).chain(scales).collect())
        })?;
        self.rows += rows as u64;
        Ok(())
    }

    /// The arrays that hold `rows`.
    fn stored(&mut self, rows: &[f32]) -> Result<(ArrayRef, Option<ArrayRef>)> {
        if self.dtype == FeatureDtype::F32 {
            return Ok((array_of(self.dtype, Buffer::from_slice_ref(rows)), None));
        }
        let (narrow, loss) = narrow(rows, self.dim, self.dtype).map_err(|(row, value)| {
            let (row, dtype) = (self.rows + row as u64, self.dtype);
            Error::Invalid(format!(
                "feature {value} in row {row} does not fit {dtype}: store the features as f32"
            ))
        })?;
        self.loss.add(loss);
        Ok(match narrow {
            Narrow::Bits(bits) => (array_of(self.dtype, Buffer::from_vec(bits)), None),
            Narrow::Scaled(bytes, scales) => {
                let scales = array_of(FeatureDtype::F32, Buffer::from_vec(scales));
                (array_of(self.dtype, Buffer::from_vec(bytes)), Some(scales))
            }
        })
    }

    /// Writes the footer and fsyncs.
    pub fn finish(mut self) -> Result<WrittenFeatures> {
        self.flush_batch()?;
        let narrowing = (self.dtype != FeatureDtype::F32).then(|| self.loss.report());
        Ok(WrittenFeatures { rows: self.rows, record: self.writer.finish()?, narrowing })
    }
}

/// The array of the stored `values` of type `dtype`.
fn array_of(dtype: FeatureDtype, values: Buffer) -> ArrayRef {
    match dtype {
        FeatureDtype::F32 => {
            Arc::new(PrimitiveArray::<Float32Type>::new(ScalarBuffer::from(values), None))
        }
        FeatureDtype::F16 => {
            Arc::new(PrimitiveArray::<Float16Type>::new(ScalarBuffer::from(values), None))
        }
        FeatureDtype::Bf16 => {
            Arc::new(PrimitiveArray::<UInt16Type>::new(ScalarBuffer::from(values), None))
        }
        FeatureDtype::I8 => {
            Arc::new(PrimitiveArray::<Int8Type>::new(ScalarBuffer::from(values), None))
        }
    }
}
