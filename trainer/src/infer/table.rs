//! Files with one row per vertex and the vertices' original ids: `.npy`, `.parquet` or `.csv`, by
//! the extension.
//!
//! ```text
//! NAME.npy       the values: [rows], or [rows, width]
//! NAME.ids.npy   u64[rows], the ids; for string ids in the raw input NAME.ids.arrow, one LargeUtf8 column
//! NAME.parquet   `id` (int64 or string) and one column per value; embeddings are one column of lists
//! NAME.csv       the same columns, below a header
//! ```
//!
//! Rows are in the dataset's order. Files are written next to their final place and moved there
//! together once all files of a run are complete
//! ([`commit_all`](gsplit_store::staging::commit_all)).

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type, UInt8Type, UInt64Type};
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Int32Array, Int64Array, RecordBatch, StringArray,
    UInt8Array, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema};
use gsplit_store::staging::{Staging, Target};
use gsplit_store::{
    ColumnWriter, Dataset, Error as StoreError, Names, NamesWriter, NpyWriter, OriginalIds,
    RowsOfType,
};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use crate::{Error, Result};

/// Approximate bytes of a row group before compression.
const GROUP_BYTES: usize = 1 << 25;

/// Format of an output file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// A NumPy array.
    Npy,
    /// A Parquet table.
    Parquet,
    /// A text table.
    Csv,
}

impl OutputFormat {
    /// Format of the file at `path`, one of `all`, by its extension; `option` is the option to
    /// blame.
    pub fn of(option: &str, path: &Path, all: &[Self]) -> Result<Self> {
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        let found = all.iter().find(|format| format.end() == end);
        found.copied().ok_or_else(|| {
            let (last, others) =
                (all.last().map_or("", |format| format.end()), &all[..all.len() - 1]);
            let others: Vec<String> =
                others.iter().map(|format| format!(".{}", format.end())).collect();
            let problem = format!("expected a name that ends in {} or .{last}", others.join(", "));
            Error::Option(format!("{option} {}: {problem}", path.display()))
        })
    }

    fn end(self) -> &'static str {
        match self {
            Self::Npy => "npy",
            Self::Parquet => "parquet",
            Self::Csv => "csv",
        }
    }
}

/// Values of a row next to the id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values<'a> {
    /// One class, in a column `class` of tables: its name if classes have names, else its number.
    Class(Option<&'a [String]>),
    /// 0 or 1 per class, in columns with these names.
    Flags(Vec<String>),
    /// Numbers, in columns with these names.
    Real(Vec<String>),
    /// A list of this many numbers, in one column with this name.
    List(&'static str, usize),
}

impl Values<'_> {
    fn width(&self) -> usize {
        match self {
            Self::Class(_) => 1,
            Self::Flags(names) | Self::Real(names) => names.len(),
            Self::List(_, width) => *width,
        }
    }

    /// NumPy's name of their type.
    fn descr(&self) -> &'static str {
        match self {
            Self::Class(_) => "<i4",
            Self::Flags(_) => "|u1",
            Self::Real(_) | Self::List(..) => "<f4",
        }
    }

    /// Names and types of their columns in a table.
    fn columns(&self) -> Vec<(String, DataType)> {
        let all = |names: &[String], kind: DataType| {
            names.iter().map(|name| (name.clone(), kind.clone())).collect()
        };
        match self {
            Self::Class(Some(_)) => vec![("class".into(), DataType::Utf8)],
            Self::Class(None) => vec![("class".into(), DataType::Int32)],
            Self::Flags(names) => all(names, DataType::UInt8),
            Self::Real(names) => all(names, DataType::Float32),
            Self::List(name, width) => {
                vec![((*name).into(), DataType::FixedSizeList(item(), *width as i32))]
            }
        }
    }

    /// Converts `cells` to the columns of a table.
    fn arrays(&self, cells: &Cells) -> Result<Vec<ArrayRef>> {
        let width = self.width().max(1);
        Ok(match (self, cells) {
            (Self::Class(Some(names)), Cells::Class(cells)) => {
                let name = |&class: &i32| names.get(class as usize).map(String::as_str);
                vec![Arc::new(cells.iter().map(name).collect::<StringArray>())]
            }
            (_, Cells::Class(cells)) => vec![Arc::new(Int32Array::from(cells.clone()))],
            (_, Cells::Flags(cells)) => {
                by_column(cells, width, |column| Arc::new(UInt8Array::from(column)))
            }
            (Self::List(_, width), Cells::Real(cells)) => {
                let flat = Arc::new(Float32Array::from(cells.clone()));
                vec![Arc::new(FixedSizeListArray::new(item(), *width as i32, flat, None))]
            }
            (_, Cells::Real(cells)) => {
                by_column(cells, width, |column| Arc::new(Float32Array::from(column)))
            }
        })
    }
}

