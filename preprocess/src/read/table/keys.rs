//! Keys of a table, and the rows that the foreign keys of other tables name by them.

use std::fmt::Write;

use gsplit_store::Progress;
use rayon::prelude::*;

use super::cells::{Cell, id_of, no_id};
use super::choice::{self, IdKind};
use super::rows::{Table, TableCursor, TableRows};
use super::statistics::key;
use crate::edges::Piece;
use crate::memory::Memory;
use crate::read::text::field::shown;
use crate::{Error, Result};

/// The row of an empty foreign key.
pub const NO_ROW: u32 = u32::MAX;
/// The row of a foreign key that no row has as its key, before it is refused or left out.
const DANGLING: u32 = u32::MAX - 1;
/// Number of rows that messages show.
const SHOWN: usize = 3;

/// The column of keys of a table, and the row of each.
pub struct KeyRows {
    /// Place of the column.
    pub at: usize,
    /// Name of the column.
    name: String,
    /// Kind of its values.
    kind: IdKind,
    index: KeyIndex,
}

enum KeyIndex {
    /// Row of each number from 0, or [`NO_ROW`].
    Dense(Vec<u32>),
    /// Keys in ascending order, and their rows.
    Sorted(Vec<(u64, u32)>),
}

impl KeyRows {
    /// Reads the column called `name` of `table`. Fails if a key is missing or repeated.
    pub fn of(
        table: &Table,
        name: &str,
        id_type: Option<IdKind>,
        memory: Memory,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let (at, kind) = column_of(table, name, "key", id_type)?;
        let read = |rows: &TableRows<'_, '_>| {
            let mut ids = Vec::with_capacity(rows.len);
            rows.each(0, |_, cell| {
                ids.push(id_of(cell, kind).ok_or_else(|| no_id(cell, kind))?);
                Ok(())
            })?;
            Ok(ids)
        };
        let mut ids: Vec<u64> = Vec::new();
        table.for_rows(&[at], progress, read, &mut |more: Vec<u64>| {
            if ids.capacity() - ids.len() < more.len() {
                // They double as they grow, and the index is made next to them.
                memory.check(&table.path, "its keys", 32 * (ids.len() + more.len()) as u64)?;
            }
            ids.extend(more);
            Ok(())
        })?;
        let rows = ids.len() as u64;
        if rows >= DANGLING.into() {
            return Err(table.error(format!("{rows} rows: expected fewer than {DANGLING}")));
        }
        let most = ids.iter().max().map_or(0, |most| most.saturating_add(1));
        let index = match kind == IdKind::Number && most / 4 <= rows {
            true => KeyIndex::dense(&ids, most as usize),
            false => KeyIndex::sorted(ids),
        };
        let index = index.map_err(|[one, other]| repeated(table, at, one, other))?;
        Ok(Self { at, name: name.into(), kind, index })
    }

    fn row(&self, id: u64) -> u32 {
        match &self.index {
            KeyIndex::Dense(rows) => usize::try_from(id)
                .ok()
                .and_then(|id| rows.get(id).copied())
                .filter(|row| *row != NO_ROW)
                .unwrap_or(DANGLING),
            KeyIndex::Sorted(keys) => {
                let found = keys.binary_search_by_key(&id, |(key, _)| *key);
                found.map_or(DANGLING, |at| keys[at].1)
            }
        }
    }
}

impl KeyIndex {
    /// The index of `ids` less than `most`, or two rows of one key.
    fn dense(ids: &[u64], most: usize) -> Result<Self, [u32; 2]> {
        let mut rows = vec![NO_ROW; most];
        for (&id, row) in ids.iter().zip(0..) {
            let first = std::mem::replace(&mut rows[id as usize], row);
            if first != NO_ROW {
                return Err([first, row]);
            }
        }
        Ok(Self::Dense(rows))
    }

    fn sorted(ids: Vec<u64>) -> Result<Self, [u32; 2]> {
        let mut keys: Vec<(u64, u32)> = ids.into_iter().zip(0..).collect();
        keys.par_sort_unstable();
        match keys.windows(2).find(|of| of[0].0 == of[1].0) {
            Some(of) => Err([of[0].1, of[1].1]),
            None => Ok(Self::Sorted(keys)),
        }
    }
}

/// The place of the column called `name`, which is a `role`, and the kind of its values.
fn column_of(
    table: &Table,
    name: &str,
    role: &str,
    id_type: Option<IdKind>,
) -> Result<(usize, IdKind)> {
    let at = table.fields.iter().position(|field| field.name == name).ok_or_else(|| {
        table.error(format!(
            "no column `{name}` ({role}). There are {}",
            choice::names(&table.fields)
        ))
    })?;
    let kind = choice::id_kind(&table.fields[at]).map_err(|error| error.at(&table.path))?;
    Ok((at, id_type.unwrap_or(kind)))
}

/// The error for rows of one key.
fn repeated(table: &Table, at: usize, one: u32, other: u32) -> Error {
    let value = cells_of(table, at, &[one.into()]).unwrap_or_default();
    let name = &table.fields[at].name;
    let [one, other] = [one, other].map(|row| table.place(row.into()));
    table.error(format!(
        "{one} and {other} have the same key in `{name}`{value}: expected another in each row: \
         remove one of the rows, or leave the key out if no table names its rows"
    ))
}

