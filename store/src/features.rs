//! Feature rows: an uncompressed Arrow IPC file with one `FixedSizeList` column, read where it lies.
//!
//! The rows are cut into record batches of [`ROWS_PER_BATCH`] (the last may be shorter), so that a file of any size is
//! written with one batch in memory and row `v` is found with a shift and a mask. `bf16`, which Arrow does not have, is
//! stored as `uint16` with the field metadata `gsplit.dtype = bf16`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::types::{Float16Type, Float32Type, UInt16Type};
use arrow_array::{Array, ArrayRef, FixedSizeListArray, PrimitiveArray, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{FileDecoder, read_footer_length};
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_ipc::{MetadataVersion, root_as_footer};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use bytemuck::Pod;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use crate::checksum::HashingWriter;
use crate::{Error, FileRecord, MappedFile, Result};

const BATCH_SHIFT: u32 = 14;
/// Rows of each record batch but the last.
pub const ROWS_PER_BATCH: usize = 1 << BATCH_SHIFT;

/// Type of the stored feature values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureDtype {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of single precision.
    Bf16,
}

impl FeatureDtype {
    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

impl std::fmt::Display for FeatureDtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        })
    }
}

fn schema(dtype: FeatureDtype, dim: i32) -> Schema {
    let value = match dtype {
        FeatureDtype::F32 => DataType::Float32,
        FeatureDtype::F16 => DataType::Float16,
        FeatureDtype::Bf16 => DataType::UInt16,
    };
    let item = Arc::new(Field::new("item", value, false));
    let metadata = std::collections::HashMap::from([("gsplit.dtype".to_string(), dtype.to_string())]);
    let field = Field::new("feat", DataType::FixedSizeList(item, dim), false).with_metadata(metadata);
    Schema::new(vec![field])
}

fn dtype_of(field: &Field) -> Option<(FeatureDtype, usize)> {
    let DataType::FixedSizeList(item, dim) = field.data_type() else { return None };
    let dtype = match (item.data_type(), field.metadata().get("gsplit.dtype").map(String::as_str)) {
        (DataType::Float32, _) => FeatureDtype::F32,
        (DataType::Float16, _) => FeatureDtype::F16,
        (DataType::UInt16, Some("bf16")) => FeatureDtype::Bf16,
        _ => return None,
    };
    Some((dtype, usize::try_from(*dim).ok()?))
}

/// Streams rows into a new feature file.
pub struct FeatureWriter {
    path: PathBuf,
    dtype: FeatureDtype,
    dim: usize,
    writer: FileWriter<HashingWriter<BufWriter<File>>>,
    pending: Vec<f32>,
    rows: u64,
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
        let writer = IpcWriteOptions::try_new(64, false, MetadataVersion::V5)
            .and_then(|options| FileWriter::try_new_with_options(out, &schema(dtype, width), options))
            .map_err(|error| arrow_error(&path, error))?;
        Ok(Self { path, dtype, dim, writer, pending: Vec::new(), rows: 0 })
    }

    /// Values of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Appends whole rows, row after row.
    pub fn push_rows(&mut self, values: &[f32]) -> Result<()> {
        if !values.len().is_multiple_of(self.dim) {
            let (found, dim) = (values.len(), self.dim);
            return Err(Error::Invalid(format!("{}: {found} values are not whole rows of {dim}", self.path.display())));
        }
        let full = ROWS_PER_BATCH * self.dim;
        let mut rest = values;
        while !rest.is_empty() {
            let take = rest.len().min(full - self.pending.len());
            self.pending.extend_from_slice(&rest[..take]);
            rest = &rest[take..];
            if self.pending.len() == full {
                self.flush_batch()?;
            }
        }
        Ok(())
    }

    fn flush_batch(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let values: ArrayRef = match self.dtype {
            FeatureDtype::F32 => {
                Arc::new(PrimitiveArray::<Float32Type>::from_iter_values(self.pending.iter().copied()))
            }
            FeatureDtype::F16 => {
                let narrow = self.pending.iter().map(|&value| f16::from_f32(value));
                Arc::new(PrimitiveArray::<Float16Type>::from_iter_values(narrow))
            }
            FeatureDtype::Bf16 => {
                let narrow = self.pending.iter().map(|&value| bf16::from_f32(value).to_bits());
                Arc::new(PrimitiveArray::<UInt16Type>::from_iter_values(narrow))
            }
        };
        let schema = Arc::new(schema(self.dtype, self.dim as i32));
        let item = match schema.field(0).data_type() {
            DataType::FixedSizeList(item, _) => item.clone(),
            other => return Err(Error::Invalid(format!("feature column of type {other}"))),
        };
        let write = || -> Result<(), ArrowError> {
            let list = FixedSizeListArray::try_new(item, self.dim as i32, values, None)?;
            self.writer.write(&RecordBatch::try_new(schema, vec![Arc::new(list)])?)
        };
        write().map_err(|error| arrow_error(&self.path, error))?;
        self.rows += (self.pending.len() / self.dim) as u64;
        self.pending.clear();
        Ok(())
    }

    /// Writes the footer and fsyncs. Returns the number of rows and the file's record.
    pub fn finish(mut self) -> Result<(u64, FileRecord)> {
        self.flush_batch()?;
        let out = self.writer.into_inner().map_err(|error| arrow_error(&self.path, error))?;
        let (mut buffer, bytes, checksum) = out.finish();
        buffer.flush().and_then(|()| buffer.get_ref().sync_all()).map_err(Error::io(&self.path))?;
        Ok((self.rows, FileRecord { bytes, checksum }))
    }
}

