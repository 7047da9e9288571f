//! A table of any format: its columns, and its rows, cell by cell.
//!
//! It is read in pieces: 1 MiB of text, or at most [`ROWS_PER_PIECE`] rows of one row group or
//! record batch. Memory does not grow with the size of a group; see [`super::parquet`] and
//! [`super::ipc`] for the memory of their decoders. Both kinds of content are read by the same
//! functions, so these are in one file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, SchemaRef};
use gsplit_store::{Progress, Unit};

use super::cells::{Cell, Cells, cells};
use super::choice::{Field, check_names};
use super::column::TableColumn;
use super::folders::{self, FolderColumn};
use super::frames::{self, Frames};
use super::parts::{self, TableFormat};
use super::plain::{self, plain};
use super::sheet::{DATES, Sheet};
use super::statistics::key;
use crate::edges::Piece;
use crate::memory::Memory;
use crate::read::options::TextOptions;
use crate::read::raw::Column;
use crate::read::text::field::shown;
use crate::read::text::na::MissingValues;
use crate::read::text::{TextStream, lines, parse_pieces};
use crate::{Error, Result};

/// Maximum number of rows of a piece.
pub const ROWS_PER_PIECE: u64 = 1 << 17;
/// Lines are numbered through all text files: the n-th file starts at n times this.
const LINES_PER_FILE: u64 = 1 << 40;

/// A table, opened.
#[derive(Clone)]
pub struct Table {
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

    /// Names of the columns that hold dates, with how they are read.
    fn readings(&self) -> Vec<(&'static str, Vec<String>)> {
        let fields = self.schema().into_iter().flat_map(|schema| schema.fields().iter());
        let dates = fields.filter(|field| plain::is_date(field.data_type()));
        vec![(DATES, dates.map(|field| field.name().clone()).collect())]
    }
}

impl Table {
    /// Opens the table at `path`, whose parts are `files` in `format` and are inflated within
    /// `memory`; `missing` are words for missing values.
    pub fn of(
        path: &Path,
        files: &[PathBuf],
        format: TableFormat,
        text: TextOptions,
        memory: Memory,
        missing: &[String],
        progress: &dyn Progress,
    ) -> Result<Self> {
        let length = |path: &PathBuf| Ok(std::fs::metadata(path).map_err(Error::io(path))?.len());
        let bytes = files.iter().map(length).sum::<Result<u64>>()?;
        let (mut fields, content) = if format == TableFormat::Csv {
            let sheet = Sheet::open(path, files, bytes, text, missing, progress)?;
            (sheet.fields(), Content::Text(sheet))
        } else {
            let typed = Typed::open(path, files, format, memory, missing)?;
            parts::check_one_table(path, files, |at| Ok(frames::names(typed.parts[at].as_ref())))?;
            (typed.fields()?, Content::Typed(Arc::new(typed)))
        };
        if !text.one_table {
            parts::ask_for_one_table(path, files)?;
        }
        let mut folders = folders::columns(path, files);
        folders.retain(|folder| fields.iter().all(|field| field.name != folder.field.name));
        fields.extend(folders.iter().map(|folder| folder.field.clone()));
        Ok(Self { fields, content, folders: Arc::new(folders), bytes })
    }

    /// Number of the columns that the files have; the columns of folder names come after them.
    pub fn num_own(&self) -> usize {
        self.fields.len() - self.folders.len()
    }

    /// The column `at`, if folder names give it.
    pub fn folder(&self, at: usize) -> Option<&FolderColumn> {
        self.folders.get(at.checked_sub(self.num_own())?)
    }

    /// The cell that folder names give for column `at` in a file.
    fn of_folder(&self, at: usize, part: usize) -> Cell<'_> {
        self.folder(at).map_or(Cell::Missing, |folder| folder.cell(part))
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

