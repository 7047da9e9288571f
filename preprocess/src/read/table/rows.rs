//! A table of any format: its columns, and its rows, cell by cell.
//!
//! It is read in pieces: 1 MiB of text, or at most [`ROWS_PER_PIECE`] rows of one row group or
//! record batch. Memory does not grow with the size of a group; see [`super::parquet`] and
//! [`super::ipc`] for the memory of their decoders.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, SchemaRef};
use gsplit_store::{Progress, Unit};

use super::cells::{Cell, Cells, cells};
use super::choice::{Field, check_names};
use super::cut::LINES_PER_FILE;
use super::folders::{self, FolderColumn};
use super::frames::{self, Frames};
use super::parts::{self, TableFormat};
use super::plain::{self, plain};
use super::sheet::{DATES, Sheet};
use super::statistics::key;
use crate::edges::Piece;
use crate::memory::Memory;
use crate::read::options::{ReadOptions, TextOptions};
use crate::read::text::field::shown;
use crate::read::text::na::MissingValues;
use crate::read::text::{TextStream, parse_pieces};
use crate::{Error, Result};

/// Maximum number of rows of a piece.
pub const ROWS_PER_PIECE: u64 = 1 << 17;

/// A table, opened.
#[derive(Clone)]
pub struct Table {
    /// Its file, or the folder of its parts.
    pub path: PathBuf,
    content: Content,
    /// Its columns.
    pub fields: Vec<Field>,
    /// The last of them, which folder names give, and their cell in each file.
    folders: Arc<Vec<FolderColumn>>,
    /// Bytes of its files.
    pub bytes: u64,
}

#[derive(Clone)]
enum Content {
    Typed(Arc<Typed>),
    Text(Sheet),
}

/// Files of typed columns.
struct Typed {
    parts: Vec<Arc<dyn Frames>>,
    groups: Vec<Group>,
    num_rows: u64,
    /// Values of every column that the user takes for missing.
    missing: Vec<MissingValues>,
}

/// A row group or record batch.
struct Group {
    part: usize,
    group: usize,
    /// Number of its first row, in its file and in the table.
    in_file: u64,
    start: u64,
    rows: u64,
}

/// How far a table is read.
#[derive(Default)]
pub struct TableCursor {
    /// The current file or group, or the next one.
    at: usize,
    row: u64,
    stream: Option<TextStream>,
    bytes_before: u64,
    /// Bytes of the files before the end of the pieces so far.
    pub done: u64,
}

impl Typed {
    fn open(
        path: &Path,
        files: &[PathBuf],
        format: TableFormat,
        memory: Memory,
        missing: &[String],
    ) -> Result<Self> {
        let parts = files
            .iter()
            .map(|file| frames::open(file, format, memory))
            .collect::<Result<Vec<_>>>()?;
        let (mut groups, mut num_rows) = (Vec::new(), 0u64);
        for (part, frames) in parts.iter().enumerate() {
            let mut in_file = 0u64;
            for (group, &rows) in frames.groups().iter().enumerate() {
                groups.push(Group { part, group, in_file, start: num_rows, rows });
                let next = num_rows.checked_add(rows).filter(|&rows| rows < 1 << 62);
                num_rows =
                    next.ok_or_else(|| Error::input(frames.path(), "claims more than 2^62 rows"))?;
                in_file += rows;
            }
        }
        groups.retain(|group| group.rows > 0);
        let names = parts.first().map(|first| frames::names(first.as_ref())).unwrap_or_default();
        check_names(&names)
            .map_err(|problem| Error::input(files.first().map_or(path, |file| file), problem))?;
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let missing = all.iter().map(|name| MissingValues::of(missing, name, &all)).collect();
        Ok(Self { parts, groups, num_rows, missing })
    }

    fn schema(&self) -> Option<&SchemaRef> {
        self.parts.first().map(|first| first.schema())
    }

