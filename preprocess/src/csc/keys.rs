//! Ids that no bitmap can hold: numbers from 2^32 on, or scattered, or strings.
//!
//! Returns: [`Keys`], the distinct ids of a graph in order, and an edge source that names vertices
//! instead. Input: an edge source that can be read twice. Strings come as hashes, together with the
//! strings; two strings with one hash are refused (the chance is about n² / 2^65). Idea: every
//! piece's ids are sorted and merged into the ids found before. Cost: one reading of the input; 8
//! bytes per id while they are collected and twice that while they are merged; for strings their
//! bytes and about 40 more. Ids that exceed the budget are refused with the memory that they need.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gsplit_store::{DatasetWriter, KIND, Progress};
use rayon::prelude::*;

use super::ingest::num_threads;
use super::pieces::for_each_parallel;
use super::table::IdTable;
use super::{Build, changed, too_many};
use crate::edges::{
    EdgeBatch, EdgeSource, Ending, Estimate, Piece, Seen, for_each_batch, lock, pass_on, row_bytes,
};
use crate::memory::shown;
use crate::read::bipartite::TARGET;
use crate::{Error, Result};

/// Ids that are collected before the first merge.
const FIRST_MERGE: usize = 1 << 20;

/// The distinct ids of a graph.
pub struct Keys {
    table: IdTable,
    /// The string of every vertex.
    names: Option<Vec<String>>,
    /// Number of vertices of the first kind, the sources, where targets are of another.
    num_sources: Option<usize>,
    ending: Ending,
}

impl Keys {
    /// Collects the ids of all edges of `build`, and its further ids.
    pub fn collect(build: &Build<'_>, progress: &dyn Progress) -> Result<Self> {
        let found = Mutex::new(Found {
            limit: build.memory.left(),
            merge_at: FIRST_MERGE,
            ..Found::default()
        });
        let (edges, largest) = (AtomicU64::new(0), AtomicU64::new(0));
        let threads = num_threads(build.memory.left(), row_bytes(build.source.columns()));
        for_each_parallel(
            build.source,
            threads,
            "reading ids",
            progress,
            Vec::new,
            |room: &mut Vec<u64>, _, batch| {
                edges.fetch_add(batch.len() as u64, Relaxed);
                room.clear();
                room.extend_from_slice(&batch.sources);
                room.extend_from_slice(&batch.targets);
                room.sort_unstable();
                room.dedup();
                largest.fetch_max(room.last().copied().unwrap_or(0), Relaxed);
                lock(&found).add(room, &batch.names)
            },
        )?;
        let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(ids) = build.node_ids {
            for_each_batch(ids, |batch| found.add(&batch.sources, &batch.names))?;
        }
        found.merge()?;
        let edges = edges.into_inner();
        let largest = (edges > 0).then(|| largest.into_inner());
        let seen = Seen {
            edges,
            largest,
            distinct: Some(found.ids.len() as u64),
            has_zero: found.ids.first() == Some(&0),
        };
        let ending = build.source.finish(&seen)?;
        ending.decisions.iter().for_each(|line| progress.decide(line));
        if let Some(n) = ending.num_vertices {
            return Err(too_many(n));
        }
        found.add(&(1..=ending.last_id.unwrap_or(0)).collect::<Vec<_>>(), &[])?;
        found.add(&ending.first.sources, &ending.first.names)?;
        found.add(&ending.first.targets, &[])?;
        found.merge()?;
        found.into_keys(build.source, ending)
    }

    /// Number of ids.
    pub fn num_ids(&self) -> u64 {
        self.table.keys().len() as u64
    }

    /// `source` with vertices for ids.
    pub fn ranked<'a>(&'a self, source: &'a dyn EdgeSource) -> Ranked<'a> {
        Ranked { source, keys: self }
    }

    /// Writes the original ids, and the kind of every vertex where there are two.
    pub fn write(&self, dataset: &mut DatasetWriter) -> Result<()> {
        if let Some(num_sources) = self.num_sources {
            let kinds: Vec<u8> = (0..self.table.keys().len())
                .map(|vertex| u8::from(vertex >= num_sources))
                .collect();
            let mut column = dataset.node_column_writer(KIND, "|u1", 1)?;
            column.push(&kinds)?;
            dataset.add_node_column(KIND, column)?;
        }
        match &self.names {
            Some(names) => {
                let mut writer = dataset.original_names_writer()?;
                names.iter().try_for_each(|name| writer.push(name))?;
                Ok(dataset.add_original_names(writer)?)
            }
            None if self.num_sources.is_some() => {
                let ids: Vec<u64> = self.table.keys().iter().map(|id| id & !TARGET).collect();
                Ok(dataset.add_original_ids(&ids)?)
            }
            None => Ok(dataset.add_original_ids(self.table.keys())?),
        }
    }
}

/// Bytes that a name takes with its hash.
fn name_bytes((_, name): &(u64, String)) -> u64 {
    name.len() as u64 + 40
}

/// Ids under collection.
#[derive(Default)]
struct Found {
    ids: Vec<u64>,
    names: Vec<(u64, String)>,
    name_bytes: u64,
    merge_at: usize,
    /// Bytes that may be held.
    limit: u64,
}

