//! The column of a table of vertices that holds the ids of the edges.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::cells::{Cell, id_of};
use super::choice::{self, IdKind};
use super::roles::{self, Roles};
use super::rows::TableRows;
use super::statistics::Surveyed;
use crate::edges::{EdgeBatch, EdgeSource, Piece};
use crate::read::text::field::{is_padded, shown};
use crate::{Error, Result};

/// Number of edge endpoints sampled to recognise the id column.
const SAMPLE: usize = 256;

/// Rows of the ids of the first edges in one column: the number of their batch, and the row in it.
type IdPlaces = HashMap<u64, Vec<(usize, usize)>>;

/// The column that holds the ids of the first `edges`, each in one row, and the kind that they are
/// read as: a column with a known name if it does, or if no other does; or the one that an option
/// or the recipe names. Ids are of the kind that an option says; otherwise of the kind of the
/// edges, if a column holds their ids as numbers or as strings.
pub fn find_ids(
    on: &Surveyed<'_>,
    roles: &Roles,
    edges: Option<&dyn EdgeSource>,
) -> Result<(usize, IdKind)> {
    let (fields, schema, id_type) = (on.fields, on.schema, on.schema.id_type);
    let own = |at: usize| Ok((at, id_type.map_or_else(|| choice::id_kind(&fields[at]), Ok)?));
    let Some(edges) = edges else {
        let name = on.trained.map_or("id", |trained| &trained.id);
        let problem = format!("has no column `{name}` of ids: rename its column of ids");
        return roles.id.map_or_else(|| Err(on.lacks(&problem)), own);
    };
    let is_trained = |id: &usize| on.trained.is_some_and(|trained| trained.id == fields[*id].name);
    let given = roles.id.filter(|id| schema.id_column.is_some() || is_trained(id));
    let kind = if edges.has_string_ids() { IdKind::Text } else { IdKind::Number };
    let suits = |at: &usize| fields[*at].id.is_some_and(|id| id_type.unwrap_or(id) == kind);
    if let Some(at) = given.filter(|at| id_type.is_some() || suits(at) || fields[*at].id.is_none())
    {
        return own(at);
    }
    let used = roles.taken();
    let has_ids = |at: &usize| fields[*at].id.is_some();
    let all: Vec<usize> = (0..fields.len()).filter(has_ids).collect();
    let (labels, others): (Vec<usize>, Vec<usize>) =
        all.into_iter().partition(|at| roles.labels.contains(at));
    let free: Vec<usize> =
        others.into_iter().filter(|at| Some(*at) == roles.id || !used.contains(at)).collect();
    // If several columns have names of ids, the ids of the edges decide among them.
    let is_named = |at: &usize| {
        Some(*at) == roles.id
            || (roles.id.is_some_and(|id| suits(&id))
                && suits(at)
                && roles::is_id(&fields[*at])
                && !used.contains(at))
    };
    let named: Vec<usize> = free.iter().copied().filter(is_named).collect();
    let named = given.map_or(named, |at| vec![at]);
    let sample = IdSample::of(edges)?;
    let found = FoundIds::of(on, &sample, kind, &named, suits)?;
    match (found.column(&named)?, given) {
        (Some(at), _) => return Ok((at, kind)),
        (None, Some(at)) => return own(at),
        (None, None) => {}
    }
    let found = FoundIds::of(on, &sample, kind, &[free.clone(), labels.clone()].concat(), suits)?;
    let same_type: Vec<usize> = free.iter().copied().filter(suits).collect();
    for columns in [&same_type, &free] {
        if let Some(at) = found.column(columns)? {
            return Ok((at, kind));
        }
    }
    // A column of a known name may hold few of the ids: the rows that are missing are counted
    // later.
    let has_some = |at: &usize| suits(at) && !found.places[at].is_empty();
    if let Some(at) = roles.id.filter(|at| schema.missing_rows.is_some() || has_some(at)) {
        return own(at);
    }
    if let Some(at) = found.column(&labels)? {
        let name = &fields[at].name;
        return Err(Error::Graph(format!(
            "column `{name}` holds the ids of the edges: name another with --label-column, or none"
        )));
    }
    let problem = found.one_end(&free).map_or_else(|| found.nothing(&free, roles.id), Ok)?;
    Err(Error::Graph(problem))
}

/// Some ids of the first edges.
struct IdSample {
    /// Ids, each once.
    ids: Vec<u64>,
    /// Ids of the sources, and ids of the targets.
    ends: [HashSet<u64>; 2],
    /// Their strings, where they are hashes.
    names: HashMap<u64, String>,
}

impl IdSample {
    fn of(edges: &dyn EdgeSource) -> Result<Self> {
        let (mut piece, mut batch) = (Piece::default(), EdgeBatch::default());
        edges.rewind()?;
        while batch.sources.is_empty() && edges.next(&mut piece)? {
            edges.parse(&mut piece, &mut batch)?;
        }
        edges.rewind()?;
        let ends = batch.sources.iter().zip(&batch.targets).flat_map(|(&u, &v)| [u, v]);
        let mut ids: Vec<u64> = ends.take(SAMPLE).collect();
        ids.sort_unstable();
        ids.dedup();
        let ends = [&batch.sources, &batch.targets]
            .map(|ids| ids.iter().copied().take(SAMPLE / 2).collect());
        Ok(Self { ids, ends, names: batch.names.into_iter().collect() })
    }