    fn fields(&self) -> Result<Vec<Field>> {
        let columns = self.schema().into_iter().flat_map(|schema| schema.fields().iter());
        columns
            .map(|column| {
                let read = plain::converted(column.data_type());
                let width = frames::list_width(&self.parts, column)?;
                Ok(super::cells::field(
                    column.name(),
                    read.as_ref().unwrap_or(column.data_type()),
                    width,
                ))
            })
            .collect()
    }

    /// How columns of dates are read, and their names.
    fn readings(&self) -> Vec<(&'static str, Vec<String>)> {
        let fields = self.schema().into_iter().flat_map(|schema| schema.fields().iter());
        let dates = fields.filter(|field| plain::is_date(field.data_type()));
        vec![(DATES, dates.map(|field| field.name().clone()).collect())]
    }
}

impl Table {
    /// Opens the table at `path`, a file or a folder of parts, whose text is cut by `text`. A file
    /// whose content and name do not show its format is `unnamed`.
    pub fn of(
        path: &Path,
        unnamed: Option<TableFormat>,
        text: TextOptions,
        options: &ReadOptions,
        progress: &dyn Progress,
        decisions: &mut Vec<String>,
    ) -> Result<Self> {
        let (files, format) = parts::parts(path, unnamed, decisions)?;
        let length = |path: &PathBuf| Ok(std::fs::metadata(path).map_err(Error::io(path))?.len());
        let bytes = files.iter().map(length).sum::<Result<u64>>()?;
        let missing = options.schema.na.as_deref().unwrap_or_default();
        let (mut fields, content) = if format == TableFormat::Csv {
            let sheet = Sheet::open(path, &files, bytes, text, missing, progress, decisions)?;
            (sheet.fields(), Content::Text(sheet))
        } else {
            let typed = Typed::open(path, &files, format, options.budget(), missing)?;
            parts::check_one_table(path, &files, |at| Ok(frames::names(typed.parts[at].as_ref())))?;
            (typed.fields()?, Content::Typed(Arc::new(typed)))
        };
        if !text.one_table {
            parts::ask_for_one_table(path, &files)?;
        }
        let mut folders = folders::columns(path, &files);
        folders.retain(|folder| fields.iter().all(|field| field.name != folder.field.name));
        fields.extend(folders.iter().map(|folder| folder.field.clone()));
        let path = path.to_path_buf();
        Ok(Self { path, fields, content, folders: Arc::new(folders), bytes })
    }

    /// `text` on the table, as a line for the user. One that begins with `note: ` still does.
    pub fn with_path(&self, text: &str) -> String {
        match text.strip_prefix("note: ") {
            Some(text) => format!("note: {}: {text}", self.path.display()),
            None => format!("{}: {text}", self.path.display()),
        }
    }

    /// An error of the table as a whole.
    pub fn error(&self, problem: impl Into<String>) -> Error {
        Error::input(&self.path, problem)
    }

    /// Number of the columns that the files have; the columns of folder names come after them.
    pub fn num_own(&self) -> usize {
        self.fields.len() - self.folders.len()
    }

    /// The column `at`, if folder names give it.
    pub fn folder(&self, at: usize) -> Option<&FolderColumn> {
        self.folders.get(at.checked_sub(self.num_own())?)
    }

    /// The table as text, if it is.
    pub fn sheet(&self) -> Option<&Sheet> {
        match &self.content {
            Content::Typed(_) => None,
            Content::Text(sheet) => Some(sheet),
        }
    }

    /// Whether its columns have no names.
    pub fn is_unnamed(&self) -> bool {
        self.sheet().is_some_and(|sheet| sheet.header.is_none())
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.sheet().map_or(self.num_rows() == Some(0), Sheet::is_empty)
    }

    /// Number of rows, where the files say it.
    pub fn num_rows(&self) -> Option<u64> {
        match &self.content {
            Content::Typed(typed) => Some(typed.num_rows),
            Content::Text(_) => None,
        }
    }