fn arrow_error(path: &Path, error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, source) => Error::io(path)(source),
        other => Error::corrupt(path, other.to_string()),
    }
}

/// Feature rows of all vertices, mapped.
#[derive(Clone, Debug)]
pub struct FeatureTable {
    dtype: FeatureDtype,
    dim: usize,
    rows: usize,
    batches: Vec<Buffer>,
}

impl FeatureTable {
    /// Maps the file at `path` and checks its structure; no value is read.
    pub fn open(path: &Path) -> Result<Self> {
        let map = Arc::new(MappedFile::open(path)?);
        let bytes = arrow_buffer::Buffer::from(bytes_of(map));
        Self::decode(path, &bytes)
            .map_err(|error| arrow_error(path, error))?
            .map_err(|problem| Error::corrupt(path, problem))
    }

    fn decode(path: &Path, file: &Buffer) -> Result<Result<Self, String>, ArrowError> {
        let short = || ArrowError::IpcError(format!("{}: too short for an Arrow file", path.display()));
        let trailer_at = file.len().checked_sub(10).ok_or_else(short)?;
        let trailer = file[trailer_at..].try_into().map_err(|_| short())?;
        let footer_at = trailer_at.checked_sub(read_footer_length(trailer)?).ok_or_else(short)?;
        let footer = root_as_footer(&file[footer_at..trailer_at])
            .map_err(|error| ArrowError::IpcError(format!("damaged footer: {error}")))?;
        let schema = footer.schema().ok_or_else(|| ArrowError::IpcError("footer without a schema".into()))?;
        let schema = try_fb_to_schema(schema)?;
        let column = schema.fields().first().filter(|_| schema.fields().len() == 1);
        let Some((dtype, dim)) = column.and_then(|field| dtype_of(field)) else {
            return Ok(Err(format!("expected one FixedSizeList column of f32, f16 or bf16, found {schema}")));
        };
        let decoder = FileDecoder::new(Arc::new(schema), footer.version()).with_require_alignment(true);
        let mut table = Self { dtype, dim, rows: 0, batches: Vec::new() };
        for block in footer.recordBatches().iter().flatten() {
            let length = block.bodyLength() as usize + block.metaDataLength() as usize;
            let offset = block.offset() as usize;
            if offset.checked_add(length).is_none_or(|end| end > file.len()) {
                return Err(short());
            }
            let Some(batch) = decoder.read_record_batch(block, &file.slice_with_length(offset, length))? else {
                continue;
            };
            if !table.rows.is_multiple_of(ROWS_PER_BATCH) {
                return Ok(Err(format!("expected {ROWS_PER_BATCH} rows in every record batch but the last")));
            }
            match values_of(&batch, dtype) {
                Some(values) if values.len() == batch.num_rows() * dim * dtype.bytes() => table.batches.push(values),
                _ => return Ok(Err("a record batch is shorter than its row count".into())),
            }
            table.rows += batch.num_rows();
        }
        Ok(Ok(table))
    }

    /// Type of the stored values.
    pub fn dtype(&self) -> FeatureDtype {
        self.dtype
    }

