//! Ids and values of a table, piece by piece.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

use super::cells::{Cell, NumberCells, StoredType, id_with, no_id};
use super::choice::{Choice, IdKind};
use super::header;
use super::rows::{Table, TableCursor};
use crate::Result;
use crate::edges::{EdgeBatch, EdgeColumn, EdgeSource, Estimate, Piece, WEIGHT, row_bytes};
use crate::read::text::field::{is_padded, shown};
use crate::read::text::na;
use crate::read::text::names::TextNames;
use crate::read::text::value;

/// Rows that memory is taken for at a time.
const ROWS_AHEAD: usize = 1 << 10;

/// The id columns of a table, two for edges and one for vertices, and its columns of numbers.
pub struct TableSource {
    table: Table,
    kind: IdKind,
    /// The columns that are read, ascending, and the role of each.
    places: Vec<usize>,
    roles: Vec<Role>,
    num_ids: usize,
    columns: Vec<EdgeColumn>,
    row_bytes: usize,
    cursor: Mutex<TableCursor>,
    done: AtomicU64,
    /// Hashes of the words of a header that may be an edge.
    doubtful: Vec<u64>,
    /// Whether numbers with zeros before them are a question.
    asks_about_zeros: bool,
}

#[derive(Clone, Copy)]
enum Role {
    /// The source or the target.
    Id(usize),
    /// A value at these bytes of the row's values.
    Value(usize, usize, NumberCells),
}

/// Edges under collection.
struct RowsRead<'b> {
    batch: &'b mut EdgeBatch,
    names: TextNames,
    /// Rows before those that are read now.
    before: usize,
}

impl TableSource {
    /// Reads the columns at `ids`, and the values of `choice`.
    pub fn new(table: Table, ids: &[usize], choice: &Choice) -> Self {
        let mut roles: Vec<(usize, Role)> =
            ids.iter().enumerate().map(|(which, &at)| (at, Role::Id(which))).collect();
        let mut offset = 0;
        for (&at, column) in choice.values.iter().zip(&choice.columns) {
            let start = offset;
            offset += column.width * column.value.bytes();
            let (stored, rounds) = (StoredType::Value(column.value), column.name == WEIGHT);
            roles.push((
                at,
                Role::Value(start, offset, NumberCells { stored, fill: choice.fill, rounds }),
            ));
        }
        roles.sort_by_key(|(at, _)| *at);
        let (places, roles) = roles.into_iter().unzip();
        // The header of a table of vertices is known to be one.
        let header = table.sheet().and_then(|sheet| sheet.header.as_ref());
        let is_doubtful = header.is_some_and(|header| !header.is_certain) && ids.len() == 2;
        let words = ids.iter().filter(|_| is_doubtful && choice.kind == IdKind::Text);
        let doubtful = words.map(|&at| xxh3_64(table.fields[at].name.as_bytes())).collect();
        let is_open = table.sheet().is_some_and(|sheet| sheet.id_type.is_none());
        Self {
            asks_about_zeros: choice.kind == IdKind::Number && is_open,
            table,
            kind: choice.kind,
            places,
            roles,
            num_ids: ids.len(),
            columns: choice.columns.clone(),
            row_bytes: row_bytes(&choice.columns),
            cursor: Mutex::default(),
            done: AtomicU64::new(0),
            doubtful,
        }
    }

    /// The ids of a table of vertices in the column `at`.
    pub fn ids(table: &Table, at: usize, kind: IdKind) -> Self {
        let (values, columns) = (Vec::new(), Vec::new());
        let choice = Choice { ids: [at; 2], are_named: true, kind, values, columns, fill: None };
        Self::new(table.clone(), &[at], &choice)
    }

    /// Makes room for `rows`, and no more.
    fn resize(&self, batch: &mut EdgeBatch, rows: usize) {
        batch.sources.resize(rows, 0);
        if self.num_ids == 2 {
            batch.targets.resize(rows, 0);
        }
        batch.values.resize(rows * self.row_bytes, 0);
    }

