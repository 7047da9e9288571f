//! The new tables in memory: ids row by row, and edges.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use gsplit_store::{Dataset, Progress};

use crate::convert::ConvertOptions;
use crate::csc::IdMap;
use crate::edges::{EdgeBatch, EdgeColumn, EdgeSource, Seen, ValueType, for_each_batch, row_bytes};
use crate::read::options::MissingRows;
use crate::read::raw::numbers;
use crate::read::text::field::counted;
use crate::{Error, Result};

/// The ids of a table, row by row.
pub struct NewIds {
    /// Ids, or hashes of string ids.
    pub ids: Vec<u64>,
    /// The strings that were hashed.
    pub names: Vec<(u64, String)>,
}

impl NewIds {
    /// Reads the ids of `table`.
    pub fn of(table: &dyn EdgeSource) -> Result<Self> {
        let (mut ids, mut names) = (Vec::new(), Vec::new());
        for_each_batch(table, |batch| {
            ids.extend_from_slice(&batch.sources);
            names.extend_from_slice(&batch.names);
            Ok(())
        })?;
        Ok(Self { ids, names })
    }

    /// Refuses rows of vertices that are in the dataset already, unless the options say which row
    /// counts.
    pub fn check_old(
        &self,
        old: &IdMap,
        table: &dyn EdgeSource,
        path: Option<&PathBuf>,
        dataset: &Dataset,
        options: &ConvertOptions,
    ) -> Result<()> {
        if options.read.node_table.on_duplicate.is_some() {
            return Ok(());
        }
        let mut both =
            self.ids.iter().zip(0u64..).filter_map(|(&id, row)| Some((old.find(id)?, row)));
        let Some((v, row)) = both.next() else { return Ok(()) };
        let (more, name) = (1 + both.count() as u64, dataset.path().display());
        let problem = format!(
            "{} for vertices that {name} has too, e.g. {}, vertex {}: pass --on-duplicate last to \
             take the rows of the table, or first for \
             those of the dataset",
            counted(more, "row"),
            table.place(row),
            old.original(v)
        );
        Err(Error::input(path.map_or(Path::new(""), |path| path.as_path()), problem))
    }
}

/// The edges of the new table, in its order, each followed by its reverse where reverses are added.
#[derive(Default)]
pub struct NewEdges {
    /// Source and target of each edge.
    pub ends: Vec<(u64, u64)>,
    /// Values of each edge in the columns of the joined graph.
    pub values: Vec<u8>,
    /// Strings that were hashed into ids.
    pub names: HashMap<u64, String>,
    /// Bytes of the values per edge.
    pub row_bytes: usize,
}

impl NewEdges {
    /// Reads the edges of `source`, with their values in `columns`.
    pub fn read(
        source: &dyn EdgeSource,
        columns: &[EdgeColumn],
        symmetrise: bool,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut edges = Self { row_bytes: row_bytes(columns), ..Self::default() };
        let places = ColumnMapping::of(source.columns(), columns);
        let mut take = |batch: &EdgeBatch| {
            edges.names.extend(batch.names.iter().cloned());
            let rows = batch
                .values
                .chunks_exact(places.row_bytes.max(1))
                .map(Some)
                .chain(std::iter::repeat(None));
            for ((&source, &target), row) in batch.sources.iter().zip(&batch.targets).zip(rows) {
                let again = symmetrise && source != target;
                for ends in
                    [(source, target), (target, source)].into_iter().take(1 + usize::from(again))
                {
                    edges.ends.push(ends);
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
        Ok(edges)
    }

    /// Refuses ends that neither the table nor the dataset has, unless the options say how to treat
    /// them.
    pub fn check_ends(
        &mut self,
        new: &NewIds,
        old: &IdMap,
        path: &Path,
        dataset: &Dataset,
        options: &ConvertOptions,
        source: &dyn EdgeSource,
        progress: &dyn Progress,
    ) -> Result<()> {
        let listed: HashSet<u64> = new.ids.iter().copied().collect();
        let is_known = |id: u64| listed.contains(&id) || old.find(id).is_some();
        match options.read.node_table.missing_rows {
            Some(MissingRows::Fill) => {}
            Some(MissingRows::Drop) => {
                let before = self.ends.len();
                self.keep_edges(|(source, target)| is_known(source) && is_known(target));
                let dropped = (before - self.ends.len()) as u64;
                if dropped > 0 {
                    progress.decide(&format!(
                        "{} dropped, at vertices without a row",
                        counted(dropped, "edge")
                    ));
                }
            }
            None => {
                let unknown = |&(source, target): &(u64, u64)| {
                    [source, target].into_iter().find(|&id| !is_known(id))
                };
                if let Some(id) = self.ends.iter().find_map(unknown) {
                    let name =
                        self.names.get(&id).map_or(id.to_string(), |name| format!("`{name}`"));
                    let mut row = None;
                    let mut before = 0;
                    for_each_batch(source, |batch| {
                        let at = batch
                            .sources
                            .iter()
                            .zip(&batch.targets)
                            .position(|(&u, &v)| u == id || v == id);
                        row = row.or(at.map(|at| before + at as u64));
                        before += batch.len() as u64;
                        Ok(())
                    })?;
                    let place = row.map_or(String::new(), |row| format!("{}: ", source.place(row)));
                    let problem = format!(
                        "{place}vertex {name} is neither in the table of new vertices nor in {}: \
                         add its row, or pass --missing-rows drop to \
                         leave out such edges, or fill for a row of missing values",
                        dataset.path().display()
                    );
                    return Err(Error::input(path, problem));
                }
            }
        }
        Ok(())
    }

    /// Keeps only the edges to targets for which `wants` returns true.
    pub fn keep(&mut self, wants: impl Fn(u64) -> bool) {
        self.keep_edges(|(_, target)| wants(target));
    }

    fn keep_edges(&mut self, keeps: impl Fn((u64, u64)) -> bool) {
        let (bytes, mut kept) = (self.row_bytes, 0);
        for edge in 0..self.ends.len() {
            if keeps(self.ends[edge]) {
                self.ends[kept] = self.ends[edge];
                self.values.copy_within(edge * bytes..(edge + 1) * bytes, kept * bytes);
                kept += 1;
            }
        }
        self.ends.truncate(kept);
        self.values.truncate(kept * bytes);
    }

    /// Pairs of target and source, ascending.
    pub fn by_target(&self) -> Vec<(u64, u64)> {
        let mut ends: Vec<(u64, u64)> =
            self.ends.iter().map(|&(source, target)| (target, source)).collect();
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
