//! Detects by their values that the tables of edges and of vertices were exchanged: two columns of `--nodes` hold
//! values of one column of INPUT, in which each value is in one row. The check runs when a conversion has failed.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use gsplit_store::NoProgress;

use super::rows::{Cell, Table};
use super::statistics::key;
use crate::memory::Memory;
use crate::read::options::TextOptions;
use crate::read::text::name_of;
use crate::{Error, Result};

/// Maximum total bytes of both tables for the check.
const MAX_BYTES: u64 = 1 << 30;
/// Number of values of a column that are searched for.
const SAMPLE: usize = 256;

/// The problem that `input` and `nodes` are exchanged, if they are.
pub fn exchanged(input: &Path, nodes: &Path, text: TextOptions, memory: Memory) -> Option<String> {
    let open =
        |path: &Path| Table::open(path, text, memory, &NoProgress).ok().filter(|table| table.bytes() < MAX_BYTES);
    let (of_input, of_nodes) = (open(input)?, open(nodes)?);
    let [source, target, id] = ends_among(&of_nodes, &of_input).ok()??;
    if ends_among(&of_input, &of_nodes).ok()?.is_some() {
        return None;
    }
    let (nodes, input) = (name_of(nodes), name_of(input));
    Some(format!(
        "INPUT and --nodes seem to be exchanged: `{source}` and `{target}` of {nodes} hold values of `{id}`: pass {nodes} as INPUT, and \
         --nodes {input}"
    ))
}

/// Two columns of `edges` whose first values are nearly all in one column of `nodes`, each in one row; and that column.
fn ends_among(edges: &Table, nodes: &Table) -> Result<Option<[String; 3]>> {
    let able = |table: &Table| -> Result<Vec<(usize, String)>> {
        let fields = table.fields()?.into_iter().enumerate();
        Ok(fields.filter(|(_, field)| field.id.is_some()).map(|(at, field)| (at, field.name)).collect())
    };
    let (ends, ids) = (able(edges)?, able(nodes)?);
    if ends.len() < 2 || ids.is_empty() {
        return Ok(None);
    }
    let (wanted, repeats) = first_values(edges, &ends)?;
    // For each column of `nodes`, the number of rows with each wanted value.
    type Rows = Vec<HashMap<String, u64>>;
    let places: Vec<usize> = ids.iter().map(|(at, _)| *at).collect();
    let all_wanted: HashSet<&String> = wanted.iter().flatten().collect();
    let look = |rows: &mut Rows, slot: usize, cell: Cell<'_>| {
        rows.resize_with(ids.len(), HashMap::new);
        let value = key(cell, false).into_owned();
        if all_wanted.contains(&value) {
            *rows[slot].entry(value).or_default() += 1;
        }
        Ok(())
    };
    let mut all: Rows = vec![HashMap::new(); ids.len()];
    nodes.for_rows(&places, &NoProgress, look, &mut |rows: Rows| {
        for (all, rows) in all.iter_mut().zip(rows) {
            rows.into_iter().for_each(|(value, count)| *all.entry(value).or_default() += count);
        }
        Ok(())
    })?;
    for (rows, (_, id)) in all.iter().zip(&ids) {
        let holds = |values: &HashSet<String>| {
            let found = values.iter().filter(|value| rows.get(*value) == Some(&1)).count();
            !values.is_empty() && 10 * found >= 9 * values.len()
        };
        let held: Vec<usize> = (0..ends.len()).filter(|&slot| holds(&wanted[slot])).collect();
        // Rows of vertices have each id once; vertices have several edges.
        if let [source, target, ..] = held[..]
            && held.iter().any(|&slot| repeats[slot])
        {
            return Ok(Some([ends[source].1.clone(), ends[target].1.clone(), id.clone()]));
        }
    }
    Ok(None)
}

/// The first distinct values of the columns `of` a table; and whether some are repeated.
fn first_values(table: &Table, of: &[(usize, String)]) -> Result<(Vec<HashSet<String>>, Vec<bool>)> {
    type Values = Vec<(HashSet<String>, bool)>;
    let look = |values: &mut Values, slot: usize, cell: Cell<'_>| {
        values.resize_with(of.len(), Default::default);
        let (values, repeats) = &mut values[slot];
        if values.len() < SAMPLE && cell != Cell::Missing {
            *repeats |= !values.insert(key(cell, false).into_owned());
        }
        Ok(())
    };
    let places: Vec<usize> = of.iter().map(|(at, _)| *at).collect();
    let mut found = None;
    let read = table.for_rows(&places, &NoProgress, look, &mut |values: Values| {
        found = Some(values);
        // The first rows suffice.
        Err(Error::Graph("enough".into()))
    });
    match found {
        Some(values) => Ok(values.into_iter().unzip()),
        None => read.map(|()| (vec![HashSet::new(); of.len()], vec![false; of.len()])),
    }
}