    #[inline]
    fn add(
        &self,
        rows: &mut RowsRead<'_>,
        row: usize,
        slot: usize,
        cell: Cell<'_>,
    ) -> Result<(), String> {
        let row = rows.before + row;
        if row >= rows.batch.sources.len() {
            self.resize(rows.batch, row + ROWS_AHEAD);
        }
        match &self.roles[slot] {
            Role::Id(0) => rows.batch.sources[row] = self.id(cell, &mut rows.names)?,
            Role::Id(_) => rows.batch.targets[row] = self.id(cell, &mut rows.names)?,
            Role::Value(start, end, numbers) => {
                let row = row * self.row_bytes;
                numbers
                    .write(cell, &mut rows.batch.values[row + start..row + end])
                    .map_err(|problem| with_remedy(problem, cell))?;
            }
        }
        Ok(())
    }

    #[inline]
    fn id(&self, cell: Cell<'_>, names: &mut TextNames) -> Result<u64, String> {
        if let Cell::Written(cell) = cell
            && self.asks_about_zeros
            && is_padded(cell)
        {
            return Err(format!(
                "id {} has leading zeros, which numbers do not keep: pass --schema id-type=text to \
                 keep ids as they are written, or --schema id-type=number",
                shown(cell)
            ));
        }
        let id = id_with(cell, self.kind, |text| names.id(text))
            .ok_or_else(|| no_id(cell, self.kind))?;
        if !self.doubtful.is_empty()
            && let (Cell::Written(word), Some(header)) =
                (cell, self.table.sheet().and_then(|sheet| sheet.header.as_ref()))
            && self.doubtful.contains(&id)
        {
            return Err(header::question(&String::from_utf8_lossy(word), header.line));
        }
        Ok(id)
    }

    /// The largest id, from the statistics in the files, or else from the first and the last piece.
    fn largest(&self) -> Result<u64> {
        let is_id = |(at, role): (&usize, &Role)| matches!(role, Role::Id(_)).then_some(*at);
        let ids: Vec<usize> = self.places.iter().zip(&self.roles).filter_map(is_id).collect();
        if let Some(largest) = self.table.largest(&ids) {
            return Ok(largest);
        }
        let mut first = Piece::default();
        let has_first = self.table.next(&mut TableCursor::default(), &mut first)?;
        let mut largest = 0;
        for mut piece in has_first.then_some(first).into_iter().chain(self.table.last_piece()) {
            let mut batch = EdgeBatch::default();
            self.parse(&mut piece, &mut batch)?;
            largest = batch
                .sources
                .iter()
                .chain(&batch.targets)
                .fold(largest, |largest, &id| largest.max(id));
        }
        Ok(largest)
    }
}

/// The problem of a written value; that it may mean a missing one, if it is not a number.
fn with_remedy(problem: String, cell: Cell<'_>) -> String {
    match cell {
        Cell::Written(cell) if !value::is_number(cell) && !value::is_missing(cell) => {
            let word = String::from_utf8_lossy(cell);
            format!(
                "{problem}; pass {} if it means that the value is missing",
                na::remedy(std::iter::once(&*word))
            )
        }
        _ => problem,
    }
}

impl EdgeSource for TableSource {
    fn rewind(&self) -> Result<()> {
        *self.cursor.lock().unwrap_or_else(PoisonError::into_inner) = TableCursor::default();
        self.done.store(0, Relaxed);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        let more = self.table.next(&mut cursor, piece)?;
        self.done.store(cursor.done, Relaxed);
        Ok(more)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let before = batch.sources.len();
        let mut rows = RowsRead { batch, names: TextNames::default(), before };
        self.table.read(
            piece,
            &self.places,
            &mut rows,
            |rows, row, slot, cell| self.add(rows, row, slot, cell),
            |rows, count| {
                rows.before += count;
                self.resize(rows.batch, rows.before);
                Ok(())
            },
        )?;
        rows.names.append_to(&mut rows.batch.names);
        Ok(())
    }

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn has_string_ids(&self) -> bool {
        self.kind == IdKind::Text
    }

    fn place(&self, number: u64) -> String {
        self.table.place(number)
    }

    fn estimate(&self) -> Result<Estimate> {
        let edges = self.table.about_rows();
        let vertices = match self.kind {
            // Hashes have no largest id; real graphs have several edges per vertex.
            IdKind::Text => edges / 4 + 1,
            IdKind::Number => self.largest()?.saturating_add(1),
        };
        Ok(Estimate { edges, vertices, bytes: self.table.bytes })
    }

    fn bytes_done(&self) -> u64 {
        self.done.load(Relaxed)
    }
}
