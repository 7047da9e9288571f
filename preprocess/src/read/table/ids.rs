//! The column of a table of vertices that holds the ids of the edges.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use gsplit_store::Progress;
use xxhash_rust::xxh3::xxh3_64;

use super::choice::{self, Field, IdKind};
use super::roles::Roles;
use super::rows::{Cell, Table};
use crate::edges::{EdgeBatch, EdgeSource, Piece};
use crate::read::text::value;
use crate::{Error, Result};

/// Ids of edges that the ids of vertices are told by.
const SAMPLE: usize = 256;

/// The column that holds the ids of the first `edges`, each in one row: that of a known name if it does, or if no other does. Ids are
/// of the kind `id_type`, where it is given.
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
    let find = |found: &mut Vec<(usize, u64)>, slot: usize, cell: Cell<'_>| {
        let id = match (cell, kind) {
            (Cell::Number(_, _, Some(number)), IdKind::Number) => u64::try_from(number).ok(),
            (Cell::Number(_, number, None), IdKind::Number) => value::exact_id(number),
            (Cell::Number(_, _, Some(number)), IdKind::Text) => Some(xxh3_64(number.to_string().as_bytes())),
            (Cell::Text(text), IdKind::Number) => value::id(text.as_bytes()),
            (Cell::Text(text), IdKind::Text) => Some(xxh3_64(text.as_bytes())),
            _ => None,
        };
        found.extend(id.filter(|id| wanted.contains(id)).map(|id| (slot, id)));
        Ok(())
    };
    let first_of = |columns: Vec<usize>| -> Result<Option<usize>> {
        let mut rows: HashMap<(usize, u64), u64> = HashMap::new();
        table.for_rows(&columns, progress, find, &mut |found: Vec<(usize, u64)>| {
            found.into_iter().for_each(|key| *rows.entry(key).or_default() += 1);
            Ok(())
        })?;
        let holds = |slot: usize| sample.iter().all(|&id| rows.get(&(slot, id)) == Some(&1));
        // The index that pandas writes counts rows: it is the last guess.
        let holding =
            (0..columns.len()).filter(|&slot| holds(slot)).min_by_key(|&slot| fields[columns[slot]].is_index());
        // Some ids may have no row, or several: then most of them tell the column.
        let found = |slot: usize| sample.iter().filter(|&&id| rows.contains_key(&(slot, id))).count();
        let most = || (0..columns.len()).max_by_key(|&slot| (found(slot), Reverse(slot)));
        let most = || most().filter(|&slot| 2 * found(slot) > sample.len());
        Ok(holding.or_else(most).map(|slot| columns[slot]))
    };
    let suits = |at: &usize| fields[*at].id.is_some_and(|id| id_type.unwrap_or(id) == kind);
    if let Some(id) = roles.id.filter(suits)
        && first_of(vec![id])?.is_some()
    {
        return Ok(id);
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
