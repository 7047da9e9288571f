//! Rows of a table of any format, cell by cell, for the encoders of [`super::features`] and the search for ids.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::DataType;
use gsplit_store::{Progress, Unit};

use super::cells;
use super::choice::{Choice, Field, IdKind};
use super::column::{FrameColumn, TextColumn};
use super::columnar::{self, Columnar, at_row};
use super::csv::Text;
use super::frames::{self, Frames};
use super::parts::{self, TableFormat};
use super::plain;
use super::sheet::Sheet;
use crate::edges::{EdgeColumn, EdgeSource, Piece, ValueType};
use crate::memory::Memory;
use crate::read::options::TextOptions;
use crate::read::raw::Column;
use crate::read::text::field::shown;
use crate::read::text::line;
use crate::read::text::style::DateOrder;
use crate::read::text::value::is_missing;
use crate::read::text::{lines, read_pieces};
use crate::{Error, Result};

/// One cell of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Null, nothing, or one of the words that pandas writes for it.
    Missing,
    /// A number of a typed column, in single and double precision, and as an integer where it is one.
    Number(f32, f64, Option<i64>),
    /// A string, or a number as it is written.
    Text(&'a str),
}

/// A table, opened.
#[derive(Clone)]
pub enum Table {
    /// Parquet or Arrow, and its bytes.
    Frames(Vec<Arc<dyn Frames>>, u64),
    /// Text.
    Text(Sheet),
}

impl Table {
    /// Opens the table at `path`, a file or a folder of parts.
    pub fn open(path: &Path, text: TextOptions, memory: Memory, progress: &dyn Progress) -> Result<Self> {
        let (files, format) = parts::parts(path, Some(TableFormat::Csv), progress)?;
        Self::of(path, &files, format, text, memory, &[], progress)
    }