    /// Values of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// The row of vertex `v`. `T` must be the type that [`FeatureTable::dtype`] names: `f32`, `half::f16` or
    /// `half::bf16`; anything of another size panics.
    pub fn row<T: Pod>(&self, v: u32) -> &[T] {
        let batch = &self.batches[(v >> BATCH_SHIFT) as usize];
        let bytes = self.dim * self.dtype.bytes();
        let start = (v as usize & (ROWS_PER_BATCH - 1)) * bytes;
        bytemuck::cast_slice(&batch.as_slice()[start..start + bytes])
    }
}

fn bytes_of(map: Arc<MappedFile>) -> bytes::Bytes {
    struct Owner(Arc<MappedFile>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    bytes::Bytes::from_owner(Owner(map))
}

/// The bytes of the batch's values, still inside the mapped file.
fn values_of(batch: &RecordBatch, dtype: FeatureDtype) -> Option<Buffer> {
    let list = batch.column(0).as_any().downcast_ref::<FixedSizeListArray>()?;
    if list.null_count() > 0 {
        return None;
    }
    let values = list.values().as_any();
    Some(match dtype {
        FeatureDtype::F32 => values.downcast_ref::<PrimitiveArray<Float32Type>>()?.values().inner().clone(),
        FeatureDtype::F16 => values.downcast_ref::<PrimitiveArray<Float16Type>>()?.values().inner().clone(),
        FeatureDtype::Bf16 => values.downcast_ref::<PrimitiveArray<UInt16Type>>()?.values().inner().clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(dtype: FeatureDtype, rows: usize, dim: usize) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("feat.arrow");
        let values: Vec<f32> = (0..rows * dim).map(|i| (i % 251) as f32 * 0.5 - 40.0).collect();
        let mut writer = FeatureWriter::create(&path, dtype, dim).unwrap();
        for chunk in values.chunks(dim * 1000) {
            writer.push_rows(chunk).unwrap();
        }
        let (written, record) = writer.finish().unwrap();
        assert_eq!(written as usize, rows);
        assert_eq!(crate::checksum_file(&path).unwrap(), (record.bytes, record.checksum));
        let table = FeatureTable::open(&path).unwrap();
        assert_eq!((table.num_rows(), table.dim(), table.dtype()), (rows, dim, dtype));
        for v in [0, 1, rows / 2, rows.saturating_sub(1)].into_iter().filter(|&v| v < rows) {
            let expected = &values[v * dim..(v + 1) * dim];
            let found: Vec<f32> = match dtype {
                FeatureDtype::F32 => table.row::<f32>(v as u32).to_vec(),
                FeatureDtype::F16 => table.row::<f16>(v as u32).iter().map(|x| x.to_f32()).collect(),
                FeatureDtype::Bf16 => table.row::<bf16>(v as u32).iter().map(|x| x.to_f32()).collect(),
            };
            let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= b.abs() / 256.0);
            assert!(close, "row {v}: {found:?} against {expected:?}");
        }
    }

    #[test]
    fn rows_come_back_in_every_dtype() {
        for dtype in [FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::Bf16] {
            for rows in [0, 1, ROWS_PER_BATCH, 2 * ROWS_PER_BATCH + 17] {
                round_trip(dtype, rows, 3);
            }
        }
    }

    #[test]
    fn rows_are_read_where_they_lie() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("feat.arrow");
        let mut writer = FeatureWriter::create(&path, FeatureDtype::F32, 16).unwrap();
        writer.push_rows(&vec![1.0; 16 * 100]).unwrap();
        writer.finish().unwrap();
        let table = FeatureTable::open(&path).unwrap();
        assert_eq!(table.row::<f32>(0).as_ptr() as usize % 64, 0);
        assert_eq!(table.row::<f32>(99), &[1.0; 16]);
    }

    #[test]
    fn truncated_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("feat.arrow");
        let mut writer = FeatureWriter::create(&path, FeatureDtype::F32, 4).unwrap();
        writer.push_rows(&[1.0; 400]).unwrap();
        writer.finish().unwrap();
        let good = std::fs::read(&path).unwrap();
        for cut in [0, 5, 100, good.len() / 2, good.len() - 1] {
            std::fs::write(&path, &good[..cut]).unwrap();
            assert!(FeatureTable::open(&path).unwrap_err().to_string().contains("feat.arrow"));
        }
    }
}
