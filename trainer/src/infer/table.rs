//! Files of one row a vertex, with the vertices' original ids: `.npy` or `.parquet`, by the name's end.
//!
//! ```text
//! NAME.npy       the values: [rows], or [rows, width]
//! NAME.ids.npy   u64[rows], the ids; where the raw input's ids were strings NAME.ids.arrow, one LargeUtf8 column
//! NAME.parquet   columns `id` (int64 or string) and the values, which are lists where they are wide; beside a class that has a name
//!                `class_name`
//! ```
//!
//! Rows are in the dataset's order. Files are written beside their final place, which all of a run take as one when all are
//! whole ([`commit_all`](gsplit_store::staging::commit_all)).

use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Int32Array, Int64Array, RecordBatch, StringArray, UInt8Array,
};
use arrow_schema::{DataType, Field, Schema};
use gsplit_store::staging::{Staging, Target};
use gsplit_store::{ColumnWriter, Dataset, Error as StoreError, Names, NamesWriter, NpyWriter, OriginalIds};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use crate::{Error, Result};

/// About the bytes of a row group, before compression.
const GROUP_BYTES: usize = 1 << 25;

/// Values of a row beside the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values<'a> {
    /// One class, i32, and the names of all where they have names.
    Class(Option<&'a [String]>),
    /// 0 or 1 for each class, u8.
    Classes(usize),
    /// f32 numbers.
    Real(usize),
    /// One f32 number.
    Number,
}

impl<'a> Values<'a> {
    fn width(self) -> usize {
        match self {
            Self::Class(_) | Self::Number => 1,
            Self::Classes(width) | Self::Real(width) => width,
        }
    }

    fn descr(self) -> &'static str {
        match self {
            Self::Class(_) => "<i4",
            Self::Classes(_) => "|u1",
            Self::Real(_) | Self::Number => "<f4",
        }
    }

    fn item(self) -> DataType {
        match self {
            Self::Class(_) => DataType::Int32,
            Self::Classes(_) => DataType::UInt8,
            Self::Real(_) | Self::Number => DataType::Float32,
        }
    }

    fn is_list(self) -> bool {
        !matches!(self, Self::Class(_) | Self::Number)
    }

    fn names(self) -> Option<&'a [String]> {
        match self {
            Self::Class(names) => names,
            _ => None,
        }
    }
}

/// Rows of one chunk.
#[derive(Clone, Copy, Debug)]
pub enum Cells<'a> {
    /// Values of [`Values::Class`].
    Class(&'a [i32]),
    /// Values of [`Values::Classes`].
    Classes(&'a [u8]),
    /// Values of [`Values::Real`] and [`Values::Number`].
    Real(&'a [f32]),
}

/// The original ids of a dataset.
pub enum OutputIds {
    /// The dataset's own.
    Own,
    /// Numbers.
    Numbers(OriginalIds),
    /// Strings.
    Names(Names),
}

impl OutputIds {
    /// The ids of `dataset`.
    pub fn open(dataset: &Dataset) -> Result<Self> {
        if let Some(names) = dataset.original_names()? {
            return Ok(Self::Names(names));
        }
        Ok(dataset.original_ids()?.map_or(Self::Own, Self::Numbers))
    }

    /// The id of `v` as text.
    pub fn text(&self, v: u32) -> Result<Cow<'_, str>> {
        match self {
            Self::Names(names) => Ok(names.get(v)?.into()),
            numbers => Ok(numbers.number(v).to_string().into()),
        }
    }

    /// Type of a Parquet file's column of ids.
    pub fn data_type(&self) -> DataType {
        if matches!(self, Self::Names(_)) { DataType::Utf8 } else { DataType::Int64 }
    }

    fn number(&self, v: u32) -> u64 {
        match self {
            Self::Numbers(ids) => ids.get(v as usize),
            _ => u64::from(v),
        }
    }
}

/// The file of the ids that belong to the values in `out`, if they have one of their own.
pub fn ids_beside(out: &Path, string_ids: bool) -> Option<PathBuf> {
    let end = if string_ids { "ids.arrow" } else { "ids.npy" };
    out.extension().is_some_and(|extension| extension == "npy").then(|| out.with_extension(end))
}

/// A file under construction, and that of its ids. Dropped, it leaves nothing.
pub struct Table<'a> {
    ids: &'a OutputIds,
    values: Values<'a>,
    writer: Writer,
    /// The values, then the ids where they have a file of their own.
    files: Vec<Staging>,
}

enum Writer {
    Npy(Box<(ColumnWriter, NpyIds)>),
    Parquet(PathBuf, Box<ArrowWriter<File>>, Arc<Schema>),
}

enum NpyIds {
    Numbers(NpyWriter<u64>),
    Names(Box<NamesWriter>),
}

