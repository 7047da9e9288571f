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
use arrow_array::{ArrayRef, FixedSizeListArray, PrimitiveArray, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::read_footer_length;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_ipc::{MetadataVersion, root_as_footer, root_as_message};
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

impl std::str::FromStr for FeatureDtype {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "f32" => Ok(Self::F32),
            "f16" => Ok(Self::F16),
            "bf16" => Ok(Self::Bf16),
            _ => Err(Error::Invalid(format!("feature type `{text}`: expected f32, f16 or bf16"))),
        }
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
        let file = Buffer::from(bytes::Bytes::from_owner(MappedFile::open(path)?));
        Self::decode(&file).map_err(|problem| Error::corrupt(path, problem))
    }

    /// Walks the footer to the record batches. Offsets and lengths are checked here before anything is sliced, because
    /// arrow's own decoder trusts those that a damaged file states.
    fn decode(file: &Buffer) -> Result<Self, String> {
        let short = || "too short, or no Arrow file".to_string();
        let trailer_at = file.len().checked_sub(10).ok_or_else(short)?;
        let trailer = file[trailer_at..].try_into().map_err(|_| short())?;
        let footer_length = read_footer_length(trailer).map_err(|error| error.to_string())?;
        let footer_at = trailer_at.checked_sub(footer_length).ok_or_else(short)?;
        let footer =
            root_as_footer(&file[footer_at..trailer_at]).map_err(|error| format!("damaged footer: {error}"))?;
        let schema = footer.schema().ok_or("footer without a schema")?;
        let schema = try_fb_to_schema(schema).map_err(|error| error.to_string())?;
        let column = schema.fields().first().filter(|_| schema.fields().len() == 1);
        let (dtype, dim) = column
            .and_then(|field| dtype_of(field))
            .ok_or_else(|| format!("expected one FixedSizeList column of f32, f16 or bf16, found {schema}"))?;
        let mut table = Self { dtype, dim, rows: 0, batches: Vec::new() };
        for block in footer.recordBatches().iter().flatten() {
            if !table.rows.is_multiple_of(ROWS_PER_BATCH) {
                return Err(format!("expected {ROWS_PER_BATCH} rows in every record batch but the last"));
            }
            let place = (block.offset(), i64::from(block.metaDataLength()), block.bodyLength());
            let (rows, values) = values_of(file, place, dim * dtype.bytes())
                .ok_or_else(|| format!("record batch {} is damaged", table.batches.len()))?;
            table.rows += rows;
            table.batches.push(values);
        }
        Ok(table)
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

/// Rows and values of the record batch at `(offset, metadata length, body length)` of `file`, still inside it; `None` when
/// anything points outside, is compressed, has nulls or is not aligned.
fn values_of(file: &Buffer, place: (i64, i64, i64), row_bytes: usize) -> Option<(usize, Buffer)> {
    let [start, metadata, body] = [place.0, place.1, place.2].map(usize::try_from);
    let (start, metadata, body) = (start.ok()?, metadata.ok()?, body.ok()?);
    let body_start = start.checked_add(metadata)?;
    if body_start.checked_add(body)? > file.len() {
        return None;
    }
    // The metadata opens with a continuation marker and its length, 4 bytes each.
    let message = root_as_message(file.get(start + 8..body_start)?).ok()?;
    let batch = message.header_as_record_batch()?;
    if batch.compression().is_some() || batch.nodes()?.iter().any(|node| node.null_count() != 0) {
        return None;
    }
    // Three buffers: the validity of the lists, the validity of the values, the values.
    let values = batch.buffers()?.iter().nth(2)?;
    let (offset, length) = (usize::try_from(values.offset()).ok()?, usize::try_from(values.length()).ok()?);
    let rows = usize::try_from(batch.length()).ok().filter(|&rows| rows <= ROWS_PER_BATCH)?;
    let used = rows.checked_mul(row_bytes)?;
    let at = body_start.checked_add(offset)?;
    let inside = used <= length && offset.checked_add(length)? <= body;
    let aligned = (file.as_ptr() as usize).wrapping_add(at).is_multiple_of(8);
    (inside && aligned).then(|| (rows, file.slice_with_length(at, used)))
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
    fn flipped_bits_never_panic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("feat.arrow");
        let mut writer = FeatureWriter::create(&path, FeatureDtype::F32, 4).unwrap();
        writer.push_rows(&[1.0; 40]).unwrap();
        writer.finish().unwrap();
        let good = std::fs::read(&path).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bad).unwrap();
            if let Ok(table) = FeatureTable::open(&path) {
                assert!((0..table.num_rows() as u32).all(|v| table.dim() == 0 || !table.row::<u8>(v).is_empty()));
            }
        }
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
