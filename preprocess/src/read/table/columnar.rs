//! Ids and values from Parquet and Arrow tables, piece by piece.
//!
//! A piece is a range of rows of one row group or record batch, at most [`ROWS_PER_PIECE`], so that memory does not
//! grow with the size of a group; see [`super::parquet`] and [`super::ipc`] for the memory of their decoders.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;

use super::cells;
use super::choice::{Choice, Field, IdKind, check_names};
use super::frames::{Frames, place};
use crate::edges::{EdgeBatch, EdgeColumn, EdgeSource, Estimate, Piece, ValueType, WEIGHT, row_bytes};
use crate::read::text::names::Names;
use crate::{Error, Result};

/// Maximum number of rows of a piece.
pub const ROWS_PER_PIECE: u64 = 1 << 17;

/// The id columns of a table, two for edges and one for vertices, and its columns of numbers.
pub struct Columnar {
    parts: Vec<TablePart>,
    groups: Vec<Group>,
    kind: IdKind,
    /// Whether the files have another kind of ids than the user requests.
    is_other_kind: bool,
    /// Name of each column of ids.
    ids: Vec<String>,
    columns: Vec<EdgeColumn>,
    /// Name of each value's column in the table.
    names: Vec<String>,
    row_bytes: usize,
    num_rows: u64,
    bytes: u64,
    /// The next piece: its group, and its first row in the table.
    next: Mutex<(usize, u64)>,
    /// Whether a null is the empty string.
    nulls: bool,
    /// Value of edges that have none.
    fill: Option<f64>,
}

struct TablePart {
    frames: Arc<dyn Frames>,
    /// The columns to read, ascending.
    read: Vec<usize>,
    /// Places of the ids among the columns to read.
    ids: Vec<usize>,
    values: Vec<usize>,
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

impl Columnar {
    /// Reads the columns at `ids` of the first of `parts`, and the values of `choice`; the columns of the other parts are
    /// found by name.
    pub fn new(parts: &[Arc<dyn Frames>], ids: &[usize], choice: &Choice, bytes: u64) -> Result<Self> {
        let Some(first) = parts.first() else { return Err(Error::Option("a table without files".into())) };
        let name = |&at: &usize| first.schema().field(at).name().clone();
        let id_names: Vec<String> = ids.iter().map(name).collect();
        let names: Vec<String> = choice.values.iter().map(name).collect();
        let id_of = |&at: &usize| cells::field("", first.schema().field(at).data_type(), None).id;
        let is_other_kind = ids.iter().any(|at| id_of(at) != Some(choice.kind));
        let (mut all, mut groups, mut num_rows) = (Vec::new(), Vec::new(), 0u64);
        for frames in parts {
            let mut in_file = 0u64;
            for (group, &rows) in frames.groups().iter().enumerate() {
                groups.push(Group { part: all.len(), group, in_file, start: num_rows, rows });
                let next = num_rows.checked_add(rows).filter(|&rows| rows < 1 << 62);
                num_rows = next.ok_or_else(|| Error::input(frames.path(), "claims more than 2^62 rows"))?;
                in_file += rows;
            }
            let places = |names: &[String]| -> Result<Vec<usize>> {
                names.iter().map(|name| place(frames.as_ref(), name)).collect()
            };
            let (ids, values) = (places(&id_names)?, places(&names)?);
            let mut read = [ids.as_slice(), &values].concat();
            read.sort_unstable();
            read.dedup();
            let among = |places: Vec<usize>| places.iter().map(|at| read.partition_point(|other| other < at)).collect();
            let (ids, values) = (among(ids), among(values));
            all.push(TablePart { frames: frames.clone(), read, ids, values });
        }
        groups.retain(|group| group.rows > 0);
        Ok(Self {
            parts: all,
            groups,
            kind: choice.kind,
            is_other_kind,
            ids: id_names,
            row_bytes: row_bytes(&choice.columns),
            columns: choice.columns.clone(),
            names,
            num_rows,
            bytes,
            next: Mutex::new((0, 0)),
            nulls: false,
            fill: choice.fill,
        })
    }

    /// Reads nulls as the empty string, if ids are strings.
    pub fn with_nulls(mut self) -> Self {
        self.nulls = true;
        self
    }

