//! The column of a table of vertices that holds the ids of the edges.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::cells::{Cell, id_of};
use super::choice::{self, IdKind};
use super::roles::{self, Roles};
use super::rows::Rows;
use super::surveyed::Surveyed;
use crate::Result;
use crate::edges::{EdgeBatch, EdgeSource, Piece};
use crate::read::text::field::{is_padded, shown};

/// Number of edge endpoints sampled to recognise the id column.
const SAMPLE: usize = 256;

/// Rows of the ids of the first edges in one column: the number of their batch, and the row in it.
type IdPlaces = HashMap<u64, Vec<(usize, usize)>>;

/// The ids of a table of vertices.
pub struct IdColumn {
    /// Its place.
    pub at: usize,
    /// Kind that its ids are read as.
    pub kind: IdKind,
}

/// The column that holds the ids of the first `edges`, each in one row: a column with a known name
/// if it does, or if no other does; or the `given` one. Ids are of the kind `id_type`, if it is
/// given; otherwise of the kind of the edges, if a column holds their ids as numbers or as strings.
pub fn find_ids(
    on: &Surveyed<'_>,
    (roles, given): (&Roles, Option<usize>),
    (edges, id_type): (&dyn EdgeSource, Option<IdKind>),
) -> Result<IdColumn> {
    let (path, fields, schema) = (on.path, on.fields, on.schema);
    let kind = if edges.has_string_ids() { IdKind::Text } else { IdKind::Number };
    let suits = |at: &usize| fields[*at].id.is_some_and(|id| id_type.unwrap_or(id) == kind);
    let own = |at: usize| {
        Ok(IdColumn { at, kind: id_type.map_or_else(|| choice::id_kind(path, &fields[at]), Ok)? })
    };
    if let Some(at) = given.filter(|at| id_type.is_some() || suits(at) || fields[*at].id.is_none())
    {
        return own(at);
    }
    let sample = IdSample::of(edges)?;
    let search = Search { on, sample: &sample, kind };
    // Strings that are read as numbers lose zeros before them.
    let any = |cell: Cell<'_>| match cell {
        Cell::Text(text) if kind == IdKind::Number && is_padded(text.as_bytes()) => None,
        cell => id_of(cell, kind),
    };
    if let Some(at) = given {
        let found = search.places(&[at], any)?;
        return if search.holds_most(&found[0]) { Ok(IdColumn { at, kind }) } else { own(at) };
    }
    let used = roles.taken();
    if let Some(id) = roles.id.filter(suits) {
        // If several columns have names of ids, the ids of the edges decide among them.
        let is_named = |at: &usize| {
            *at == id || (suits(at) && roles::is_id(&fields[*at]) && !used.contains(at))
        };
        if let Some(at) =
            search.column((0..fields.len()).filter(is_named).collect(), |cell| id_of(cell, kind))?
        {
            return Ok(IdColumn { at, kind });
        }
    }
    if let Some(at) = roles.id.filter(|at| !suits(at) && fields[*at].id.is_some())
        && search.holds_most(&search.places(&[at], any)?[0])
    {
        return Ok(IdColumn { at, kind });
    }
    let is_free =
        |at: &usize| fields[*at].id.is_some() && (Some(*at) == roles.id || !used.contains(at));
    if let Some(at) = search
        .column((0..fields.len()).filter(|at| suits(at) && is_free(at)).collect(), |cell| {
            id_of(cell, kind)
        })?
    {
        return Ok(IdColumn { at, kind });
    }
    let free: Vec<usize> = (0..fields.len()).filter(is_free).collect();
    if let Some(at) = search.column(free.clone(), any)? {
        return Ok(IdColumn { at, kind });
    }
    // A column of a known name may hold few of the ids: the rows that are missing are counted
    // later.
    if let Some(at) = roles.id.filter(|at| suits(at) || schema.missing_rows.is_some())
        && (schema.missing_rows.is_some() || !search.places(&[at], any)?[0].is_empty())
    {
        return own(at);
    }
    let labels = roles.labels.iter().copied().filter(|&at| fields[at].id.is_some()).collect();
    if let Some(at) = search.column(labels, any)? {
        let name = &fields[at].name;
        let problem = format!(
            "column `{name}` holds the ids of the edges: name another with --label-column, or none"
        );
        return Err(on.wrong(problem));
    }
    let problem =
        search.one_end(&free, any)?.map_or_else(|| search.nothing_found(&free, roles.id), Ok)?;
    Err(on.wrong(problem))
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

/// A search of a table for the ids of edges.
struct Search<'a> {
    on: &'a Surveyed<'a>,
    sample: &'a IdSample,
    kind: IdKind,
}