    /// Opens the table at `path`, whose parts are `files` in `format`.
    pub fn of(
        path: &Path,
        files: &[PathBuf],
        format: TableFormat,
        text: TextOptions,
        memory: Memory,
        missing: &[String],
        progress: &dyn Progress,
    ) -> Result<Self> {
        let bytes = super::total_bytes(files)?;
        Ok(match format {
            TableFormat::Csv => Self::Text(Sheet::open(path, files, text, missing, progress)?),
            _ => Self::Frames(frames::open(path, files, format, memory, missing, progress)?, bytes),
        })
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Frames(_, bytes) => *bytes,
            Self::Text(sheet) => sheet.bytes,
        }
    }

    /// Its columns.
    pub fn fields(&self) -> Result<Vec<Field>> {
        match self {
            Self::Frames(parts, _) => columnar::fields(parts),
            Self::Text(sheet) => Ok(sheet.fields()),
        }
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Frames(..) => self.num_rows() == Some(0),
            Self::Text(sheet) => sheet.is_empty(),
        }
    }

    /// How columns whose cells are not plain numbers are read, and their names.
    pub fn readings(&self) -> Vec<(&'static str, Vec<String>)> {
        match self {
            Self::Frames(parts, _) => plain::readings(parts),
            Self::Text(sheet) => sheet.readings(),
        }
    }

    /// Order of day and month in dates that are not of ISO 8601.
    pub fn date_order(&self) -> Option<DateOrder> {
        match self {
            Self::Frames(..) => None,
            Self::Text(sheet) => sheet.date_order(),
        }
    }

    /// The problem with the first cell of column `at` that is one of the strings `texts`, with its place.
    pub fn problem_of(&self, at: usize, texts: &[String], problem: &str, progress: &dyn Progress) -> Result<()> {
        let find = |_: &mut (), _: usize, cell: Cell<'_>| match cell {
            Cell::Text(text) if texts.iter().any(|known| known == text) => {
                let column = if matches!(self, Self::Text(_)) { "" } else { "is " };
                Err(format!("{column}{}: {problem}", shown(text.as_bytes())))
            }
            _ => Ok(()),
        };
        self.for_rows(&[at], progress, find, &mut |()| Ok(()))
    }

    /// The place of row `row`, from 0, as messages name it.
    pub fn place(&self, row: u64) -> String {
        match self {
            Self::Frames(..) => format!("row {row}"),
            Self::Text(sheet) => sheet.place(row),
        }
    }

    /// Number of rows, where the files say it.
    pub fn num_rows(&self) -> Option<u64> {
        match self {
            Self::Frames(parts, _) => {
                parts.iter().flat_map(|part| part.groups()).try_fold(0u64, |all, &rows| all.checked_add(rows))
            }
            Self::Text(_) => None,
        }
    }

    /// Whether the numbers of column `at` have commas before their fractions.
    pub fn has_decimal_commas(&self, at: usize) -> bool {
        matches!(self, Self::Text(sheet) if sheet.has_decimal_commas(at))
    }

    /// Reads ids, and the flags at `flags` as doubles, 0 for empty cells.
    pub fn source(
        &self,
        fields: &[Field],
        ids: &[usize],
        kind: IdKind,
        flags: &[usize],
    ) -> Result<Box<dyn EdgeSource>> {
        let column = |&at: &usize| EdgeColumn { name: fields[at].name.clone(), value: ValueType::F64, width: 1 };
        let columns = flags.iter().map(column).collect();
        let choice = Choice { ids: [0; 2], kind, values: flags.to_vec(), columns, fill: Some(0.0) };
        Ok(match self {
            Self::Frames(parts, bytes) => Box::new(Columnar::new(parts, ids, &choice, *bytes)?),
            Self::Text(sheet) => Box::new(Text::new(sheet.clone(), ids, &choice)),
        })
    }

    /// The strings of a column, which may be missing, as hashes.
    pub fn source_of_names(&self, at: usize) -> Result<Box<dyn EdgeSource>> {
        let choice = Choice { ids: [0; 2], kind: IdKind::Text, values: vec![], columns: vec![], fill: None };
        Ok(match self {
            Self::Frames(parts, bytes) => Box::new(Columnar::new(parts, &[at], &choice, *bytes)?.with_nulls()),
            Self::Text(sheet) => Box::new(Text::new(sheet.clone(), &[at], &choice).with_nulls()),
        })
    }

    /// Column `at` as it is stored.
    pub fn column(&self, fields: &[Field], at: usize, name: &str, label: bool) -> Box<dyn Column> {
        let (value, width) = fields[at].value.unwrap_or((ValueType::F32, 1));
        match self {
            Self::Frames(parts, _) => Box::new(FrameColumn::new(parts.clone(), at, name, width, label)),
            Self::Text(sheet) => Box::new(TextColumn::new(sheet.clone(), at, name, value, label)),
        }
    }

    /// Column `at`, one number a row, in doubles: NaN where one is missing.
    pub fn doubles(&self, at: usize, name: &str) -> Box<dyn Column> {
        match self {
            Self::Frames(parts, _) => Box::new(FrameColumn::doubles(parts.clone(), at, name)),
            Self::Text(sheet) => Box::new(TextColumn::new(sheet.clone(), at, name, ValueType::F64, false)),
        }
    }

    /// Whether column `at` is of whole numbers, one a row, and its type lets some be missing.
    pub fn may_lack(&self, at: usize) -> bool {
        let Self::Frames(parts, _) = self else { return false };
        parts.iter().any(|part| {
            part.schema().fields().get(at).is_some_and(|field| {
                field.is_nullable() && (field.data_type().is_integer() || *field.data_type() == DataType::Boolean)
            })
        })
    }

    /// Reads all rows, several at a time. `cell` adds the cell of `columns[slot]` to the result of these rows, in the
    /// order of `columns`, which ascend; `take` gets the results of all rows, in their order.
    pub fn for_rows<T: Default + Send>(
        &self,
        columns: &[usize],
        progress: &dyn Progress,
        cell: impl Fn(&mut T, usize, Cell<'_>) -> Result<(), String> + Sync,
        take: &mut dyn FnMut(T) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Frames(parts, _) => {
                let Some(first) = parts.first() else { return Ok(()) };
                let names: Vec<String> = columns.iter().map(|&at| first.schema().field(at).name().clone()).collect();
                let stage = progress.stage("reading rows", self.num_rows(), Unit::Items("rows"));
                frames::scan(parts, &names, &mut |path, first, arrays| {
                    let (mut made, rows) = (T::default(), arrays.first().map_or(0, |array| array.len()));
                    for row in 0..rows {
                        for (slot, array) in arrays.iter().enumerate() {
                            let added = cells::cell(array, row).and_then(|found| cell(&mut made, slot, found));
                            added.map_err(|problem| at_row(path, first + row as u64, &names[slot], &problem))?;
                        }
                    }
                    stage.advance(rows as u64);
                    take(made)
                })
            }
            Self::Text(sheet) => {
                let mut slots = vec![None; sheet.columns.len()];
                columns.iter().enumerate().for_each(|(slot, &at)| slots[at] = Some(slot));
                for file in &sheet.files {
                    let parse = |piece: &Piece| {
                        let mut made = T::default();
                        for (number, line) in lines(piece) {
                            let parsed = sheet.row(number, line).and_then(|row| match row {
                                None => Ok(()),
                                Some(row) => {
                                    row_of_text(sheet, &slots, row, |slot, found| cell(&mut made, slot, found))
                                }
                            });
                            parsed.map_err(|problem| Error::line(file, number, problem))?;
                        }
                        Ok(made)
                    };
                    read_pieces(file, progress, parse, &mut *take)?;
                }
                Ok(())
            }
        }
    }
}

/// Calls `take` with the cells of `line` that have a slot.
fn row_of_text(
    sheet: &Sheet,
    slots: &[Option<usize>],
    line: &[u8],
    mut take: impl FnMut(usize, Cell<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let (mut count, mut wrong) = (0, None);
    line::fields(line, sheet.delimiter, |place, bytes| {
        count = place + 1;
        if let Some(slot) = slots.get(place).copied().flatten() {
            let taken = sheet.cell(place, &bytes).and_then(|bytes| match std::str::from_utf8(&bytes) {
                _ if is_missing(&bytes) => take(slot, Cell::Missing),
                Ok(text) => take(slot, Cell::Text(text)),
                Err(_) => Err(format!("{}: expected UTF-8", shown(&bytes))),
            });
            wrong = taken.err().map(|problem| format!("column `{}`: {problem}", sheet.columns[place].0));
        }
        wrong.is_none()
    })?;
    wrong.map_or_else(|| sheet.check_count(count), Err)
}