    /// Number of rows, where the files do not say it by a sample.
    pub fn about_rows(&self) -> u64 {
        match &self.content {
            Content::Typed(typed) => typed.num_rows,
            Content::Text(sheet) => sheet.num_rows,
        }
    }

    /// Lines on how columns whose cells are not plain numbers are read.
    pub fn readings(&self) -> Vec<String> {
        let mut readings = match &self.content {
            Content::Typed(typed) => typed.readings(),
            Content::Text(sheet) => sheet.readings(),
        };
        readings.retain(|(_, columns)| !columns.is_empty());
        let line = |(reading, columns): (_, Vec<_>)| format!("{reading}: {}", columns.join(", "));
        readings.into_iter().map(line).collect()
    }

    /// Reads the cells of the columns called `names` as they are written, if the table is text: as
    /// strings.
    pub fn take_as_strings<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        if let Content::Text(sheet) = &mut self.content {
            names.for_each(|name| sheet.take_as_strings(name));
            self.fields = sheet.fields();
            self.fields.extend(self.folders.iter().map(|folder| folder.field.clone()));
        }
    }

    /// Some of the first values of column `at`, for messages.
    pub fn examples(&self, at: usize) -> Result<String> {
        const SHOWN: usize = 3;
        let (mut cursor, mut piece) = (TableCursor::default(), Piece::default());
        let mut found: Vec<String> = Vec::new();
        while found.is_empty() && self.next(&mut cursor, &mut piece)? {
            self.read(&piece, &[at], &mut |rows| {
                rows.each(0, |_, cell| {
                    if found.len() < SHOWN
                        && let Ok(cell) = cell.scalar()
                        && !cell.is_missing()
                    {
                        let text = shown(key(cell, false).as_bytes());
                        found.extend(Some(text).filter(|text| !found.contains(text)));
                    }
                    Ok(())
                })
            })?;
        }
        let more = if found.len() == SHOWN { " ..." } else { "" };
        Ok(if found.is_empty() { "no values".into() } else { found.join(", ") + more })
    }

    /// The place of row `row`, from 0, as messages name it.
    pub fn place(&self, row: u64) -> String {
        self.sheet().map_or_else(|| format!("row {row}"), |sheet| sheet.place(row))
    }

    /// Type of column `at`, if the table is not text.
    pub fn data_type(&self, at: usize) -> Option<&DataType> {
        match &self.content {
            Content::Typed(typed) => Some(typed.schema()?.fields().get(at)?.data_type()),
            Content::Text(_) => None,
        }
    }

    /// Its files.
    pub fn files(&self) -> Vec<PathBuf> {
        match &self.content {
            Content::Typed(typed) => {
                typed.parts.iter().map(|part| part.path().to_path_buf()).collect()
            }
            Content::Text(sheet) => sheet.files.clone(),
        }
    }

    /// The first file.
    pub fn first_file(&self) -> &Path {
        match &self.content {
            Content::Typed(typed) => typed.parts.first().map_or(Path::new(""), |part| part.path()),
            Content::Text(sheet) => sheet.files.first().map_or(Path::new(""), |file| file),
        }
    }

    /// Whether column `at` is of whole numbers, one a row, and its type lets some be missing.
    pub fn may_lack(&self, at: usize) -> bool {
        let Content::Typed(typed) = &self.content else { return false };
        typed.parts.iter().any(|part| {
            part.schema().fields().get(at).is_some_and(|field| {
                let read = plain::converted(field.data_type()).unwrap_or(field.data_type().clone());
                (field.is_nullable() || !typed.missing[at].is_empty())
                    && (read.is_integer() || read == DataType::Boolean)
            })
        })
    }

    /// The largest integer of the columns at `places`, if the files state it.
    pub fn largest(&self, places: &[usize]) -> Option<u64> {
        let Content::Typed(typed) = &self.content else { return None };
        let mut largest = 0;
        for part in &typed.parts {
            for &at in places {
                let place = frames::place(part.as_ref(), &self.fields[at].name).ok()?;
                let is_plain = plain::converted(part.schema().field(place).data_type()).is_none();
                largest = largest.max(part.largest(place).filter(|_| is_plain)?);
            }
        }
        Some(largest)
    }

    /// Makes `piece` the next one, or returns false at the end.
    pub fn next(&self, cursor: &mut TableCursor, piece: &mut Piece) -> Result<bool> {
        match &self.content {
            Content::Typed(typed) => {
                let Some(group) = typed.groups.get(cursor.at) else {
                    cursor.done = self.bytes;
                    return Ok(false);
                };
                let end = group.start + group.rows;
                (piece.start, piece.end) = (cursor.row, end.min(cursor.row + ROWS_PER_PIECE));
                (cursor.at, cursor.row) = (cursor.at + usize::from(piece.end == end), piece.end);
                let share = u128::from(cursor.row) * u128::from(self.bytes)
                    / u128::from(typed.num_rows.max(1));
                cursor.done = (share as u64).min(self.bytes);
                Ok(true)
            }
            Content::Text(sheet) => loop {
                let Some(file) = sheet.files.get(cursor.at) else { return Ok(false) };
                let stream = match &mut cursor.stream {
                    Some(stream) => stream,
                    none => none.insert(TextStream::open(file)?),
                };
                let more = stream.next(piece)?;
                cursor.done = (cursor.bytes_before + stream.bytes_done()).min(self.bytes);
                if more {
                    piece.start += cursor.at as u64 * LINES_PER_FILE;
                    piece.end = piece.start;
                    return Ok(true);
                }
                cursor.bytes_before += stream.len();
                (cursor.at, cursor.stream) = (cursor.at + 1, None);
            },
        }
    }

    /// The last piece, where it can be read without the others.
    pub fn last_piece(&self) -> Option<Piece> {
        let Content::Typed(typed) = &self.content else { return None };
        let group = typed.groups.last()?;
        Some(Piece {
            start: group.start,
            end: group.start + group.rows.min(ROWS_PER_PIECE),
            ..Piece::default()
        })
    }

    /// Reads `columns`, which ascend, of the rows of `piece`, some rows at a time.
    pub fn read(
        &self,
        piece: &Piece,
        columns: &[usize],
        take: &mut dyn FnMut(&TableRows<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        let (own, of_folders) =
            columns.split_at(columns.partition_point(|&at| at < self.num_own()));
        let name = |slot: usize| &self.fields[columns[slot]].name;
        let of_folder = |&at: &usize, part: usize| {
            self.folder(at).map_or(Cell::Missing, |folder| folder.cell(part))
        };
        let typed = match &self.content {
            Content::Text(sheet) => {
                let part = (piece.start / LINES_PER_FILE) as usize;
                let mut cut = sheet.cut(part, piece, own, |at, cell| sheet.cell(at, cell));
                let problem = cut.problem.take();
                let cells = (0..own.len()).map(|slot| Cells::Written(cut.cells(slot)));
                let others = of_folders.iter().map(|at| Cells::Same(of_folder(at, part)));
                let cells: Vec<Cells<'_>> = cells.chain(others).collect();
                let wrong = |row: usize, slot: usize, problem: String| {
                    let problem = format!("column `{}`: {problem}", name(slot));
                    Error::line(&sheet.files[part], cut.lines[row], problem)
                };
                // The rows before a wrong one come first, and so do their problems.
                take(&TableRows { len: cut.lines.len(), cells: &cells, wrong: &wrong })?;
                return problem.map_or(Ok(()), Err);
            }
            Content::Typed(typed) => typed,
        };
        let at = typed.groups.partition_point(|group| group.start <= piece.start);
        let Some(group) = at.checked_sub(1).map(|at| &typed.groups[at]) else { return Ok(()) };
        let part = &typed.parts[group.part];
        let place = |&at: &usize| frames::place(part.as_ref(), &self.fields[at].name);
        let places: Vec<usize> = own.iter().map(place).collect::<Result<_>>()?;
        let mut in_order = if own.is_empty() { vec![0] } else { places.clone() };
        in_order.sort_unstable();
        let rows = piece.start - group.start..piece.end - group.start;
        part.read(group.group, rows, &in_order, &mut |first, batch| {
            let array = |place: &usize| {
                plain(batch.column(in_order.partition_point(|other| other < place)))
            };
            let arrays: Vec<ArrayRef> = places.iter().map(array).collect();
            let wrong = move |row: usize, slot: usize, problem: String| {
                let row = group.in_file + first + row as u64;
                Error::input(part.path(), format!("row {row}, column `{}`: {problem}", name(slot)))
            };
            let mut found = Vec::with_capacity(columns.len());
            for (slot, (array, &at)) in arrays.iter().zip(own).enumerate() {
                let cells = cells(array).map_err(|problem| wrong(0, slot, problem))?;
                found.push(cells.without(&typed.missing[at]));
            }
            let others = of_folders.iter();
            found.extend(others.map(|at| Cells::Same(of_folder(at, group.part))));
            take(&TableRows { len: batch.num_rows(), cells: &found, wrong: &wrong })
        })
    }

    /// Reads `columns`, which ascend, of all rows, on every thread. `take` gets, in the order of
    /// the rows, what `make` makes of some of them at a time.
    pub fn for_rows<T: Send>(
        &self,
        columns: &[usize],
        progress: &dyn Progress,
        make: impl Fn(&TableRows<'_, '_>) -> Result<T> + Sync,
        take: &mut dyn FnMut(T) -> Result<()>,
    ) -> Result<()> {
        let stage = progress.stage("reading rows", Some(self.bytes), Unit::Bytes);
        let mut cursor = TableCursor::default();
        let next = |piece: &mut Piece| {
            let before = cursor.done;
            let more = self.next(&mut cursor, piece)?;
            stage.advance(cursor.done - before);
            Ok(more)
        };
        let parse = |piece: &Piece| {
            let mut all = Vec::new();
            self.read(piece, columns, &mut |rows| {
                all.push(make(rows)?);
                Ok(())
            })
            .map(|()| all)
        };
        parse_pieces(next, parse, |all: Vec<T>| all.into_iter().try_for_each(&mut *take))
    }
}