impl Search<'_> {
    /// Places of the sampled ids in each of `columns`, whose cells are ids by `id`.
    fn places(
        &self,
        columns: &[usize],
        id: impl Fn(Cell<'_>) -> Option<u64> + Sync,
    ) -> Result<Vec<IdPlaces>> {
        let wanted: HashSet<u64> = self.sample.ids.iter().copied().collect();
        let find = |rows: &Rows<'_, '_>| {
            let mut found = Vec::new();
            for slot in 0..columns.len() {
                rows.each_scalar(slot, |row, cell| {
                    let id = id(cell).filter(|id| wanted.contains(id));
                    found.extend(id.map(|id| (slot, id, row)));
                    Ok(())
                })?;
            }
            Ok(found)
        };
        let (mut rows, mut batch): (Vec<IdPlaces>, usize) =
            (vec![IdPlaces::new(); columns.len()], 0);
        self.on.table.for_rows(columns, self.on.progress, find, &mut |found| {
            for (slot, id, row) in found {
                let of_id = rows[slot].entry(id).or_default();
                // Two show that it is not the only one.
                if of_id.len() < 2 {
                    of_id.push((batch, row));
                }
            }
            batch += 1;
            Ok(())
        })?;
        Ok(rows)
    }

    fn holds_most(&self, rows: &IdPlaces) -> bool {
        2 * rows.len() > self.sample.ids.len()
    }

    /// The column among `columns` that holds all of the sampled ids, or else most of them.
    fn column(
        &self,
        columns: Vec<usize>,
        id: impl Fn(Cell<'_>) -> Option<u64> + Sync,
    ) -> Result<Option<usize>> {
        if columns.is_empty() {
            return Ok(None);
        }
        let rows = self.places(&columns, id)?;
        let holds = |slot: &usize| {
            self.sample.ids.iter().all(|id| rows[*slot].get(id).is_some_and(|rows| rows.len() == 1))
        };
        let all: Vec<usize> = (0..columns.len()).filter(holds).collect();
        // The index that pandas writes counts rows: it is the last guess.
        let (index, holding): (Vec<usize>, Vec<usize>) =
            all.into_iter().partition(|&slot| self.on.fields[columns[slot]].is_index());
        if let Some(&other) = holding.iter().find(|&&slot| rows[slot] != rows[holding[0]]) {
            let [one, other] = [holding[0], other].map(|slot| &self.on.fields[columns[slot]].name);
            let problem = format!(
                "`{one}` and `{other}` both hold the ids of the edges, in different rows: pass \
                 --id-column"
            );
            return Err(self.on.wrong(problem));
        }
        // Some ids may have no row, or several: then the column that holds most of them is it.
        let most = || (0..columns.len()).max_by_key(|&slot| (rows[slot].len(), Reverse(slot)));
        let most = || most().filter(|&slot| self.holds_most(&rows[slot]));
        Ok(holding.first().or(index.first()).copied().or_else(most).map(|slot| columns[slot]))
    }

    /// The problem that one of `columns` holds most ids of the sources but none of the targets, or
    /// vice versa.
    fn one_end(
        &self,
        columns: &[usize],
        id: impl Fn(Cell<'_>) -> Option<u64> + Sync,
    ) -> Result<Option<String>> {
        if columns.is_empty() {
            return Ok(None);
        }
        for (rows, &at) in self.places(columns, id)?.iter().zip(columns) {
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
                let missing = self.sample.ends[other]
                    .iter()
                    .min()
                    .map_or(String::new(), |&id| self.sample.text(id));
                return Ok(Some(format!(
                    "`{name}` holds the ids of the {} of the edges and none of the {}, such as {}: \
                     these are two kinds of vertices, and \
                     gsplit reads one table of one kind: add their rows to it, or pass --id-column \
                     {name} --schema missing-rows=fill",
                    names[0],
                    names[1],
                    shown(missing.as_bytes())
                )));
            }
        }
        Ok(None)
    }

    /// The problem that none of `columns` holds most ids, with examples of both.
    fn nothing_found(&self, columns: &[usize], named: Option<usize>) -> Result<String> {
        let kind = if self.kind == IdKind::Text { "strings" } else { "integers" };
        let examples = |texts: Vec<String>| {
            texts
                .iter()
                .take(2)
                .map(|text| shown(text.as_bytes()))
                .collect::<Vec<_>>()
                .join(" and ")
        };
        let of_edges =
            examples(self.sample.ids.iter().take(2).map(|&id| self.sample.text(id)).collect());
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
