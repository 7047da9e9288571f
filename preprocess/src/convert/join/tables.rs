//! The new tables in memory: ids row by row, and edges.

use std::collections::HashSet;
use std::path::Path;

use gsplit_store::{Dataset, Progress};

use crate::convert::ConvertOptions;
use crate::csc::IdMap;
use crate::edges::{EdgeBatch, EdgeColumn, EdgeSource, Seen, ValueType, for_each_batch, row_bytes};
use crate::read::options::MissingRows;
use crate::read::raw::numbers;
use crate::read::text::field::counted;
use crate::{Error, Result};

/// The ids of a table, or hashes of string ids, row by row.
pub fn ids_of(table: &dyn EdgeSource) -> Result<Vec<u64>> {
    let mut ids = Vec::new();
    for_each_batch(table, |batch| {
        ids.extend_from_slice(&batch.sources);
        Ok(())
    })?;
    Ok(ids)
}

/// Refuses rows of vertices, whose ids are `new`, that are in the dataset already, unless the
/// options say which row counts.
pub fn check_old(
    new: &[u64],
    old: &IdMap,
    table: &dyn EdgeSource,
    path: &Path,
    dataset: &Dataset,
    options: &ConvertOptions,
) -> Result<()> {
    if options.read.schema.on_duplicate.is_some() {
        return Ok(());
    }
    let mut both = new.iter().zip(0u64..).filter_map(|(&id, row)| Some((old.find(id)?, row)));
    let Some((v, row)) = both.next() else { return Ok(()) };
    let problem = format!(
        "{} for vertices that {} has too, e.g. {}, vertex {}: pass --schema on-duplicate=last to \
         take the rows of the table, or first for those of the dataset",
        counted(1 + both.count() as u64, "row"),
        dataset.path().display(),
        table.place(row),
        old.original(v)
    );
    Err(Error::input(path, problem))
}

/// The edges of the new table, in its order, each followed by its reverse where reverses are added,
/// with their values in the columns of the joined graph.
pub struct NewEdges {
    edges: EdgeBatch,
    /// Bytes of the values per edge.
    row_bytes: usize,
}

impl NewEdges {
    /// Reads the edges of `source`, with their values in `columns`.
    pub fn read(
        source: &dyn EdgeSource,
        columns: &[EdgeColumn],
        symmetrise: bool,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut edges = EdgeBatch::default();
        let places = ColumnMapping::of(source.columns(), columns);
        let mut take = |batch: &EdgeBatch| {
            edges.names.extend_from_slice(&batch.names);
            let rows = batch.values.chunks_exact(places.row_bytes.max(1));
            let rows = rows.map(Some).chain(std::iter::repeat(None));
            for ((&source, &target), row) in batch.sources.iter().zip(&batch.targets).zip(rows) {
                let again = symmetrise && source != target;
                for (source, target) in
                    [(source, target), (target, source)].into_iter().take(1 + usize::from(again))
                {
                    edges.push(source, target);
                    places.convert(row.unwrap_or_default(), &mut edges.values);
                }
            }
            Ok(())
        };
        let mut seen = Seen::default();
        for_each_batch(source, |batch| {
            let largest = batch.sources.iter().chain(&batch.targets).max();
            (seen.edges, seen.largest) =
                (seen.edges + batch.len() as u64, seen.largest.max(largest.copied()));
            seen.has_zero |= batch.sources.contains(&0) || batch.targets.contains(&0);
            take(batch)
        })?;
        let ending = source.finish(&seen)?;
        take(&ending.first)?;
        ending.decisions.iter().for_each(|line| progress.decide(line));
        edges.names.sort_unstable();
        edges.names.dedup();
        Ok(Self { edges, row_bytes: row_bytes(columns) })
    }