    /// The id as the edges write it.
    fn text(&self, id: u64) -> String {
        self.names.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

/// Sampled ids of the edges that columns of a table hold.
struct FoundIds<'a> {
    on: &'a Surveyed<'a>,
    sample: &'a IdSample,
    kind: IdKind,
    /// Their rows, by the place of the column.
    places: HashMap<usize, IdPlaces>,
}

impl<'a> FoundIds<'a> {
    /// Searches `columns`. The cells of those that do not suit the type of the edges are read as
    /// ids of it.
    fn of(
        on: &'a Surveyed<'a>,
        sample: &'a IdSample,
        kind: IdKind,
        columns: &[usize],
        suits: impl Fn(&usize) -> bool + Sync,
    ) -> Result<Self> {
        let mut columns = columns.to_vec();
        columns.sort_unstable();
        let wanted: HashSet<u64> = sample.ids.iter().copied().collect();
        let find = |rows: &TableRows<'_, '_>| {
            let mut found = Vec::new();
            for (slot, at) in columns.iter().enumerate() {
                let suits = suits(at);
                rows.each_scalar(slot, |row, cell| {
                    // Strings that are read as numbers lose zeros before them.
                    let id = match cell {
                        Cell::Text(text)
                            if !suits && kind == IdKind::Number && is_padded(text.as_bytes()) =>
                        {
                            None
                        }
                        cell => id_of(cell, kind),
                    };
                    found.extend(id.filter(|id| wanted.contains(id)).map(|id| (*at, id, row)));
                    Ok(())
                })?;
            }
            Ok(found)
        };
        let mut places: HashMap<usize, IdPlaces> =
            columns.iter().map(|&at| (at, IdPlaces::new())).collect();
        if columns.is_empty() {
            return Ok(Self { on, sample, kind, places });
        }
        let mut batch = 0;
        on.table.for_rows(&columns, on.progress, find, &mut |found| {
            for (at, id, row) in found {
                let of_id = places.entry(at).or_default().entry(id).or_default();
                // Two show that it is not the only one.
                if of_id.len() < 2 {
                    of_id.push((batch, row));
                }
            }
            batch += 1;
            Ok(())
        })?;
        Ok(Self { on, sample, kind, places })
    }

    fn holds_most(&self, rows: &IdPlaces) -> bool {
        2 * rows.len() > self.sample.ids.len()
    }

    /// The column among `columns` that holds all of the sampled ids, or else most of them.
    fn column(&self, columns: &[usize]) -> Result<Option<usize>> {
        let holds = |at: &&usize| {
            let rows = &self.places[*at];
            self.sample.ids.iter().all(|id| rows.get(id).is_some_and(|rows| rows.len() == 1))
        };
        // The index that pandas writes counts rows: it is the last guess.
        let (index, holding): (Vec<usize>, Vec<usize>) =
            columns.iter().filter(holds).partition(|at| self.on.fields[**at].is_index());
        if let Some(other) = holding.iter().find(|at| self.places[at] != self.places[&holding[0]]) {
            let [one, other] = [&holding[0], other].map(|at| &self.on.fields[*at].name);
            return Err(Error::Graph(format!(
                "`{one}` and `{other}` both hold the ids of the edges, in different rows: pass \
                 --id-column"
            )));
        }
        // Some ids may have no row, or several: then the column that holds most of them is it.
        let most = || columns.iter().max_by_key(|at| (self.places[at].len(), Reverse(**at)));
        let most = || most().filter(|at| self.holds_most(&self.places[at]));
        Ok(holding.first().or(index.first()).or_else(most).copied())
    }

    /// The problem that one of `columns` holds most ids of the sources but none of the targets, or
    /// vice versa.
    fn one_end(&self, columns: &[usize]) -> Option<String> {
        for &at in columns {
            let rows = &self.places[&at];
            let found = |end: usize| {
                self.sample.ends[end].iter().filter(|id| rows.contains_key(id)).count()
            };
            for (end, other, names) in
                [(0, 1, ["sources", "targets"]), (1, 0, ["targets", "sources"])]
            {
                if 2 * found(end) <= self.sample.ends[end].len() || found(other) > 0 {
                    continue;
                }
                let name = &self.on.fields[at].name;
                let missing = self.sample.ends[other].iter().min();
                let missing = missing.map(|&id| self.sample.text(id)).unwrap_or_default();
                return Some(format!(
                    "`{name}` holds the ids of the {} of the edges and none of the {}, such as {}: \
                     these are two kinds of vertices, and gsplit reads one table of one kind: add \
                     their rows to it, or pass --id-column {name} --schema missing-rows=fill",
                    names[0],
                    names[1],
                    shown(missing.as_bytes())
                ));
            }
        }
        None
    }

    /// The problem that none of `columns` holds most ids, with examples of both.
    fn nothing(&self, columns: &[usize], named: Option<usize>) -> Result<String> {
        let kind = if self.kind == IdKind::Text { "strings" } else { "integers" };
        let example = |&id: &u64| shown(self.sample.text(id).as_bytes());
        let of_edges: Vec<String> = self.sample.ids.iter().take(2).map(example).collect();
        let of_edges = of_edges.join(" and ");
        let likely = |at: &&usize| Some(**at) == named || roles::is_id(&self.on.fields[**at]);
        let of_table = match columns.iter().find(likely).or(columns.first()) {
            Some(&at) => {
                format!("; `{}` has {}", self.on.fields[at].name, self.on.table.examples(at)?)
            }
            None => String::new(),
        };
        let few = if named.is_some() {
            ", or pass --schema missing-rows if only few vertices have rows"
        } else {
            ""
        };
        Ok(format!(
            "no column holds most ids of the edges, which are {kind}, such as \
             {of_edges}{of_table}: write them alike in both tables (--schema id-type=number takes \
             0010 for 10), pass --id-column COLUMN if another holds them, and check that both \
             tables are of one graph and not exchanged{few}. There are {}",
            choice::names(self.on.fields)
        ))
    }
}
