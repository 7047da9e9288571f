//! Edges to compressed sparse columns, within a budget of memory.
//!
//! Returns: the topology in a dataset under construction: `indptr` and `indices` of the
//! in-neighbours, ascending within a vertex, with the edges' values aligned to `indices`. Input:
//! any [`EdgeSource`]. Ids below a known number of vertices, or any ids, which are then compacted
//! in order. Idea: an edge is read once and goes to the bucket of its target (`chunk`); buckets
//! that do not fit in memory wait on disk (`store`); then every bucket is sorted by itself
//! (`bucket`), or by ranges of its targets where it is too large, and written behind the one before
//! (`assemble`). Edges of a bucket stay in the input's order and are sorted stably, so the result is
//! the same for any number of threads and any budget. Cost: every edge is read once, moved twice,
//! written once; 6 bytes and the values of each wait in between, in memory or on disk. Ids at or
//! above 2^32, strings, and ids that are too scattered for a bitmap take a second reading of the
//! input (`keys`).
//!
//! ```text
//! EdgeSource ──pieces──▶ ingest (chunk: buckets; presence: which ids occur) ──▶ store (memory, runs on disk)
//!            ──▶ assemble (bucket: sort, merge, rank) ──▶ TopologyWriter, ColumnWriters
//! ```

mod assemble;
mod bucket;
mod chunk;
mod columns;
mod id_map;
mod ingest;
pub mod keys;
mod pieces;
mod presence;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod weights;

use std::path::PathBuf;

use gsplit_store::{DatasetWriter, GraphTypes, Progress};

use assemble::Sink;
use bucket::Rules;
use columns::{ColumnMerge, ColumnWriters};
pub use id_map::IdMap;
use ingest::Ingested;
pub use ingest::{num_threads, thread_bytes};
use keys::Keys;
pub use store::EDGE_BYTES;

pub use crate::edges::BuildOptions;
use crate::edges::{EdgeSource, row_bytes};
use crate::memory::Memory;
use crate::read::raw::Ids;
use crate::{Error, Result};

/// A graph to be built.
pub struct Build<'a> {
    /// Its edges.
    pub source: &'a dyn EdgeSource,
    /// Kind of their ids.
    pub ids: Ids,
    /// Types of the vertices, where there are several: targets are rows.
    pub types: Option<&'a GraphTypes>,
    /// Further ids that are vertices, with or without edges.
    pub node_ids: Option<&'a dyn EdgeSource>,
    /// Options of what happens to the edges.
    pub options: BuildOptions,
    /// Whether the weights of edges have to be costs: numbers from 0, none missing.
    pub are_costs: bool,
    /// The budget.
    pub memory: Memory,
    /// Folder for data that does not fit in memory.
    pub scratch: PathBuf,
}

/// Counts of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    /// `n`.
    pub num_vertices: u64,
    /// Edges of the input.
    pub edges_read: u64,
    /// Edges left out because they lead from a vertex to itself.
    pub self_loops_dropped: u64,
    /// Edges left out because an equal one is kept; with `symmetrise`, counted after the reverses
    /// were added.
    pub duplicates_merged: u64,
    /// Edges of the input whose weight is missing, which is NaN.
    pub weights_missing: u64,
}

/// The input was another one when it was read again.
fn changed() -> Error {
    Error::Graph("the input changed while it was read: run it again".into())
}

/// More vertices than ids of 32 bits.
fn too_many(vertices: u64) -> Error {
    Error::Graph(format!(
        "{vertices} vertices: ids are 32-bit, so at most {} are supported",
        u32::MAX
    ))
}

impl Build<'_> {
    /// Builds the graph into `dataset`: topology, edge columns, and original ids where they are
    /// compacted.
    pub fn run(&self, dataset: &mut DatasetWriter, progress: &dyn Progress) -> Result<Built> {
        if self.ids == Ids::Sparse && (self.source.has_string_ids() || self.source.has_two_kinds())
        {
            return self.run_by_keys(dataset, progress);
        }
        match ingest::ingest(self, self.memory.left(), progress)? {
            Some(ingested) => {
                ingested.check_size()?;
                self.write_within(ingested, None, self.memory.left(), dataset, progress)
            }
            None => self.run_by_keys(dataset, progress),
        }
    }

    /// Removes the data stored on disk.
    pub fn clean_up(&self) -> Result<()> {
        match self.scratch.exists() {
            true => std::fs::remove_dir_all(&self.scratch).map_err(Error::io(&self.scratch)),
            false => Ok(()),
        }
    }

    /// Reads the input twice: for the ids that occur, then for the edges.
    fn run_by_keys(&self, dataset: &mut DatasetWriter, progress: &dyn Progress) -> Result<Built> {
        let keys = Keys::collect(self, progress)?;
        let dense = Build {
            source: &keys.ranked(self.source),
            ids: Ids::Dense(Some(keys.num_ids())),
            types: None,
            node_ids: None,
            scratch: self.scratch.clone(),
            ..*self
        };
        let ingested = ingest::ingest(&dense, self.memory.left(), progress)?.ok_or_else(changed)?;
        self.write_within(ingested, Some(&keys), self.memory.left(), dataset, progress)
    }

    /// Writes the graph, with `memory` bytes for the work in addition to the edges held already.
    fn write_within(
        &self,
        ingested: Ingested,
        keys: Option<&Keys>,
        memory: u64,
        dataset: &mut DatasetWriter,
        progress: &dyn Progress,
    ) -> Result<Built> {
        let columns = self.source.columns();
        let rules = Rules {
            options: self.options,
            shift: ingested.shift,
            num_vertices: ingested.num_vertices,
            ranks: ingested.ranks.as_ref(),
            value_bytes: row_bytes(columns),
            merge: ColumnMerge::new(columns, self.options.sum_weights),
        };
        let sink = Sink {
            topology: dataset.topology_writer()?,
            columns: ColumnWriters::create(dataset, columns)?,
        };
        let sink = assemble::assemble(&ingested, &rules, memory, sink, progress)?;
        let num_edges = sink.topology.num_edges();
        match self.types {
            Some(types) => dataset.add_typed_topology(sink.topology, types.clone())?,
            None => dataset.add_topology(sink.topology)?,
        }
        sink.columns.finish(dataset)?;
        match (keys, &ingested.ranks) {
            (Some(keys), _) => keys.write(dataset)?,
            (None, Some(ranks)) => {
                let mut writer = dataset.original_id_writer()?;
                let mut ids = ranks.ids().map(u64::from).peekable();
                let mut some = Vec::new();
                while ids.peek().is_some() {
                    some.clear();
                    some.extend(ids.by_ref().take(1 << 16));
                    writer.push(&some)?;
                }
                dataset.add_original_id_writer(writer)?;
            }
            (None, None) => dataset.set_first_id(self.ids.first()),
        }
        let dropped = if self.options.drop_self_loops { ingested.self_loops } else { 0 };
        let reverses =
            if self.options.symmetrise { ingested.edges - ingested.self_loops } else { 0 };
        let [added, left_out] = self.source.added_and_dropped();
        Ok(Built {
            num_vertices: ingested.num_vertices,
            edges_read: ingested.edges + left_out - added,
            self_loops_dropped: dropped + left_out,
            duplicates_merged: ingested.edges - dropped + reverses - num_edges,
            weights_missing: ingested.weights_missing,
        })
    }
}