    /// How columns whose cells are not plain numbers are read, and their names.
    pub fn readings(&self) -> Vec<(&'static str, Vec<String>)> {
        match &self.content {
            Content::Typed(typed) => typed.readings(),
            Content::Text(sheet) => sheet.readings(),
        }
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

    /// The problem with the first cell of column `at` that is one of the strings `texts`, with its
    /// place.
    pub fn problem_of(
        &self,
        at: usize,
        texts: &[String],
        problem: &str,
        progress: &dyn Progress,
    ) -> Result<()> {
        let find = |_: &mut (), _: usize, cell: Cell<'_>| match cell {
            Cell::Text(text) if texts.iter().any(|known| known == text) => {
                let is = if self.sheet().is_some() { "" } else { "is " };
                Err(format!("{is}{}: {problem}", shown(text.as_bytes())))
            }
            _ => Ok(()),
        };
        self.for_rows(&[at], progress, find, &mut |()| Ok(()))
    }

    /// Some of the first values of column `at`, for messages.
    pub fn examples(&self, at: usize) -> Result<String> {
        const SHOWN: usize = 3;
        let add = |found: &mut Vec<String>, _: usize, _: usize, cell: Cell<'_>| {
            if found.len() < SHOWN
                && let Ok(cell) = cell.scalar()
                && !cell.is_missing()
            {
                let text = shown(key(cell, false).as_bytes());
                found.extend(Some(text).filter(|text| !found.contains(text)));
            }
            Ok(())
        };
        let (mut cursor, mut piece) = (TableCursor::default(), Piece::default());
        let mut found: Vec<String> = Vec::new();
        while found.is_empty() && self.next(&mut cursor, &mut piece)? {
            self.read(&piece, &[at], &mut found, add, |_, _| Ok(()))?;
        }
        let more = if found.len() == SHOWN { " ..." } else { "" };
        Ok(if found.is_empty() { "no values".into() } else { found.join(", ") + more })
    }

    /// The place of row `row`, from 0, as messages name it.
    pub fn place(&self, row: u64) -> String {
        self.sheet().map_or_else(|| format!("row {row}"), |sheet| sheet.place(row))
    }

    /// Column `at` as it is stored.
    pub fn column(&self, at: usize, name: &str, is_label: bool) -> Box<dyn Column> {
        Box::new(TableColumn::new(self, at, name, is_label))
    }

    /// Column `at`, one number a row, in doubles: NaN where one is missing.
    pub fn doubles(&self, at: usize, name: &str) -> Box<dyn Column> {
        Box::new(TableColumn::doubles(self, at, name))
    }

    /// Type of column `at`, if the table is not text.
    pub fn data_type(&self, at: usize) -> Option<&DataType> {
        match &self.content {
            Content::Typed(typed) => Some(typed.schema()?.fields().get(at)?.data_type()),
            Content::Text(_) => None,
        }
    }

    /// The first file.
    pub fn path(&self) -> &Path {
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
            bytes: Vec::new(),
        })
    }

    /// Reads the rows of `piece`, some at a time. `cell` adds the cell in a row, from 0 among
    /// these, of `columns[slot]` to `made`; columns ascend, and their cells come in any order in
    /// which the first column is ahead. `end` is called after these rows, with their number.
    pub fn read<T>(
        &self,
        piece: &Piece,
        columns: &[usize],
        made: &mut T,
        cell: impl Fn(&mut T, usize, usize, Cell<'_>) -> Result<(), String>,
        mut end: impl FnMut(&mut T, usize) -> Result<()>,
    ) -> Result<()> {
        match &self.content {
            Content::Typed(typed) => {
                self.read_batches(typed, piece, columns, &mut |batch, rows, wrong| {
                    for (slot, cells) in batch.iter().enumerate() {
                        let missing = typed.missing.get(columns[slot]);
                        let added = match missing.filter(|missing| !missing.is_empty()) {
                            None => cells.each(rows, |row, found| cell(made, row, slot, found)),
                            Some(missing) => cells.each(rows, |row, found| {
                                cell(made, row, slot, named(found, missing))
                            }),
                        };
                        added.map_err(|(row, problem)| wrong(row, slot, problem))?;
                    }
                    end(made, rows)
                })
            }
            Content::Text(sheet) => {
                let mut rows = 0;
                self.read_text(sheet, piece, columns, |slot, found| {
                    rows += usize::from(slot == 0);
                    cell(made, rows - 1, slot, found)
                })?;
                end(made, rows)
            }
        }
    }

    /// Like [`read`](Self::read), but row by row.
    fn read_rows<T>(
        &self,
        piece: &Piece,
        columns: &[usize],
        made: &mut T,
        cell: &impl Fn(&mut T, usize, Cell<'_>) -> Result<(), String>,
        mut end: impl FnMut(&mut T) -> Result<()>,
    ) -> Result<()> {
        match &self.content {
            Content::Typed(typed) => {
                self.read_batches(typed, piece, columns, &mut |batch, rows, wrong| {
                    for row in 0..rows {
                        for (slot, cells) in batch.iter().enumerate() {
                            let mut found = cells.get(row);
                            if let Some(missing) = typed.missing.get(columns[slot]) {
                                found = named(found, missing);
                            }
                            cell(made, slot, found).map_err(|problem| wrong(row, slot, problem))?;
                        }
                    }
                    end(made)
                })
            }
            Content::Text(sheet) => {
                self.read_text(sheet, piece, columns, |slot, found| cell(made, slot, found))?;
                end(made)
            }
        }
    }

    /// Reads the lines of `piece`, and hands `cell` those of `columns`, row by row.
    fn read_text(
        &self,
        sheet: &Sheet,
        piece: &Piece,
        columns: &[usize],
        mut cell: impl FnMut(usize, Cell<'_>) -> Result<(), String>,
    ) -> Result<()> {
        let part = (piece.start / LINES_PER_FILE) as usize;
        let lines = lines(piece).map(|(number, line)| (number % LINES_PER_FILE, line));
        let own = columns.partition_point(|&at| at < self.num_own());
        if own == columns.len() {
            let take = |_: u64, slot: usize, found: &[u8]| cell(slot, Cell::Written(found));
            return sheet.read(part, lines, columns, take).map(drop);
        }
        // Every row has a first column. The cells of folder names come with it if only they are read.
        let read = if own == 0 { &[0][..] } else { &columns[..own] };
        let take = |_: u64, slot: usize, found: &[u8]| {
            if own > 0 {
                cell(slot, Cell::Written(found))?;
            }
            let mut others = (own..columns.len()).filter(|_| slot + 1 == read.len());
            others.try_for_each(|slot| cell(slot, self.of_folder(columns[slot], part)))
        };
        sheet.read(part, lines, read, take).map(drop)
    }

    /// Reads `columns` of the rows of `piece`, and hands them over in batches.
    fn read_batches(
        &self,
        typed: &Typed,
        piece: &Piece,
        columns: &[usize],
        take: TakeCells<'_>,
    ) -> Result<()> {
        let at = typed.groups.partition_point(|group| group.start <= piece.start);
        let Some(group) = at.checked_sub(1).map(|at| &typed.groups[at]) else { return Ok(()) };
        let part = &typed.parts[group.part];
        let place = |&at: &usize| frames::place(part.as_ref(), &self.fields[at].name);
        let own = columns.partition_point(|&at| at < self.num_own());
        let places: Vec<usize> = columns[..own].iter().map(place).collect::<Result<_>>()?;
        let mut in_order = if own == 0 { vec![0] } else { places.clone() };
        in_order.sort_unstable();
        let rows = piece.start - group.start..piece.end - group.start;
        part.read(group.group, rows, &in_order, &mut |first, batch| {
            let array = |place: &usize| {
                plain(batch.column(in_order.partition_point(|other| other < place)))
            };
            let arrays: Vec<ArrayRef> = places.iter().map(array).collect();
            let wrong = |row: usize, slot: usize, problem: String| {
                let (row, name) =
                    (group.in_file + first + row as u64, &self.fields[columns[slot]].name);
                Error::input(part.path(), format!("row {row}, column `{name}`: {problem}"))
            };
            let mut columns_of_cells = Vec::new();
            for (slot, array) in arrays.iter().enumerate() {
                columns_of_cells.push(cells(array).map_err(|problem| wrong(0, slot, problem))?);
            }
            for &at in &columns[own..] {
                let cell = self.of_folder(at, group.part);
                columns_of_cells.push(Cells::Others(Box::new(move |_| cell)));
            }
            take(&columns_of_cells, batch.num_rows(), &wrong)
        })
    }

    /// Reads all rows, several at a time. `cell` adds the cell of `columns[slot]` to the result of
    /// these rows, in the order of `columns`, which ascend; `take` gets the results of all rows, in
    /// their order.
    pub fn for_cells<T: Default + Send>(
        &self,
        columns: &[usize],
        progress: &dyn Progress,
        cell: impl Fn(&mut T, usize, Cell<'_>) -> Result<(), String> + Sync,
        take: &mut dyn FnMut(T) -> Result<()>,
    ) -> Result<()> {
        let parse = |piece: &Piece, all: &mut Vec<T>| {
            self.read_rows(piece, columns, &mut T::default(), &cell, |made| {
                all.push(std::mem::take(made));
                Ok(())
            })
        };
        self.for_pieces(progress, parse, take)
    }

    /// Like [`for_rows`](Self::for_rows), but in the order of [`read`](Self::read): `cell` also
    /// gets the row, and `take` the number of rows.
    pub fn for_columns<T: Default + Send>(
        &self,
        columns: &[usize],
        progress: &dyn Progress,
        cell: impl Fn(&mut T, usize, usize, Cell<'_>) -> Result<(), String> + Sync,
        take: &mut dyn FnMut(T, usize) -> Result<()>,
    ) -> Result<()> {
        let parse = |piece: &Piece, all: &mut Vec<(T, usize)>| {
            self.read(piece, columns, &mut T::default(), &cell, |made, rows| {
                all.push((std::mem::take(made), rows));
                Ok(())
            })
        };
        self.for_pieces(progress, parse, &mut |(made, rows)| take(made, rows))
    }

    fn for_pieces<T: Send>(
        &self,
        progress: &dyn Progress,
        parse: impl Fn(&Piece, &mut Vec<T>) -> Result<()> + Sync,
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
            parse(piece, &mut all).map(|()| all)
        };
        parse_pieces(next, parse, |all: Vec<T>| all.into_iter().try_for_each(&mut *take))
    }

    /// Like [`for_cells`](Self::for_cells), but cells are only numbers, strings or missing values.
    pub fn for_rows<T: Default + Send>(
        &self,
        columns: &[usize],
        progress: &dyn Progress,
        cell: impl Fn(&mut T, usize, Cell<'_>) -> Result<(), String> + Sync,
        take: &mut dyn FnMut(T) -> Result<()>,
    ) -> Result<()> {
        self.for_cells(
            columns,
            progress,
            |made, slot, found| cell(made, slot, found.scalar()?),
            take,
        )
    }
}

/// Takes a batch: the cells of each column, the number of rows, and how the problem with a row of a
/// column becomes an error.
type TakeCells<'t> =
    &'t mut dyn FnMut(&[Cells<'_>], usize, &dyn Fn(usize, usize, String) -> Error) -> Result<()>;

/// `cell`, or a missing one if it is one of the values that the user takes for `missing`.
#[inline]
fn named<'a>(cell: Cell<'a>, missing: &MissingValues) -> Cell<'a> {
    let is_missing = !missing.is_empty()
        && match cell {
            Cell::Text(text) => missing.has(text.trim().as_bytes()),
            Cell::Number(number) => missing.has_number(number.f64()),
            _ => false,
        };
    if is_missing { Cell::Missing } else { cell }
}
