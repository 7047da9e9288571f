//! Ids and values of a table, piece by piece.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use xxhash_rust::xxh3::xxh3_64;

use super::cells::{Cell, Cells, id_with, no_id};
use super::choice::{Choice, IdKind};
use super::header;
use super::numbers::{NumberCells, StoredType};
use super::rows::{Table, TableCursor, TableRows};
use crate::edges::{
    EdgeBatch, EdgeColumn, EdgeSource, Estimate, Piece, ValueType, WEIGHT, lock, row_bytes,
};
use crate::read::text::field::{is_padded, shown};
use crate::read::text::na;
use crate::read::text::names::TextNames;
use crate::read::text::value;
use crate::{Error, Result};

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

    /// Reads the ids in `slot`.
    fn read_ids(
        &self,
        rows: &TableRows<'_, '_>,
        slot: usize,
        ids: &mut [u64],
        names: &mut TextNames,
    ) -> Result<()> {
        if let (Cells::Written(cells), IdKind::Number) = (rows.cells(slot), self.kind) {
            for (row, id) in ids.iter_mut().enumerate() {
                *id = match cells.short_number(row) {
                    Some(number) => number,
                    None => self
                        .id(rows.cells(slot).get(row), names)
                        .map_err(|problem| rows.wrong(row, slot, problem))?,
                };
            }
            return Ok(());
        }
        rows.each(slot, |row, cell| {
            ids[row] = self.id(cell, names)?;
            Ok(())
        })
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
            let ids = batch.sources.iter().chain(&batch.targets);
            largest = ids.fold(largest, |largest, &id| largest.max(id));
        }
        Ok(largest)
    }
}

/// Reads the numbers in `slot` to `out`, the bytes of each row.
fn read_values<'o>(
    rows: &TableRows<'_, '_>,
    slot: usize,
    numbers: NumberCells,
    mut out: impl Iterator<Item = &'o mut [u8]>,
) -> Result<()> {
    const WHOLE: StoredType = StoredType::Value(ValueType::I64);
    const DOUBLE: StoredType = StoredType::Value(ValueType::F64);
    let plain: Option<&[[u8; 8]]> = match rows.cells(slot) {
        Cells::Integers(cells) if numbers.stored == WHOLE => Some(bytemuck::cast_slice(cells)),
        Cells::Doubles(cells) if numbers.stored == DOUBLE => Some(bytemuck::cast_slice(cells)),
        _ => None,
    };
    if let Some(plain) = plain {
        out.zip(plain).for_each(|(out, number)| out.copy_from_slice(number));
        return Ok(());
    }
    let whole = match rows.cells(slot) {
        Cells::Written(cells) if numbers.stored == WHOLE => Some(cells),
        _ => None,
    };
    rows.each(slot, |row, cell| {
        let Some(out) = out.next() else { return Ok(()) };
        match whole.and_then(|cells| cells.short_number(row)) {
            Some(number) => out.copy_from_slice(&number.to_le_bytes()),
            None => numbers.write(cell, out).map_err(|problem| with_remedy(problem, cell))?,
        }
        Ok(())
    })
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
        *lock(&self.cursor) = TableCursor::default();
        self.done.store(0, Relaxed);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        let mut cursor = lock(&self.cursor);
        let more = self.table.next(&mut cursor, piece)?;
        self.done.store(cursor.done, Relaxed);
        Ok(more)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let mut names = TextNames::default();
        let is_sampled = self.table.sheet().is_some_and(|sheet| !sheet.is_scanned);
        let unlike = |error: Error| match is_sampled {
            true => Error::FirstRows(Box::new(error)),
            false => error,
        };
        self.table.read(piece, &self.places, &mut |rows| {
            let (before, row_bytes) = (batch.sources.len(), self.row_bytes);
            batch.sources.resize(before + rows.len, 0);
            if self.num_ids == 2 {
                batch.targets.resize(before + rows.len, 0);
            }
            batch.values.resize((before + rows.len) * row_bytes, 0);
            for (slot, role) in self.roles.iter().enumerate() {
                let read = match role {
                    Role::Id(end) => {
                        let ids = if *end == 0 { &mut batch.sources } else { &mut batch.targets };
                        self.read_ids(rows, slot, &mut ids[before..], &mut names)
                    }
                    &Role::Value(start, end, numbers) => {
                        let values = batch.values[before * row_bytes..].chunks_exact_mut(row_bytes);
                        let values = values.map(|values| &mut values[start..end]);
                        read_values(rows, slot, numbers, values)
                    }
                };
                read.map_err(unlike)?;
            }
            Ok(())
        })?;
        names.append_to(&mut batch.names);
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
