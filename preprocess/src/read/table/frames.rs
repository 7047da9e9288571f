//! Part files with typed columns, in any format: groups of rows (Parquet's row groups, Arrow's
//! record batches) that are read by columns and ranges of rows.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, SchemaRef};

use super::cells::{self, Cell};
use super::ipc::IpcFile;
use super::parquet::ParquetFile;
use super::parts::TableFormat;
use crate::memory::Memory;
use crate::{Error, Result};

/// Takes rows: the number of the first in its group, and the columns asked for, in the file's
/// order.
pub type Take<'a> = &'a mut dyn FnMut(u64, &RecordBatch) -> Result<()>;

/// A file of typed columns.
pub trait Frames: Send + Sync {
    /// The file.
    fn path(&self) -> &Path;

    /// Its columns.
    fn schema(&self) -> &SchemaRef;

    /// Rows of every group, as the file claims.
    fn groups(&self) -> &[u64];

    /// Hands over `rows` of `group`, in order and some at a time; `columns` ascending. Fails when
    /// there are fewer.
    fn read(&self, group: usize, rows: Range<u64>, columns: &[usize], take: Take<'_>)
    -> Result<()>;

    /// The largest integer of a column, if the file states it.
    fn largest(&self, column: usize) -> Option<u64>;
}

/// Opens the file at `path`, which is inflated within `budget`.
pub fn open(path: &Path, format: TableFormat, budget: Memory) -> Result<Arc<dyn Frames>> {
    Ok(match format {
        TableFormat::Arrow => Arc::new(IpcFile::open(path, budget)?),
        _ => Arc::new(ParquetFile::open(path, budget)?),
    })
}

/// Names of the columns of `part`.
pub fn names(part: &dyn Frames) -> Vec<String> {
    part.schema().fields().iter().map(|field| field.name().clone()).collect()
}

/// Width of `column` of the first part, when it holds lists of numbers: that of the type, or of the
/// first row.
pub fn list_width(parts: &[Arc<dyn Frames>], column: &Field) -> Result<Option<usize>> {
    match cells::list_of(column.data_type()) {
        Some((item, None)) if cells::descr(item).is_some() => {}
        Some((_, width)) => return Ok(width),
        None => return Ok(None),
    }
    let mut width = None;
    for part in parts {
        let Some(group) = part.groups().iter().position(|&rows| rows > 0) else { continue };
        let place = place(part.as_ref(), column.name())?;
        part.read(group, 0..1, &[place], &mut |_, batch| {
            width = match cells::cells(batch.column(0)).map(|cells| cells.get(0)) {
                Ok(Cell::List(_, _, count)) => Some(count),
                _ => None,
            };
            Ok(())
        })?;
        break;
    }
    Ok(width)
}

/// Place of the column `name` in `part`.
pub fn place(part: &dyn Frames, name: &str) -> Result<usize> {
    let missing =
        || Error::input(part.path(), format!("has no column `{name}`, which the first part has"));
    part.schema().fields().iter().position(|field| field.name() == name).ok_or_else(missing)
}

/// A problem with the content of the file at `path`.
pub fn damaged(path: &Path, problem: impl std::fmt::Display) -> Error {
    let problem = problem.to_string().replace('\n', " ");
    Error::input(
        path,
        format!("damaged, or in a way that is not known here: {problem}; write it again"),
    )
}

/// Runs a decoder. Decoders of Parquet and Arrow check most of their input, but some damaged files
/// make them panic.
pub fn guard<T>(path: &Path, decode: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err(damaged(path, "its decoder stopped")))
}
