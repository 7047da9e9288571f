//! Part files with typed columns, in any format: groups of rows (Parquet's row groups, Arrow's record batches) that are
//! read by columns and ranges of rows.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use gsplit_store::Progress;

use super::cells;
use super::columnar::ROWS_PER_PIECE;
use super::ipc::IpcFile;
use super::parquet::ParquetFile;
use super::parts::{self, TableFormat};
use super::plain::plain;
use crate::memory::Memory;
use crate::{Error, Result};

/// Takes rows: the number of the first in its group, and the columns asked for, in the file's order.
pub type Take<'a> = &'a mut dyn FnMut(u64, &RecordBatch) -> Result<()>;

/// A file of typed columns.
pub trait Frames: Send + Sync {
    /// The file.
    fn path(&self) -> &Path;

    /// Its columns.
    fn schema(&self) -> &SchemaRef;

    /// Rows of every group, as the file claims.
    fn groups(&self) -> &[u64];

    /// Hands over `rows` of `group`, in order and some at a time; `columns` ascending. Fails when there are fewer.
    fn read(&self, group: usize, rows: Range<u64>, columns: &[usize], take: Take<'_>) -> Result<()>;

    /// The largest integer of a column, if the file states it.
    fn largest(&self, column: usize) -> Option<u64>;
}

/// Opens the parts of the table at `path`, which are inflated within `budget`; `missing` are words for missing values.
pub fn open(
    path: &Path,
    files: &[PathBuf],
    format: TableFormat,
    budget: Memory,
    missing: &[String],
    progress: &dyn Progress,
) -> Result<Vec<Arc<dyn Frames>>> {
    let mut opened: Vec<Arc<dyn Frames>> = Vec::new();
    for file in files {
        let file: Arc<dyn Frames> = match format {
            TableFormat::Arrow => Arc::new(IpcFile::open(file, budget)?),
            _ => Arc::new(ParquetFile::open(file, budget)?),
        };
        opened.push(plain(file, missing));
    }
    parts::check_one_table(path, files, progress, |at| {
        Ok(opened[at].schema().fields().iter().map(|field| field.name().clone()).collect())
    })?;
    Ok(opened)
}

/// Takes some rows of a part: its path, the number of the first of them in it, and the columns that were asked for.
pub type TakeRows<'a> = &'a mut dyn FnMut(&Path, u64, &[ArrayRef]) -> Result<()>;

/// Hands over the columns called `names` of all `parts`, in order and some rows at a time.
pub fn scan(parts: &[Arc<dyn Frames>], names: &[String], take: TakeRows<'_>) -> Result<()> {
    for part in parts {
        let places: Vec<usize> = names.iter().map(|name| place(part.as_ref(), name)).collect::<Result<_>>()?;
        let mut read = places.clone();
        read.sort_unstable();
        read.dedup();
        let mut before = 0;
        for (group, &rows) in part.groups().iter().enumerate() {
            let mut start = 0;
            while start < rows {
                let end = rows.min(start.saturating_add(ROWS_PER_PIECE));
                part.read(group, start..end, &read, &mut |first, batch| {
                    let among = |at: &usize| batch.column(read.partition_point(|other| other < at)).clone();
                    take(part.path(), before + first, &places.iter().map(among).collect::<Vec<_>>())
                })?;
                start = end;
            }
            before += rows;
        }
    }
    Ok(())
}

/// Width of column `at` of the table, when it holds lists of numbers: that of the type, or of the first row.
pub fn list_width(parts: &[Arc<dyn Frames>], at: usize) -> Result<Option<usize>> {
    let Some(first) = parts.first() else { return Ok(None) };
    match cells::list_of(first.schema().field(at).data_type()) {
        Some((item, None)) if cells::descr(item).is_some() => {}
        Some((_, width)) => return Ok(width),
        None => return Ok(None),
    }
    let mut width = None;
    for part in parts {
        let Some(group) = part.groups().iter().position(|&rows| rows > 0) else { continue };
        let column = place(part.as_ref(), first.schema().field(at).name())?;
        part.read(group, 0..1, &[column], &mut |_, batch| {
            let Some(array) = batch.columns().first() else { return Ok(()) };
            width = match array.data_type() {
                DataType::List(_) => {
                    arrow_array::cast::as_list_array(array).value_offsets().windows(2).next().map(wide)
                }
                DataType::LargeList(_) => {
                    arrow_array::cast::as_large_list_array(array).value_offsets().windows(2).next().map(wide)
                }
                _ => None,
            };
            Ok(())
        })?;
        break;
    }
    Ok(width)
}

fn wide<T: Copy + std::ops::Sub<Output = T> + TryInto<usize>>(ends: &[T]) -> usize {
    (ends[1] - ends[0]).try_into().unwrap_or(0)
}

/// Place of the column `name` in `part`.
pub fn place(part: &dyn Frames, name: &str) -> Result<usize> {
    let missing = || Error::input(part.path(), format!("has no column `{name}`, which the first part has"));
    part.schema().fields().iter().position(|field| field.name() == name).ok_or_else(missing)
}

/// A problem with the content of the file at `path`.
pub fn damaged(path: &Path, problem: impl std::fmt::Display) -> Error {
    let problem = problem.to_string().replace('\n', " ");
    Error::input(path, format!("damaged, or in a way that is not known here: {problem}; write it again"))
}

/// Runs a decoder. Decoders of Parquet and Arrow check most of their input, but some damaged files make them panic.
pub fn guard<T>(path: &Path, decode: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| Err(damaged(path, "its decoder stopped")))
}