/// The columns of rows of `width` cells, row after row.
fn by_column<T: Copy>(
    cells: &[T],
    width: usize,
    array: impl Fn(Vec<T>) -> ArrayRef,
) -> Vec<ArrayRef> {
    (0..width).map(|at| array(cells.iter().skip(at).step_by(width).copied().collect())).collect()
}

/// Values of some rows, row after row.
#[derive(Clone, Debug)]
pub enum Cells {
    /// Classes, for [`Values::Class`].
    Class(Vec<i32>),
    /// Zeros and ones, for [`Values::Flags`].
    Flags(Vec<u8>),
    /// Numbers, for [`Values::Real`] and [`Values::List`].
    Real(Vec<f32>),
}

/// The original ids of a dataset.
pub enum OutputIds {
    /// The vertex numbers of the dataset, counted from the first vertex of each type, which are
    /// given here.
    Own(Vec<u32>),
    /// Numbers.
    Numbers(OriginalIds),
    /// Strings.
    Names(Names),
}

impl OutputIds {
    /// Opens the ids of `dataset`.
    pub fn open(dataset: &Dataset) -> Result<Self> {
        if let Some(names) = dataset.original_names()? {
            return Ok(Self::Names(names));
        }
        let first = |of: &RowsOfType| of.vertices.start as u32;
        let own = || dataset.types().map_or(vec![0], |of| of.rows().iter().map(first).collect());
        Ok(dataset.original_ids()?.map_or_else(|| Self::Own(own()), Self::Numbers))
    }

    /// The id of `v` as text.
    pub fn text(&self, v: u32) -> Result<Cow<'_, str>> {
        match self {
            Self::Names(names) => Ok(names.get(v)?.into()),
            numbers => Ok(numbers.number(v).to_string().into()),
        }
    }

    /// Type of the id column in Parquet files.
    pub fn data_type(&self) -> DataType {
        if matches!(self, Self::Names(_)) { DataType::Utf8 } else { DataType::Int64 }
    }

    fn number(&self, v: u32) -> u64 {
        match self {
            Self::Numbers(ids) => ids.get(v as usize),
            Self::Own(first) => {
                let of_type = first.partition_point(|&first| first <= v);
                u64::from(v - first[..of_type].last().copied().unwrap_or(0))
            }
            Self::Names(_) => u64::from(v),
        }
    }
}

/// Path of the separate file of ids for the values in `out`, if this format has one.
pub fn ids_beside(out: &Path, string_ids: bool) -> Option<PathBuf> {
    let end = if string_ids { "ids.arrow" } else { "ids.npy" };
    out.extension().is_some_and(|extension| extension == "npy").then(|| out.with_extension(end))
}

/// A file of values under construction, with its ids. Dropped early, it leaves no file.
pub struct Table<'a> {
    ids: &'a OutputIds,
    values: Vec<Values<'a>>,
    writer: Writer,
    /// The values, then the ids if they have a separate file.
    files: Vec<Staging>,
}

enum Writer {
    /// Values of one kind.
    Npy(Box<(ColumnWriter, NpyIds)>),
    Columns(ColumnsFile),
}

enum NpyIds {
    Numbers(NpyWriter<u64>),
    Names(Box<NamesWriter>),
}