    fn next_row(&self) -> u64 {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    fn append(&self, part: &TablePart, first: u64, batch: &RecordBatch, into: &mut EdgeBatch) -> Result<()> {
        let path = part.frames.path();
        let wrong = |name: &String, (row, problem): (usize, String)| at_row(path, first + row as u64, name, &problem);
        let as_asked = |(&at, name): (&usize, &String)| match self.is_other_kind {
            true => cells::as_kind(batch.column(at), self.kind).map_err(|cell| wrong(name, cell)),
            false => Ok(batch.column(at).clone()),
        };
        let arrays = part.ids.iter().zip(&self.ids).map(as_asked).collect::<Result<Vec<_>>>()?;
        let mut names = Names::default();
        let ends = [&mut into.sources, &mut into.targets];
        for ((array, name), ids) in arrays.iter().zip(&self.ids).zip(ends) {
            let array = array.as_ref();
            if !self.nulls {
                cells::check_valid(array).map_err(|cell| wrong(name, cell))?;
            }
            cells::push_ids(array, self.kind, &mut names, ids).map_err(|cell| wrong(name, cell))?;
        }
        names.append_to(&mut into.names);
        let start = into.values.len();
        into.values.resize(start + batch.num_rows() * self.row_bytes, 0);
        let mut offset = 0;
        for ((&at, name), column) in part.values.iter().zip(&self.names).zip(&self.columns) {
            let (array, place) = (batch.column(at), (offset, self.row_bytes));
            let found = cells::field(name, array.data_type(), Some(column.width)).value;
            if column.value == ValueType::F32 && column.name != WEIGHT && matches!(found, Some((ValueType::I64, _))) {
                let problem = format!("is of type {}: expected floats, as in the first file", array.data_type());
                return Err(wrong(name, (0, problem)));
            }
            cells::scatter(array, column.value, column.width, place, self.fill, &mut into.values[start..])
                .map_err(|cell| wrong(name, cell))?;
            offset += column.width * column.value.bytes();
        }
        Ok(())
    }

    /// Largest id, from the statistics in the files, or else from the first and the last piece.
    fn largest(&self) -> Result<u64> {
        let said = |part: &TablePart| {
            part.ids.iter().try_fold(0, |all: u64, &at| Some(all.max(part.frames.largest(part.read[at])?)))
        };
        if let Some(largest) = self.parts.iter().try_fold(0, |all: u64, part| Some(all.max(said(part)?))) {
            return Ok(largest);
        }
        let mut largest = 0;
        for group in [self.groups.first(), self.groups.last()].into_iter().flatten() {
            let mut piece =
                Piece { start: group.start, end: group.start + group.rows.min(ROWS_PER_PIECE), bytes: vec![] };
            let mut batch = EdgeBatch::default();
            self.parse(&mut piece, &mut batch)?;
            largest = batch.sources.iter().chain(&batch.targets).fold(largest, |largest, &id| largest.max(id));
        }
        Ok(largest)
    }
}

/// A problem in a row, counted from 0.
pub fn at_row(path: &Path, row: u64, column: &str, problem: &str) -> Error {
    Error::input(path, format!("row {row}, column `{column}`: {problem}"))
}

impl EdgeSource for Columnar {
    fn rewind(&self) -> Result<()> {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = (0, 0);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(group) = self.groups.get(next.0) else { return Ok(false) };
        let end = group.start + group.rows;
        piece.start = next.1;
        piece.end = end.min(next.1 + ROWS_PER_PIECE);
        *next = (next.0 + usize::from(piece.end == end), piece.end);
        Ok(true)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let at = self.groups.partition_point(|group| group.start <= piece.start);
        let Some(group) = at.checked_sub(1).map(|at| &self.groups[at]) else { return Ok(()) };
        let part = &self.parts[group.part];
        let rows = piece.start - group.start..piece.end - group.start;
        part.frames.read(group.group, rows, &part.read, &mut |row, rows| {
            self.append(part, group.in_file + row, rows, batch)
        })?;
        unique_names(&mut batch.names);
        Ok(())
    }

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn has_string_ids(&self) -> bool {
        self.kind == IdKind::Text
    }

    fn estimate(&self) -> Result<Estimate> {
        let vertices = match self.kind {
            // Hashes have no largest id; real graphs have several edges per vertex.
            IdKind::Text => self.num_rows / 4 + 1,
            IdKind::Number => self.largest()?.saturating_add(1),
        };
        Ok(Estimate { edges: self.num_rows, vertices, bytes: self.bytes })
    }

    fn bytes_done(&self) -> u64 {
        if self.num_rows == 0 {
            return self.bytes;
        }
        let share = u128::from(self.next_row()) * u128::from(self.bytes) / u128::from(self.num_rows);
        (share as u64).min(self.bytes)
    }
}

/// Keeps one copy of every string.
pub fn unique_names(names: &mut Vec<(u64, String)>) {
    names.sort_unstable();
    names.dedup();
}

/// The fields of a table, from the first of its parts; lists from their first rows.
pub fn fields(parts: &[Arc<dyn Frames>]) -> Result<Vec<Field>> {
    let Some(first) = parts.first() else { return Ok(Vec::new()) };
    let names: Vec<String> = first.schema().fields().iter().map(|field| field.name().clone()).collect();
    check_names(&names).map_err(|problem| Error::input(first.path(), problem))?;
    let columns = first.schema().fields().iter().enumerate();
    columns
        .map(|(at, column)| Ok(cells::field(column.name(), column.data_type(), super::frames::list_width(parts, at)?)))
        .collect()
}