/// The cells of the column at `at` in some `rows`, which ascend, for messages.
fn cells_of(table: &Table, at: usize, rows: &[u64]) -> Result<String> {
    let (mut cursor, mut piece) = (TableCursor::default(), Piece::default());
    let (mut text, mut number, mut rest) = (String::new(), 0, rows.iter().peekable());
    while rest.peek().is_some() && table.next(&mut cursor, &mut piece)? {
        table.read(&piece, &[at], &mut |found| {
            found.each(0, |row, cell| {
                if rest.next_if(|next| **next == number + row as u64).is_some() {
                    let cell = shown(key(cell.scalar()?, false).as_bytes());
                    _ = write!(text, "{} {cell}", if text.is_empty() { "," } else { " and" });
                }
                Ok(())
            })?;
            number += found.len as u64;
            Ok(())
        })?;
    }
    Ok(text)
}

/// A foreign key: a column of a table that names rows of another.
pub struct ForeignKey<'a> {
    /// Name of the column.
    pub column: &'a str,
    /// The other table.
    pub other: &'a Table,
    /// The keys of the other table.
    pub keys: &'a KeyRows,
}

/// The rows that foreign keys name.
pub struct NamedRows {
    /// Place of the column.
    pub at: usize,
    /// For each row the row of the other table, or [`NO_ROW`].
    pub rows: Vec<u32>,
    /// Number of rows without a value, and of rows whose value the other table does not have.
    pub without: [u64; 2],
}

/// The rows that each of the foreign keys `of` the `table` names, and the number of its own rows. A
/// value that the other table does not have is an error, unless it `drops` such edges.
pub fn rows_named(
    table: &Table,
    of: &[ForeignKey<'_>],
    (id_type, drops): (Option<IdKind>, bool),
    memory: Memory,
    progress: &dyn Progress,
) -> Result<(u64, Vec<NamedRows>)> {
    let mut columns = Vec::new();
    for foreign in of {
        let (at, kind) = column_of(table, foreign.column, "foreign key", id_type)?;
        if kind != foreign.keys.kind {
            let word = |kind| if kind == IdKind::Text { "strings" } else { "integers" };
            let problem = format!(
                "`{}` holds {}, and the key `{}` of {} {}: write them alike, or add id-type = \
                 \"text\" to both tables in the schema",
                foreign.column,
                word(kind),
                foreign.keys.name,
                foreign.other.path.display(),
                word(foreign.keys.kind)
            );
            return Err(table.error(problem));
        }
        columns.push((at, kind, foreign.keys));
    }
    // Rows are read in the order of the columns in the table. A table without keys is counted.
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|&slot| columns[slot].0);
    let mut places: Vec<usize> = order.iter().map(|&slot| columns[slot].0).collect();
    if places.is_empty() {
        places.push(0);
    }
    let read = |found: &TableRows<'_, '_>| {
        let mut rows = vec![vec![NO_ROW; found.len]; columns.len()];
        for (slot, &which) in order.iter().enumerate() {
            let (_, kind, keys) = columns[which];
            found.each(slot, |row, cell| {
                let is_empty = match (cell, kind) {
                    (Cell::Written(cell), IdKind::Text) => cell.is_empty(),
                    _ => cell.scalar()?.is_missing(),
                };
                if !is_empty {
                    rows[which][row] =
                        keys.row(id_of(cell, kind).ok_or_else(|| no_id(cell, kind))?);
                }
                Ok(())
            })?;
        }
        Ok((found.len as u64, rows))
    };
    let mut count = 0;
    let mut named: Vec<NamedRows> = columns
        .iter()
        .map(|&(at, ..)| NamedRows { at, rows: Vec::new(), without: [0; 2] })
        .collect();
    table.for_rows(&places, progress, read, &mut |(more, rows)| {
        if named.iter().any(|of| of.rows.capacity() - of.rows.len() < more as usize) {
            memory.check(
                &table.path,
                "its foreign keys",
                8 * named.len() as u64 * (count + more),
            )?;
        }
        count += more;
        named.iter_mut().zip(rows).for_each(|(of, more)| of.rows.extend(more));
        Ok(())
    })?;
    for (named, foreign) in named.iter_mut().zip(of) {
        let dangling = |row: &u32| *row == DANGLING;
        let is_empty = |row: &&u32| **row == NO_ROW;
        named.without = [
            named.rows.iter().filter(is_empty).count(),
            named.rows.iter().filter(|row| dangling(row)).count(),
        ]
        .map(|count| count as u64);
        if named.without[1] > 0 && !drops {
            let rows = named.rows.iter().zip(0u64..).filter(|(row, _)| dangling(row));
            let rows: Vec<u64> = rows.map(|(_, row)| row).take(SHOWN).collect();
            let values = cells_of(table, named.at, &rows)?;
            return Err(table.error(format!(
                "{} of {count} values of `{}` are no key `{}` of {}{values}, first in {}: add the \
                 rows, or missing-rows = \"drop\" under the table in the schema",
                named.without[1],
                foreign.column,
                foreign.keys.name,
                foreign.other.path.display(),
                table.place(rows[0])
            )));
        }
        named.rows.iter_mut().filter(|row| dangling(row)).for_each(|row| *row = NO_ROW);
    }
    Ok((count, named))
}