impl<'a> Table<'a> {
    /// Creates the file at `out` in `format`; an array has only the first of `values`. Replaces a
    /// file only with `force`.
    pub fn begin(
        out: &Path,
        format: OutputFormat,
        values: Vec<Values<'a>>,
        ids: &'a OutputIds,
        force: bool,
    ) -> Result<Self> {
        let finals = [Some(out.to_path_buf()), ids_beside(out, matches!(ids, OutputIds::Names(_)))];
        let begin = |path| Staging::begin(Target::file(path), force);
        let files =
            finals.into_iter().flatten().map(begin).collect::<gsplit_store::Result<Vec<_>>>()?;
        let path = files[0].file();
        let columns = distinct(values.iter().flat_map(Values::columns));
        let writer = match format {
            OutputFormat::Npy => {
                let values = values
                    .first()
                    .ok_or_else(|| Error::Option("expected values to write".into()))?;
                let column = ColumnWriter::create(path, values.descr(), values.width())?;
                let ids = match ids {
                    OutputIds::Names(_) => {
                        NpyIds::Names(Box::new(NamesWriter::create(files[1].file())?))
                    }
                    _ => NpyIds::Numbers(NpyWriter::create(files[1].file())?),
                };
                Writer::Npy(Box::new((column, ids)))
            }
            OutputFormat::Parquet | OutputFormat::Csv => {
                let row_bytes = 16 + 4 * values.iter().map(Values::width).sum::<usize>();
                let columns = [("id".to_string(), ids.data_type())].into_iter().chain(columns);
                Writer::Columns(ColumnsFile::create(path, format, columns, row_bytes)?)
            }
        };
        Ok(Self { ids, values, writer, files })
    }

    /// Appends the rows of `vertices`, with the cells of each kind of values.
    pub fn add_rows(&mut self, vertices: &[u32], cells: &[Cells]) -> Result<()> {
        match &mut self.writer {
            Writer::Npy(npy) => {
                let (column, ids) = npy.as_mut();
                match cells.first() {
                    Some(Cells::Class(values)) => column.push(bytemuck::cast_slice(values))?,
                    Some(Cells::Flags(values)) => column.push(values)?,
                    Some(Cells::Real(values)) => column.push(bytemuck::cast_slice(values))?,
                    None => {}
                }
                match (ids, self.ids) {
                    (NpyIds::Names(out), OutputIds::Names(names)) => {
                        vertices.iter().try_for_each(|&v| out.push(names.get(v)?))?;
                    }
                    (NpyIds::Numbers(out), ids) => {
                        out.push(&vertices.iter().map(|&v| ids.number(v)).collect::<Vec<_>>())?;
                    }
                    (NpyIds::Names(_), _) => {}
                }
            }
            Writer::Columns(out) => {
                let mut columns = vec![out.ids(self.ids, vertices)?];
                for (values, cells) in self.values.iter().zip(cells) {
                    columns.extend(values.arrays(cells)?);
                }
                out.push(columns)?;
            }
        }
        Ok(())
    }

    /// Completes the files, which the caller makes visible.
    pub fn finish(self) -> Result<Vec<Staging>> {
        match self.writer {
            Writer::Npy(npy) => {
                let (column, ids) = *npy;
                column.finish()?;
                match ids {
                    NpyIds::Numbers(ids) => drop(ids.finish()?),
                    NpyIds::Names(ids) => drop(ids.finish()?),
                }
            }
            Writer::Columns(out) => out.finish()?,
        }
        Ok(self.files)
    }
}

/// The columns, with `_` added to names that `id` or an earlier column already has.
fn distinct(columns: impl Iterator<Item = (String, DataType)>) -> Vec<(String, DataType)> {
    let mut taken = std::collections::HashSet::from(["id".to_string()]);
    columns
        .map(|(mut name, kind)| {
            while !taken.insert(name.clone()) {
                name.push('_');
            }
            (name, kind)
        })
        .collect()
}

/// Quotes a field of a CSV file if needed (RFC 4180).
fn csv_field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

fn item() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Float32, false))
}

/// A file of columns under construction: Parquet or CSV.
pub struct ColumnsFile {
    path: PathBuf,
    schema: Arc<Schema>,
    writer: ColumnsWriter,
}

enum ColumnsWriter {
    Parquet(Box<ArrowWriter<File>>),
    Csv(BufWriter<File>),
}

