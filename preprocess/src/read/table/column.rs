//! One column of a table of vertices, read row by row on demand.

use std::path::Path;

use gsplit_store::{Progress, Unit};

use super::cells::{descr, list_of};
use super::numbers::{NumberCells, StoredType};
use super::rows::{Table, TableCursor};
use crate::Result;
use crate::edges::{Piece, ValueType};
use crate::read::raw::Column;

/// A column of numbers.
pub struct TableColumn {
    table: Table,
    at: usize,
    name: String,
    width: usize,
    numbers: NumberCells,
}

impl TableColumn {
    /// Column `at` of `table` in its own type. A label of one class is a 64-bit integer, -1 where
    /// it is missing; one of several is a list of floats, NaN where they are missing.
    pub fn new(table: &Table, at: usize, name: &str, is_label: bool) -> Self {
        let field = &table.fields[at];
        let (value, width) = field.value.unwrap_or((ValueType::F32, 1));
        let own =
            table.data_type(at).and_then(|own| descr(list_of(own).map_or(own, |(item, _)| item)));
        let is_class = is_label && !field.list && value == ValueType::I64;
        let is_set = is_label && field.list;
        let stored = match own.filter(|_| !is_class) {
            _ if is_set => StoredType::Value(ValueType::F32),
            own => own.map_or(StoredType::Value(value), StoredType::of),
        };
        let numbers = NumberCells { stored, fill: is_class.then_some(-1.0), rounds: is_set };
        Self { table: table.clone(), at, name: name.into(), width, numbers }
    }

    /// Column `at` of `table`, one number per row, as doubles.
    pub fn doubles(table: &Table, at: usize, name: &str) -> Self {
        let numbers =
            NumberCells { stored: StoredType::Value(ValueType::F64), fill: None, rounds: false };
        Self { width: 1, numbers, ..Self::new(table, at, name, false) }
    }
}

impl Column for TableColumn {
    fn path(&self) -> &Path {
        self.table.path()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn descr(&self) -> &'static str {
        self.numbers.stored.descr()
    }

    fn width(&self) -> usize {
        self.width
    }

    fn num_rows(&self) -> Option<u64> {
        self.table.num_rows()
    }

    fn read(
        &self,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let stage =
            progress.stage(&format!("reading {}", self.name), Some(self.table.bytes), Unit::Bytes);
        let row_bytes = self.width * self.numbers.stored.bytes();
        let (mut cursor, mut piece, mut out) =
            (TableCursor::default(), Piece::default(), Vec::new());
        loop {
            let before = cursor.done;
            if !self.table.next(&mut cursor, &mut piece)? {
                return Ok(());
            }
            self.table.read(&piece, &[self.at], &mut |rows| {
                out.clear();
                out.resize(rows.len * row_bytes, 0);
                rows.each(0, |row, cell| {
                    self.numbers.write(cell, &mut out[row * row_bytes..][..row_bytes])
                })?;
                take(&out)
            })?;
            stage.advance(cursor.done - before);
        }
    }
}
