//! One column of a table of vertices, read row by row on demand.

use std::path::Path;
use std::sync::Arc;

use gsplit_store::{Progress, Unit};

use super::cells::{self, append_raw, each_row};
use super::columnar::at_row;
use super::frames::{self, Frames};
use super::sheet::Sheet;
use crate::edges::{Piece, ValueType};
use crate::read::raw::{Column, element_bytes};
use crate::read::text::line::fields;
use crate::read::text::value::{is_missing, write_number};
use crate::read::text::{TextStream, lines};
use crate::{Error, Result};

/// Rows of text handed over at a time.
const BYTES_PER_TAKE: usize = 1 << 18;

/// A column of Parquet or Arrow files.
pub struct FrameColumn {
    parts: Vec<Arc<dyn Frames>>,
    name: String,
    /// Its name in the table.
    column: String,
    descr: &'static str,
    width: usize,
    /// One label per vertex: integers become `<i8`, and a null becomes -1.
    label: bool,
    /// Sets of classes: an empty cell has none.
    sets: bool,
    /// Numbers of any type become doubles, and a null becomes NaN.
    doubles: bool,
}

impl FrameColumn {
    /// Column `at` of the first of `parts`, which holds `width` numbers per row.
    pub fn new(parts: Vec<Arc<dyn Frames>>, at: usize, name: &str, width: usize, label: bool) -> Self {
        let field = parts.first().map(|part| part.schema().field(at).clone());
        let (column, own) = field.as_ref().map_or((String::new(), "<f4"), |field| {
            let items = cells::list_of(field.data_type());
            let label = label && items.is_none();
            let descr = cells::descr(items.map_or(field.data_type(), |(item, _)| item)).unwrap_or("<f4");
            (field.name().clone(), if label && !descr.starts_with("<f") { "<i8" } else { descr })
        });
        let is_list = field.is_some_and(|field| cells::list_of(field.data_type()).is_some());
        let sets = label && is_list;
        let label = label && own == "<i8" && width == 1;
        Self { parts, name: name.into(), column, descr: own, width, label, sets, doubles: false }
    }

    /// Column `at` of the first of `parts`, one number per row, as doubles.
    pub fn doubles(parts: Vec<Arc<dyn Frames>>, at: usize, name: &str) -> Self {
        Self { descr: "<f8", doubles: true, ..Self::new(parts, at, name, 1, false) }
    }

    fn append(&self, rows: &arrow_array::ArrayRef, out: &mut Vec<u8>) -> cells::RowResult<()> {
        each_row(rows, self.width, &mut |row, items, first| {
            if self.label {
                let place = first.filter(|&place| items.is_valid(place));
                let at = out.len();
                out.extend((-1i64).to_le_bytes());
                return match place {
                    Some(place) => {
                        cells::scatter(&items.slice(place, 1), ValueType::I64, 1, (0, 8), None, &mut out[at..])
                            .map_err(|(_, problem)| (row, problem))
                    }
                    None => Ok(()),
                };
            }
            if self.doubles {
                let at = out.len();
                out.resize(at + 8, 0);
                let place = first.unwrap_or(row);
                return cells::scatter(&items.slice(place, 1), ValueType::F64, 1, (0, 8), None, &mut out[at..])
                    .map_err(|(_, problem)| (row, problem));
            }
            if self.sets && first.is_none() {
                out.resize(out.len() + self.width * element_bytes(self.descr), 0);
                return Ok(());
            }
            if cells::descr(items.data_type()) != Some(self.descr) {
                return Err((row, format!("is of type {}: expected that of the first file", items.data_type())));
            }
            append_raw(items.as_ref(), first, self.width, out).map_err(|problem| (row, problem))
        })
    }
}

impl Column for FrameColumn {
    fn path(&self) -> &Path {
        self.parts.first().map_or(Path::new(""), |part| part.path())
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn descr(&self) -> &'static str {
        self.descr
    }

    fn width(&self) -> usize {
        self.width
    }

    fn num_rows(&self) -> Option<u64> {
        self.parts.iter().flat_map(|part| part.groups()).try_fold(0u64, |all, &rows| all.checked_add(rows))
    }

    fn read(&self, progress: &dyn Progress, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let stage = progress.stage(&format!("reading {}", self.name), self.num_rows(), Unit::Items("rows"));
        let mut out = Vec::new();
        frames::scan(&self.parts, std::slice::from_ref(&self.column), &mut |path, first, arrays| {
            let Some(array) = arrays.first() else { return Ok(()) };
            out.clear();
            self.append(array, &mut out)
                .map_err(|(row, problem)| at_row(path, first + row as u64, &self.column, &problem))?;
            stage.advance(array.len() as u64);
            take(&out)
        })
    }
}

/// A column of text files.
pub struct TextColumn {
    sheet: Sheet,
    at: usize,
    name: String,
    value: ValueType,
    /// An empty label becomes NaN, or -1.
    label: bool,
}

impl TextColumn {
    /// Column `at`, whose numbers are stored as `value`.
    pub fn new(sheet: Sheet, at: usize, name: &str, value: ValueType, label: bool) -> Self {
        Self { sheet, at, name: name.into(), value, label }
    }

    fn append(&self, line: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let (mut count, mut result) = (0, Ok(()));
        fields(line, self.sheet.delimiter, |place, cell| {
            count = place + 1;
            if place == self.at {
                let at = out.len();
                out.resize(at + self.value.bytes(), 0);
                result = self.sheet.cell(place, &cell).and_then(|cell| {
                    match self.label && self.value == ValueType::I64 && is_missing(&cell) {
                        true => write_number(b"-1", self.value, &mut out[at..]),
                        false => write_number(&cell, self.value, &mut out[at..]),
                    }
                });
            }
            result.is_ok()
        })?;
        result.map_err(|problem| format!("column `{}`: {problem}", self.sheet.columns[self.at].0))?;
        self.sheet.check_count(count)
    }
}

impl Column for TextColumn {
    fn path(&self) -> &Path {
        self.sheet.files.first().map_or(Path::new(""), |file| file)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn descr(&self) -> &'static str {
        match self.value {
            ValueType::F32 => "<f4",
            ValueType::F64 => "<f8",
            ValueType::I64 => "<i8",
        }
    }

    fn width(&self) -> usize {
        1
    }

    fn num_rows(&self) -> Option<u64> {
        None
    }

    fn read(&self, progress: &dyn Progress, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let stage = progress.stage(&format!("reading {}", self.name), Some(self.sheet.bytes), Unit::Bytes);
        let (mut piece, mut out) = (Piece::default(), Vec::new());
        for file in &self.sheet.files {
            let (mut stream, mut done) = (TextStream::open(file)?, 0);
            while stream.next(&mut piece)? {
                for (number, line) in lines(&piece) {
                    let row = self.sheet.row(number, line);
                    let appended = row.and_then(|row| row.map_or(Ok(()), |row| self.append(row, &mut out)));
                    appended.map_err(|problem| Error::line(file, number, problem))?;
                    if out.len() >= BYTES_PER_TAKE {
                        take(&out)?;
                        out.clear();
                    }
                }
                stage.advance(stream.bytes_done() - done);
                done = stream.bytes_done();
            }
        }
        if out.is_empty() { Ok(()) } else { take(&out) }
    }
}