impl ColumnsFile {
    /// Creates the file at `path`; rows have about `row_bytes` bytes.
    pub fn create(
        path: PathBuf,
        format: OutputFormat,
        columns: impl IntoIterator<Item = (String, DataType)>,
        row_bytes: usize,
    ) -> Result<Self> {
        let fields = columns.into_iter().map(|(name, kind)| Field::new(name, kind, false));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let file = File::create(&path).map_err(StoreError::io(&path))?;
        let writer = match format {
            OutputFormat::Csv => {
                let mut file = BufWriter::new(file);
                let names: Vec<String> =
                    schema.fields().iter().map(|field| csv_field(field.name())).collect();
                writeln!(file, "{}", names.join(",")).map_err(StoreError::io(&path))?;
                ColumnsWriter::Csv(file)
            }
            OutputFormat::Npy | OutputFormat::Parquet => {
                let properties = ZstdLevel::try_new(3).map(|level| {
                    let builder =
                        WriterProperties::builder().set_compression(Compression::ZSTD(level));
                    builder
                        .set_max_row_group_row_count(Some((GROUP_BYTES / row_bytes).max(1)))
                        .build()
                });
                let writer = properties
                    .and_then(|own| ArrowWriter::try_new(file, schema.clone(), Some(own)));
                ColumnsWriter::Parquet(Box::new(writer.map_err(|error| failed(&path, error))?))
            }
        };
        Ok(Self { path, schema, writer })
    }

    /// The ids of `vertices` as a column.
    pub fn ids(&self, ids: &OutputIds, vertices: &[u32]) -> Result<ArrayRef> {
        if let OutputIds::Names(names) = ids {
            let names = vertices
                .iter()
                .map(|&v| names.get(v))
                .collect::<gsplit_store::Result<Vec<&str>>>()?;
            return Ok(Arc::new(StringArray::from(names)));
        }
        if matches!(self.writer, ColumnsWriter::Csv(_)) {
            return Ok(Arc::new(UInt64Array::from_iter_values(
                vertices.iter().map(|&v| ids.number(v)),
            )));
        }
        let signed = |&v: &u32| {
            let id = ids.number(v);
            let problem = || {
                StoreError::Invalid(format!(
                    "vertex {v} has the id {id}, Parquet files hold ids below 2^63"
                ))
            };
            Ok(i64::try_from(id).map_err(|_| problem())?)
        };
        Ok(Arc::new(Int64Array::from(vertices.iter().map(signed).collect::<Result<Vec<i64>>>()?)))
    }

    /// Appends rows, given column by column.
    pub fn push(&mut self, columns: Vec<ArrayRef>) -> Result<()> {
        match &mut self.writer {
            ColumnsWriter::Parquet(out) => {
                let batch =
                    RecordBatch::try_new(self.schema.clone(), columns).map_err(ParquetError::from);
                batch.and_then(|batch| out.write(&batch)).map_err(|error| failed(&self.path, error))
            }
            ColumnsWriter::Csv(out) => {
                let mut line = String::new();
                for row in 0..columns.first().map_or(0, |column| column.len()) {
                    line.clear();
                    for (at, column) in columns.iter().enumerate() {
                        line.push_str(if at > 0 { "," } else { "" });
                        push_cell(column, row, &mut line);
                    }
                    writeln!(out, "{line}").map_err(StoreError::io(&self.path))?;
                }
                Ok(())
            }
        }
    }

    /// Completes the file.
    pub fn finish(self) -> Result<()> {
        let Self { path, writer, .. } = self;
        let file = match writer {
            ColumnsWriter::Parquet(out) => {
                out.into_inner().map_err(|error| failed(&path, error))?
            }
            ColumnsWriter::Csv(out) => {
                out.into_inner().map_err(|error| StoreError::io(&path)(error.into_error()))?
            }
        };
        Ok(file.sync_all().map_err(StoreError::io(&path))?)
    }
}

/// Appends the cell in `row` of `column`, as a field of a CSV file.
fn push_cell(column: &ArrayRef, row: usize, line: &mut String) {
    let written = match column.data_type() {
        DataType::Utf8 => line.write_str(&csv_field(column.as_string::<i32>().value(row))),
        DataType::UInt64 => write!(line, "{}", column.as_primitive::<UInt64Type>().value(row)),
        DataType::Int32 => write!(line, "{}", column.as_primitive::<Int32Type>().value(row)),
        DataType::UInt8 => write!(line, "{}", column.as_primitive::<UInt8Type>().value(row)),
        _ => write!(line, "{}", column.as_primitive::<Float32Type>().value(row)),
    };
    // Writing to a string cannot fail.
    debug_assert!(written.is_ok());
}

/// Converts an error of a Parquet file.
fn failed(path: &Path, error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(cause) => StoreError::io(path)(*cause).into(),
            Err(other) => StoreError::Invalid(format!("{}: {other}", path.display())).into(),
        },
        other => StoreError::Invalid(format!("{}: {other}", path.display())).into(),
    }
}