impl<'a> Table<'a> {
    /// Begins the file at `out`, whose column of values is called `name`. What stands there is replaced with `force` only.
    ///
    /// # Errors
    /// [`Error::Option`] if the name ends in neither `.npy` nor `.parquet`, [`Error::Store`] if something stands there.
    pub fn begin(out: &Path, name: &str, values: Values<'a>, ids: &'a OutputIds, force: bool) -> Result<Self> {
        let parquet = match out.extension().and_then(|end| end.to_str()) {
            Some("npy") => false,
            Some("parquet") => true,
            _ => {
                let problem = "expected a name that ends in .npy or .parquet";
                return Err(Error::Option(format!("{}: {problem}", out.display())));
            }
        };
        let finals = [Some(out.to_path_buf()), ids_beside(out, matches!(ids, OutputIds::Names(_)))];
        let begin = |path| Staging::begin(Target::file(path), force);
        let files = finals.into_iter().flatten().map(begin).collect::<gsplit_store::Result<Vec<_>>>()?;
        let writer = match parquet {
            true => parquet_writer(&files[0].file(), name, values, ids)?,
            false => {
                let column = ColumnWriter::create(files[0].file(), values.descr(), values.width())?;
                let ids = match ids {
                    OutputIds::Names(_) => NpyIds::Names(Box::new(NamesWriter::create(files[1].file())?)),
                    _ => NpyIds::Numbers(NpyWriter::create(files[1].file())?),
                };
                Writer::Npy(Box::new((column, ids)))
            }
        };
        Ok(Self { ids, values, writer, files })
    }

    /// Appends the rows of `vertices`.
    pub fn push(&mut self, vertices: &[u32], cells: Cells<'_>) -> Result<()> {
        match &mut self.writer {
            Writer::Npy(npy) => {
                let (column, ids) = npy.as_mut();
                match cells {
                    Cells::Class(values) => column.push(bytemuck::cast_slice(values))?,
                    Cells::Classes(values) => column.push(values)?,
                    Cells::Real(values) => column.push(bytemuck::cast_slice(values))?,
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
            Writer::Parquet(path, out, schema) => {
                let mut columns = vec![id_column(self.ids, vertices)?, value_column(self.values, cells)];
                if let (Some(names), Cells::Class(classes)) = (self.values.names(), cells) {
                    let named = classes.iter().map(|&class| names.get(class as usize).map(String::as_str));
                    columns.push(Arc::new(StringArray::from_iter(named)));
                }
                let batch = RecordBatch::try_new(schema.clone(), columns).map_err(ParquetError::from);
                batch.and_then(|batch| out.write(&batch)).map_err(|error| failed(path, error))?;
            }
        }
        Ok(())
    }

    /// Ends the files, which are to be made visible.
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
            Writer::Parquet(path, out, _) => {
                let file = out.into_inner().map_err(|error| failed(&path, error))?;
                file.sync_all().map_err(StoreError::io(&path))?;
            }
        }
        Ok(self.files)
    }
}

fn parquet_writer(path: &Path, name: &str, values: Values<'_>, ids: &OutputIds) -> Result<Writer> {
    let value = match values.is_list() {
        true => DataType::FixedSizeList(item(values), values.width() as i32),
        false => values.item(),
    };
    let mut fields = vec![Field::new("id", ids.data_type(), false), Field::new(name, value, false)];
    fields.extend(values.names().map(|_| Field::new("class_name", DataType::Utf8, true)));
    let schema = Arc::new(Schema::new(fields));
    let row_bytes = 16 + values.width() * values.item().primitive_width().unwrap_or(1);
    let out = parquet_file(path, &schema, row_bytes)?;
    Ok(Writer::Parquet(path.to_path_buf(), Box::new(out), schema))
}

/// Begins a Parquet file of `schema` with rows of about so many bytes.
pub fn parquet_file(path: &Path, schema: &Arc<Schema>, row_bytes: usize) -> Result<ArrowWriter<File>> {
    let properties = ZstdLevel::try_new(3).map(|level| {
        let builder = WriterProperties::builder().set_compression(Compression::ZSTD(level));
        builder.set_max_row_group_row_count(Some((GROUP_BYTES / row_bytes).max(1))).build()
    });
    let properties = properties.map_err(|error| failed(path, error))?;
    let file = File::create(path).map_err(StoreError::io(path))?;
    ArrowWriter::try_new(file, schema.clone(), Some(properties)).map_err(|error| failed(path, error))
}

fn item(values: Values<'_>) -> Arc<Field> {
    Arc::new(Field::new("item", values.item(), false))
}

/// The ids of `vertices`.
pub fn id_column(ids: &OutputIds, vertices: &[u32]) -> Result<ArrayRef> {
    if let OutputIds::Names(names) = ids {
        let names = vertices.iter().map(|&v| names.get(v)).collect::<gsplit_store::Result<Vec<&str>>>()?;
        return Ok(Arc::new(StringArray::from(names)));
    }
    let signed = |&v: &u32| {
        let id = ids.number(v);
        let problem = || StoreError::Invalid(format!("vertex {v} has the id {id}, Parquet files hold ids below 2^63"));
        Ok(i64::try_from(id).map_err(|_| problem())?)
    };
    Ok(Arc::new(Int64Array::from(vertices.iter().map(signed).collect::<Result<Vec<i64>>>()?)))
}

fn value_column(values: Values<'_>, cells: Cells<'_>) -> ArrayRef {
    let flat: ArrayRef = match cells {
        Cells::Class(cells) => Arc::new(Int32Array::from(cells.to_vec())),
        Cells::Classes(cells) => Arc::new(UInt8Array::from(cells.to_vec())),
        Cells::Real(cells) => Arc::new(Float32Array::from(cells.to_vec())),
    };
    match values.is_list() {
        true => Arc::new(FixedSizeListArray::new(item(values), values.width() as i32, flat, None)),
        false => flat,
    }
}

/// The error of a Parquet file.
pub fn failed(path: &Path, error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(cause) => StoreError::io(path)(*cause).into(),
            Err(other) => StoreError::Invalid(format!("{}: {other}", path.display())).into(),
        },
        other => StoreError::Invalid(format!("{}: {other}", path.display())).into(),
    }
}