impl Found {
    fn add(&mut self, ids: &[u64], names: &[(u64, String)]) -> Result<()> {
        let name_bytes: u64 = names.iter().map(name_bytes).sum();
        // Names are long: merge duplicates, then check the memory of new names before storing them.
        if !names.is_empty() && self.needed(ids.len(), name_bytes) > self.limit {
            self.merge()?;
            self.check(ids.len(), name_bytes)?;
        }
        self.ids.extend_from_slice(ids);
        self.name_bytes += name_bytes;
        self.names.extend_from_slice(names);
        if self.ids.len() >= self.merge_at || self.names.len() >= self.merge_at {
            self.merge()?;
            self.merge_at = FIRST_MERGE.max(2 * self.ids.len());
        }
        Ok(())
    }

    /// Bytes for the ids held and `ids` more, with `name_bytes` bytes of names.
    fn needed(&self, ids: usize, name_bytes: u64) -> u64 {
        16 * (self.ids.len() + ids) as u64 + 2 * (self.name_bytes + name_bytes)
    }

    /// Fails if these bytes exceed the limit.
    fn check(&self, ids: usize, name_bytes: u64) -> Result<()> {
        let needed = self.needed(ids, name_bytes);
        if needed <= self.limit {
            return Ok(());
        }
        let (found, needed) = (self.ids.len() + ids, shown(needed));
        let problem = format!(
            "{found} distinct ids so far take {needed}, more than --memory leaves: raise it"
        );
        Err(Error::Graph(problem))
    }

    fn merge(&mut self) -> Result<()> {
        self.ids.par_sort_unstable();
        self.ids.dedup();
        self.names.par_sort_unstable();
        self.names.dedup();
        if let Some(pair) = self.names.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let (a, b) = (&pair[0].1, &pair[1].1);
            return Err(Error::Graph(format!(
                "ids `{a}` and `{b}` have the same hash: rename one of them"
            )));
        }
        self.name_bytes = self.names.iter().map(name_bytes).sum();
        self.check(0, 0)
    }

    fn into_keys(self, source: &dyn EdgeSource, ending: Ending) -> Result<Keys> {
        let found = self.ids.len();
        if found > u32::MAX as usize {
            return Err(too_many(found as u64));
        }
        let num_sources =
            source.has_two_kinds().then(|| self.ids.partition_point(|&id| id < TARGET));
        if !source.has_string_ids() {
            return Ok(Keys {
                table: IdTable::ascending(self.ids),
                names: None,
                num_sources,
                ending,
            });
        }
        let mut names = self.names;
        let is_target = |id: u64| num_sources.is_some() && id >= TARGET;
        names.par_sort_unstable_by(|a, b| (is_target(a.0), &a.1).cmp(&(is_target(b.0), &b.1)));
        let pairs: Vec<(u64, u32)> =
            names.iter().zip(0..).map(|((hash, _), vertex)| (*hash, vertex)).collect();
        let table = IdTable::of(pairs);
        if table.keys() != self.ids {
            return Err(changed());
        }
        Ok(Keys {
            table,
            names: Some(names.into_iter().map(|(_, name)| name).collect()),
            num_sources,
            ending,
        })
    }
}

/// An edge source with vertices for ids.
pub struct Ranked<'a> {
    source: &'a dyn EdgeSource,
    keys: &'a Keys,
}

impl Ranked<'_> {
    fn rank(&self, batch: &mut EdgeBatch) -> Result<()> {
        for id in batch.sources.iter_mut().chain(&mut batch.targets) {
            *id = self.keys.table.find(*id).ok_or_else(changed)?.into();
        }
        batch.names.clear();
        Ok(())
    }
}

impl EdgeSource for Ranked<'_> {
    pass_on!(source: rewind, next, columns, bytes_done);

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        self.source.parse(piece, batch)?;
        self.rank(batch)
    }

    fn finish(&self, _seen: &Seen) -> Result<Ending> {
        let EdgeBatch { sources, targets, values, .. } = &self.keys.ending.first;
        let mut first = EdgeBatch {
            sources: sources.clone(),
            targets: targets.clone(),
            values: values.clone(),
            names: Vec::new(),
        };
        self.rank(&mut first)?;
        Ok(Ending { first, ..Ending::default() })
    }

    fn estimate(&self) -> Result<Estimate> {
        Ok(Estimate { vertices: self.keys.num_ids(), ..self.source.estimate()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count_before_they_are_held() {
        let mut found = Found { limit: 1 << 20, merge_at: FIRST_MERGE, ..Found::default() };
        let name = |id: u64| (id, format!("{id:01000}"));
        // Repeated names are held once.
        for _ in 0..100 {
            found.add(&[1, 2, 3], &[name(1), name(2), name(3)]).unwrap();
        }
        let mut refused = None;
        for id in 4..4000 {
            refused = refused.or(found.add(&[id], &[name(id)]).err());
            assert!(found.names.len() * 1000 < 1 << 20, "{} names are held", found.names.len());
        }
        assert!(refused.unwrap().to_string().contains("more than --memory leaves"));
    }
}