    /// Refuses ends that neither the table nor the dataset has, unless the options say how to treat
    /// them.
    pub fn check_ends(
        &mut self,
        new: &[u64],
        old: &IdMap,
        path: &Path,
        dataset: &Dataset,
        options: &ConvertOptions,
        source: &dyn EdgeSource,
        progress: &dyn Progress,
    ) -> Result<()> {
        let listed: HashSet<u64> = new.iter().copied().collect();
        let is_known = |id: u64| listed.contains(&id) || old.find(id).is_some();
        match options.read.schema.missing_rows {
            Some(MissingRows::Fill) => {}
            Some(MissingRows::Drop) => {
                let dropped = self
                    .edges
                    .retain(self.row_bytes, |source, target| is_known(source) && is_known(target));
                if dropped > 0 {
                    progress.decide(&format!(
                        "{} dropped, at vertices without a row",
                        counted(dropped, "edge")
                    ));
                }
            }
            None => {
                let EdgeBatch { sources, targets, names, .. } = &self.edges;
                let mut ends = sources.iter().zip(targets).flat_map(|(&u, &v)| [u, v]);
                if let Some(id) = ends.find(|&id| !is_known(id)) {
                    let name = names.iter().find(|(hash, _)| *hash == id);
                    let name = name.map_or(id.to_string(), |(_, name)| format!("`{name}`"));
                    let (mut row, mut before) = (None, 0);
                    for_each_batch(source, |batch| {
                        let mut ends = batch.sources.iter().zip(&batch.targets);
                        let at = ends.position(|(&u, &v)| u == id || v == id);
                        row = row.or(at.map(|at| before + at as u64));
                        before += batch.len() as u64;
                        Ok(())
                    })?;
                    let place = row.map_or(String::new(), |row| format!("{}: ", source.place(row)));
                    let problem = format!(
                        "{place}vertex {name} is neither in the table of new vertices nor in {}: \
                         add its row, or pass --schema missing-rows=drop to \
                         leave out such edges, or fill for a row of missing values",
                        dataset.path().display()
                    );
                    return Err(Error::input(path, problem));
                }
            }
        }
        Ok(())
    }

    /// The edges to targets for which `wants` returns true, and their names.
    pub fn into_wanted(mut self, wants: impl Fn(u64) -> bool) -> EdgeBatch {
        self.edges.retain(self.row_bytes, |_, target| wants(target));
        let EdgeBatch { sources, targets, names, .. } = &mut self.edges;
        let ends: HashSet<u64> = sources.iter().chain(&*targets).copied().collect();
        names.retain(|(id, _)| ends.contains(id));
        self.edges
    }

    /// Pairs of target and source, ascending.
    pub fn by_target(&self) -> Vec<(u64, u64)> {
        let EdgeBatch { sources, targets, .. } = &self.edges;
        let mut ends: Vec<(u64, u64)> =
            targets.iter().copied().zip(sources.iter().copied()).collect();
        ends.sort_unstable();
        ends
    }
}

/// Positions of the wanted columns in the rows of a source.
struct ColumnMapping {
    row_bytes: usize,
    /// For each number: its first byte, its type in the source, and the wanted type.
    numbers: Vec<(usize, ValueType, ValueType)>,
}

impl ColumnMapping {
    fn of(found: &[EdgeColumn], wanted: &[EdgeColumn]) -> Self {
        let mut numbers = Vec::new();
        for wanted in wanted {
            let mut at = 0;
            for column in found {
                if column.name == wanted.name {
                    let bytes = column.value.bytes();
                    numbers.extend(
                        (0..wanted.width)
                            .map(|number| (at + number * bytes, column.value, wanted.value)),
                    );
                }
                at += column.value.bytes() * column.width;
            }
        }
        Self { row_bytes: row_bytes(found), numbers }
    }

    fn convert(&self, row: &[u8], out: &mut Vec<u8>) {
        for &(at, from, to) in &self.numbers {
            let bytes = &row[at..at + from.bytes()];
            match from == to {
                true => out.extend_from_slice(bytes),
                // `f64`, the wider type.
                false => out
                    .extend(numbers(from.descr(), bytes).next().unwrap_or(f64::NAN).to_le_bytes()),
            }
        }
    }
}