/// Rows of a table, column by column. A slot is the place of a column among those that are read.
pub struct TableRows<'r, 'a> {
    /// How many there are.
    pub len: usize,
    cells: &'r [Cells<'a>],
    wrong: &'r dyn Fn(usize, usize, String) -> Error,
}

impl<'a> TableRows<'_, 'a> {
    /// The cells of the column in `slot`.
    pub fn cells(&self, slot: usize) -> &Cells<'a> {
        &self.cells[slot]
    }

    /// The error for a problem with the cell in `row` of the column in `slot`.
    pub fn wrong(&self, row: usize, slot: usize, problem: String) -> Error {
        (self.wrong)(row, slot, problem)
    }

    /// Calls `take` with each row and its cell of the column in `slot`.
    #[inline(always)]
    pub fn each(
        &self,
        slot: usize,
        take: impl FnMut(usize, Cell<'a>) -> Result<(), String>,
    ) -> Result<()> {
        let taken = self.cells[slot].each(self.len, take);
        taken.map_err(|(row, problem)| self.wrong(row, slot, problem))
    }

    /// Like [`each`](Self::each), with cells that are only numbers, strings or missing values.
    #[inline(always)]
    pub fn each_scalar(
        &self,
        slot: usize,
        mut take: impl FnMut(usize, Cell<'a>) -> Result<(), String>,
    ) -> Result<()> {
        self.each(slot, |row, cell| take(row, cell.scalar()?))
    }
}
