//! One Parquet file: its row groups, read by columns and by ranges of rows.
//!
//! Only the footer stays in memory. A range of rows decodes its own pages; those before it are
//! stepped over by their headers, so a row group of any size is read with the pages of one range in
//! memory, and the dictionary of each column. A page is asked by its header how long it will be
//! before it is inflated, and strings stay in its dictionary however often they are meant.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
    RowSelector,
};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::statistics::Statistics;

use super::frames::{Frames, Take, damaged, guard};
use crate::memory::Memory;
use crate::{Error, Result};
use gsplit_store::open_file;

/// Rows decoded at a time.
const ROWS_PER_BATCH: usize = 1 << 14;

/// A Parquet file.
pub struct ParquetFile {
    path: PathBuf,
    metadata: ArrowReaderMetadata,
    groups: Vec<u64>,
    budget: Memory,
}

impl ParquetFile {
    /// Reads the footer of the file at `path`.
    pub fn open(path: &Path, budget: Memory) -> Result<Self> {
        let file = CheckedFile::open(path, budget)?;
        let load = || ArrowReaderMetadata::load(&file, ArrowReaderOptions::new());
        let found = guard(path, || load().map_err(|error| because(path, error)))?;
        let metadata = typed(path, &found, &[])?;
        let rows = |rows: i64| {
            u64::try_from(rows).map_err(|_| damaged(path, "a row group of fewer than 0 rows"))
        };
        let groups = metadata.metadata().row_groups().iter().map(|group| rows(group.num_rows()));
        let groups = groups.collect::<Result<_>>()?;
        let mut opened = Self { path: path.to_path_buf(), groups, metadata, budget };
        let bytes = opened.bytes_among(found.schema());
        if !bytes.is_empty() {
            opened.metadata = typed(path, &found, &bytes)?;
        }
        Ok(opened)
    }

    /// The columns of bytes whose first rows are not strings. Some writers do not mark strings as
    /// such.
    fn bytes_among(&self, schema: &Schema) -> Vec<usize> {
        const LOOKED_AT: u64 = 1000;
        let Some(group) = self.groups.iter().position(|&rows| rows > 0) else { return Vec::new() };
        let rows = 0..self.groups[group].min(LOOKED_AT);
        let is_other = |at: &usize| {
            is_bytes(schema.field(*at))
                && self.read(group, rows.clone(), &[*at], &mut |_, _| Ok(())).is_err()
        };
        (0..schema.fields().len()).filter(is_other).collect()
    }
}

/// `found` with strings as views, and with bytes as strings, except in the columns `bytes`.
fn typed(path: &Path, found: &ArrowReaderMetadata, bytes: &[usize]) -> Result<ArrowReaderMetadata> {
    let options = ArrowReaderOptions::new().with_schema(with_views(found.schema(), bytes));
    let made = || ArrowReaderMetadata::try_new(found.metadata().clone(), options);
    guard(path, || made().map_err(|error| because(path, error)))
}

fn is_bytes(field: &Field) -> bool {
    matches!(field.data_type(), DataType::Binary | DataType::LargeBinary)
}

