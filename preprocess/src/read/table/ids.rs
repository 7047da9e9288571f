//! The column of a table of vertices that holds the ids of the edges.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use gsplit_store::Progress;
use xxhash_rust::xxh3::xxh3_64;

use super::choice::{self, Field, IdKind};
use super::roles::{self, Roles};
use super::rows::{Cell, Table};
use crate::edges::{EdgeBatch, EdgeSource, Piece};
use crate::read::text::value;
use crate::{Error, Result};

/// Ids of edges that the ids of vertices are told by.
const SAMPLE: usize = 256;

/// Rows of the ids of the first edges in one column: the piece, and the row in it.
type IdPlaces = HashMap<u64, Vec<(usize, usize)>>;

/// The column that holds the ids of the first `edges`, each in one row: that of a known name if it does, or if no other does. Ids are
/// of the kind `id_type`, where it is given.
///
/// # Errors
/// [`Error::Input`] where no column does, or several do in different rows.
pub fn find_ids(
    path: &Path,
    table: &Table,
    fields: &[Field],
    roles: &Roles,
    (edges, id_type): (&dyn EdgeSource, Option<IdKind>),
    progress: &dyn Progress,
) -> Result<usize> {
    let kind = if edges.has_string_ids() { IdKind::Text } else { IdKind::Number };
    let used = roles.taken();
    let sample = sample(edges)?;
    let wanted: HashSet<u64> = sample.iter().copied().collect();
    // The rows so far, and those that hold an id: slot, id, row.
    type FoundIds = (usize, Vec<(usize, u64, usize)>);
    let find = |(rows, found): &mut FoundIds, slot: usize, cell: Cell<'_>| {
        let id = id_of(cell, kind);
        *rows += usize::from(slot == 0);
        found.extend(id.filter(|id| wanted.contains(id)).map(|id| (slot, id, *rows)));
        Ok(())
    };
    let first_of = |columns: Vec<usize>| -> Result<Option<usize>> {
        let (mut rows, mut piece): (Vec<IdPlaces>, usize) = (vec![IdPlaces::new(); columns.len()], 0);
        table.for_rows(&columns, progress, find, &mut |(_, found): FoundIds| {
            for (slot, id, row) in found {
                let of_id = rows[slot].entry(id).or_default();
                // Two tell that it is not alone.
                if of_id.len() < 2 {
                    of_id.push((piece, row));
                }
            }
            piece += 1;
            Ok(())
        })?;
        let holds = |slot: &usize| sample.iter().all(|id| rows[*slot].get(id).is_some_and(|rows| rows.len() == 1));
        let all: Vec<usize> = (0..columns.len()).filter(holds).collect();
        // The index that pandas writes counts rows: it is the last guess.
        let (index, holding): (Vec<usize>, Vec<usize>) =
            all.into_iter().partition(|&slot| fields[columns[slot]].is_index());
        if let Some(&other) = holding.iter().find(|&&slot| rows[slot] != rows[holding[0]]) {
            let [one, other] = [holding[0], other].map(|slot| &fields[columns[slot]].name);
            let problem =
                format!("`{one}` and `{other}` both hold the ids of the edges, in different rows: pass --id-column");
            return Err(Error::input(path, problem));
        }
        // Some ids may have no row, or several: then most of them tell the column.
        let found = |slot: usize| sample.iter().filter(|&id| rows[slot].contains_key(id)).count();
        let most = || (0..columns.len()).max_by_key(|&slot| (found(slot), Reverse(slot)));
        let most = || most().filter(|&slot| 2 * found(slot) > sample.len());
        Ok(holding.first().or(index.first()).copied().or_else(most).map(|slot| columns[slot]))
    };
    let suits = |at: &usize| fields[*at].id.is_some_and(|id| id_type.unwrap_or(id) == kind);
    if let Some(id) = roles.id.filter(suits) {
        // Of several columns with a name of ids, it is a question which one the edges mean.
        let is_named = |at: &usize| *at == id || (suits(at) && roles::is_id(&fields[*at]) && !used.contains(at));
        if let Some(found) = first_of((0..fields.len()).filter(is_named).collect())? {
            return Ok(found);
        }
    }
    let others = (0..fields.len()).filter(|at| suits(at) && !used.contains(at)).collect();
    let problem = || {
        let kind = if kind == IdKind::Text { "strings" } else { "integers" };
        format!(
            "no column holds most ids of the edges, which are {kind}: pass --id-column, or --id-type text if the same ids are strings in one of the files. There are {}",
            choice::names(fields)
        )
    };
    first_of(others)?.or(roles.id).ok_or_else(|| Error::input(path, problem()))
}

/// The id in a cell.
pub fn id_of(cell: Cell<'_>, kind: IdKind) -> Option<u64> {
    match (cell, kind) {
        (Cell::Number(_, _, Some(number)), IdKind::Number) => u64::try_from(number).ok(),
        (Cell::Number(_, number, None), IdKind::Number) => value::exact_id(number),
        (Cell::Number(_, _, Some(number)), IdKind::Text) => Some(xxh3_64(number.to_string().as_bytes())),
        (Cell::Text(text), IdKind::Number) => value::id(text.as_bytes()),
        (Cell::Text(text), IdKind::Text) => Some(xxh3_64(text.as_bytes())),
        _ => None,
    }
}

/// Some ids of the first edges.
fn sample(edges: &dyn EdgeSource) -> Result<Vec<u64>> {
    let (mut piece, mut batch) = (Piece::default(), EdgeBatch::default());
    edges.rewind()?;
    while batch.sources.is_empty() && edges.next(&mut piece)? {
        edges.parse(&mut piece, &mut batch)?;
    }
    edges.rewind()?;
    let mut ids: Vec<u64> = batch.sources.iter().zip(&batch.targets).flat_map(|(&u, &v)| [u, v]).take(SAMPLE).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}