impl Frames for ParquetFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    fn groups(&self) -> &[u64] {
        &self.groups
    }

    fn read(
        &self,
        group: usize,
        rows: Range<u64>,
        columns: &[usize],
        take: Take<'_>,
    ) -> Result<()> {
        let length =
            |rows: u64| usize::try_from(rows).map_err(|_| damaged(&self.path, "too many rows"));
        let (skip, select) = (length(rows.start)?, length(rows.end.saturating_sub(rows.start))?);
        let reader = guard(&self.path, || {
            let mask =
                ProjectionMask::roots(self.metadata.parquet_schema(), columns.iter().copied());
            let (file, metadata) =
                (CheckedFile::open(&self.path, self.budget)?, self.metadata.clone());
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
            let mut builder = builder
                .with_row_groups(vec![group])
                .with_projection(mask)
                .with_batch_size(ROWS_PER_BATCH);
            if (skip, rows.end) != (0, self.groups[group]) {
                let selection = vec![RowSelector::skip(skip), RowSelector::select(select)];
                builder = builder.with_row_selection(RowSelection::from(selection));
            }
            builder.build().map_err(|error| because(&self.path, error))
        });
        let mut reader = reader?;
        let mut row = rows.start;
        while let Some(batch) = guard(&self.path, || {
            let batch: Option<Result<RecordBatch, _>> = reader.next();
            batch
                .transpose()
                .map_err(|error| because(&self.path, ParquetError::General(error.to_string())))
        })? {
            let start = row;
            row += batch.num_rows() as u64;
            take(start, &batch)?;
        }
        if row != rows.end {
            let problem =
                format!("row group {group} ends after {row} rows, expected {}", self.groups[group]);
            return Err(damaged(&self.path, problem));
        }
        Ok(())
    }

    fn largest(&self, column: usize) -> Option<u64> {
        let schema = self.metadata.parquet_schema();
        let leaf =
            (0..schema.num_columns()).find(|&leaf| schema.get_column_root_idx(leaf) == column)?;
        let largest = |statistics: &Statistics| match statistics {
            Statistics::Int32(values) => u64::try_from(*values.max_opt()?).ok(),
            Statistics::Int64(values) => u64::try_from(*values.max_opt()?).ok(),
            _ => None,
        };
        let groups =
            self.metadata.metadata().row_groups().iter().filter(|group| group.num_rows() > 0);
        groups
            .map(|group| largest(group.columns().get(leaf)?.statistics()?))
            .try_fold(0, |all, next| Some(all.max(next?)))
    }
}

/// The schema with views in place of strings, whose bytes are copied for no row, and in place of
/// bytes, except in the columns `bytes`.
fn with_views(schema: &Schema, bytes: &[usize]) -> SchemaRef {
    let viewed = |(at, field): (usize, &Arc<Field>)| match field.data_type() {
        DataType::Binary | DataType::LargeBinary if bytes.contains(&at) => field.clone(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
            Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View))
        }
        _ => field.clone(),
    };
    Arc::new(Schema::new_with_metadata(
        schema.fields().iter().enumerate().map(viewed).collect::<Vec<_>>(),
        schema.metadata().clone(),
    ))
}

/// Inflated bytes of the page whose header is `head`; `None` if it is not a page header. A header
/// starts with the fields 1 to 3 of a struct in Thrift's compact protocol, of i32 in zigzag: type,
/// inflated bytes, bytes in the file.
fn inflated(head: &[u8]) -> Option<u64> {
    let mut rest = head;
    let mut field = || -> Option<u64> {
        rest = rest.strip_prefix(&[0x15])?;
        let end = rest.iter().take(5).position(|byte| byte & 0x80 == 0)?;
        let (digits, left) = rest.split_at(end + 1);
        rest = left;
        Some(
            digits.iter().rev().fold(0, |number, digit| number << 7 | u64::from(digit & 0x7f)) >> 1,
        )
    };
    let [_kind, inflated, _packed] = [field()?, field()?, field()?];
    Some(inflated)
}

fn because(path: &Path, error: ParquetError) -> Error {
    let problem = error.to_string();
    match problem.split_once("Disabled feature at compile time: ") {
        Some((_, codec)) => Error::input(
            path,
            format!(
                "compressed with {codec}, which gsplit does not read: write it with zstd or snappy"
            ),
        ),
        None => damaged(path, problem),
    }
}

/// A file whose pages are asked how long they will be before they are inflated.
struct CheckedFile {
    file: File,
    budget: Memory,
}

impl CheckedFile {
    fn open(path: &Path, budget: Memory) -> Result<Self> {
        Ok(Self { file: open_file(path).map_err(Error::io(path))?, budget })
    }
}

impl Length for CheckedFile {
    fn len(&self) -> u64 {
        self.file.len()
    }
}

impl ChunkReader for CheckedFile {
    type T = <File as ChunkReader>::T;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        // Readers start at this position for the header of a page, and for the footer.
        let mut head = [0; 18];
        let read = self.file.read_at(&mut head, start)?;
        if let Some(problem) = inflated(&head[..read]).and_then(|bytes| self.budget.refusal(bytes))
        {
            return Err(ParquetError::General(format!(
                "the page at byte {start}, inflated, {problem}"
            )));
        }
        self.file.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        // The length is claimed by the file: checked before it is allocated.
        if start.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at byte {start}, the file has {}",
                self.len()
            )));
        }
        self.file.get_bytes(start, length)
    }
}
