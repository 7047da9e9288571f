//! Writing a dataset directory.
//!
//! The files of the topology come first, then everything that has a row for each vertex or edge, in
//! any order. [`DatasetWriter::resume`] lets a long run be killed at any moment: everything added
//! before the last [`DatasetWriter::complete`] is there when the same command runs again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::dataset::check_lengths;
use crate::journal::{JOURNAL, Journal};
use crate::manifest::Split;
use crate::staging::{DATASET, Mark, Staging, Target, tree};
use crate::topology::check_indptr;
use crate::{
    Column, Dataset, DatasetManifest, Error, GraphTypes, NpyWriter, Provenance, Result, Topology,
    TopologyWriter, document,
};

mod columns;
mod shard;
#[cfg(test)]
pub(crate) mod tests;

pub use shard::{finished_shards, write_shards};

/// Folder of the writer's own files, below the staging folder.
const SCRATCH: &str = "scratch";

/// A dataset under construction: nothing is visible at its path before [`DatasetWriter::finish`].
#[derive(Debug)]
pub struct DatasetWriter {
    staging: Staging,
    name: String,
    resumable: bool,
    journal: Journal,
}

/// The place of a dataset at `path`.
pub fn dataset_target(path: &Path) -> Target {
    Target::new(path, Mark::document::<DatasetManifest>("dataset.json"))
}

impl DatasetWriter {
    /// Starts a dataset. `replace` allows an existing dataset at `path` to be replaced (with
    /// everything derived from it); anything else there is refused, and so is a path that another
    /// process is writing. The files of an earlier run are removed.
    pub fn begin(path: &Path, replace: bool) -> Result<Self> {
        let writer = Self::open(path, replace, None)?;
        writer.staging.restart()?;
        Ok(writer)
    }

    /// Like [`DatasetWriter::begin`], or resumes an earlier run with the same `identity`: its
    /// finished stages and their scratch files are kept, everything else is removed. `identity` is
    /// everything that decides the bytes of the dataset: command, options, and the sources.
    pub fn resume(path: &Path, replace: bool, identity: &Value) -> Result<Self> {
        let mut writer = Self::open(path, replace, Some(identity))?;
        let staging = &writer.staging;
        staging.retain(&[JOURNAL], &[DATASET, SCRATCH])?;
        match Journal::resume(staging.root(), &staging.path(""), &scratch_below(staging), identity)?
        {
            Some(journal) => writer.journal = journal,
            None => staging.restart()?,
        }
        Ok(writer)
    }

    /// The identity of an earlier run's files at `path` that can be resumed.
    pub fn left(path: &Path) -> Option<Value> {
        let root = path.with_file_name(dataset_target(path).partial().ok()?);
        Journal::unfinished(&root, &root.join(DATASET)).map(|journal| journal.identity)
    }

    /// Rewrites the identity, for the stages that are completed from here on: it must be equivalent
    /// to the old one.
    pub fn identify(&mut self, identity: Value) {
        self.journal.identity = identity;
    }

    fn open(path: &Path, replace: bool, identity: Option<&Value>) -> Result<Self> {
        Ok(Self {
            staging: Staging::open(dataset_target(path), replace, DATASET)?,
            name: path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
            resumable: identity.is_some(),
            journal: Journal::new(identity.cloned().unwrap_or_default()),
        })
    }

    /// [`DatasetWriter::begin`] with a graph that is in memory.
    pub fn create(path: &Path, replace: bool, indptr: &[u64], indices: &[u32]) -> Result<Self> {
        let mut dataset = Self::begin(path, replace)?;
        dataset.add_graph(indptr, indices)?;
        Ok(dataset)
    }

    /// Writes a topology that is in memory: `indptr` of `n + 1` offsets, `indices` of the
    /// in-neighbours.
    pub fn add_graph(&mut self, indptr: &[u64], indices: &[u32]) -> Result<()> {
        check_indptr(indptr, indices.len() as u64).map_err(Error::Invalid)?;
        let mut topology = self.topology_writer()?;
        let degrees: Vec<u64> = indptr.windows(2).map(|pair| pair[1] - pair[0]).collect();
        topology.push(&degrees, indices)?;
        self.add_topology(topology)
    }

    /// Whether `stage` was completed, by this run or by one that this one resumes.
    pub fn is_done(&self, stage: &str) -> bool {
        self.journal.stages.iter().any(|done| done == stage)
    }

    /// Ends `stage`: the files added, the facts, and the current scratch files outlive this
    /// process, however it ends, if the writer is resumable. Flushes the scratch files to disk.
    ///
    /// A scratch file that is changed or removed afterwards makes a run that is killed before the
    /// next stage is complete begin anew.
    pub fn complete(&mut self, stage: &str) -> Result<()> {
        if !self.is_done(stage) {
            self.journal.stages.push(stage.into());
        }
        if self.resumable {
            let (content, scratch) = (self.staging.path(""), scratch_below(&self.staging));
            self.journal.save(self.staging.root(), &content, &scratch)?;
            self.staging.keep(true);
        }
        Ok(())
    }

    /// Also discards completed stages, once this is dropped: the next run starts from the
    /// beginning.
    pub fn discard(&self) {
        self.staging.keep(false);
    }

    /// Counts so far, by name.
    pub fn facts(&self) -> &BTreeMap<String, u64> {
        &self.journal.staged.provenance.facts
    }

    /// Counts to add to; they become part of the provenance.
    pub fn facts_mut(&mut self) -> &mut BTreeMap<String, u64> {
        &mut self.journal.staged.provenance.facts
    }

    /// Decisions about the input that [`DatasetWriter::decide`] was given before the last stage
    /// that was completed.
    pub fn decisions(&self) -> &[String] {
        &self.journal.staged.provenance.decisions
    }

    /// Sets the decisions that were made so far: the next completed stage keeps them, for the
    /// provenance of a run that is resumed after it.
    pub fn decide(&mut self, decisions: Vec<String>) {
        self.journal.staged.provenance.decisions = decisions;
    }

    /// A folder for files that are removed when the dataset is finished. Files in it when a stage
    /// is completed are there again when the run is resumed.
    pub fn scratch(&self) -> PathBuf {
        let scratch = scratch_below(&self.staging);
        // If this fails, creating a file in it reports the reason.
        let _ = std::fs::create_dir_all(&scratch);
        scratch
    }

    /// Number of vertices: 0 before the topology is added.
    pub fn num_vertices(&self) -> u64 {
        self.journal.staged.num_vertices
    }

    /// Number of edges: 0 before the topology is added.
    pub fn num_edges(&self) -> u64 {
        self.journal.staged.num_edges
    }

    /// Opens the topology's files; hand the writer back to [`DatasetWriter::add_topology`] when all
    /// vertices are pushed.
    pub fn topology_writer(&self) -> Result<TopologyWriter> {
        self.place("topology/indices.npy")?;
        TopologyWriter::create(&self.staging.path("topology"))
    }

    /// Closes the topology's files. From here on the numbers of vertices and edges are known.
    pub fn add_topology(&mut self, writer: TopologyWriter) -> Result<()> {
        let staged = &mut self.journal.staged;
        (staged.num_vertices, staged.num_edges) = (writer.num_vertices(), writer.num_edges());
        let (indptr, indices) = writer.finish()?;
        staged.files.insert("topology/indptr.npy".into(), indptr);
        staged.files.insert("topology/indices.npy".into(), indices);
        Ok(())
    }

    /// Like [`DatasetWriter::add_topology`], for vertices of several types: the in-neighbours of
    /// their rows were pushed, row after row.
    pub fn add_typed_topology(&mut self, writer: TopologyWriter, types: GraphTypes) -> Result<()> {
        let invalid = |problem| Error::Invalid(format!("{}: {problem}", self.name));
        types.check().map_err(invalid)?;
        if writer.num_vertices() != types.num_rows() {
            let (found, expected) = (writer.num_vertices(), types.num_rows());
            return Err(Error::Invalid(format!("{found} rows, expected {expected}")));
        }
        self.journal.staged.num_edges = writer.num_edges();
        self.journal.staged.num_vertices = types.num_vertices();
        let (rows, indices) = writer.finish()?;
        let names = ["topology/indptr.npy", "topology/rows.npy"];
        let [indptr, by_row] = names.map(|name| self.staging.path(name));
        std::fs::rename(&indptr, &by_row).map_err(Error::io(&by_row))?;
        let offsets = Column::<u64>::open(by_row)?;
        let mut writer = NpyWriter::create(indptr)?;
        types.for_each_first_row(|row| writer.push(&[offsets[row as usize]]))?;
        self.record(names[0], writer.finish()?);
        self.record(names[1], rows);
        self.record("topology/indices.npy", indices);
        self.journal.staged.types = Some(types);
        Ok(())
    }

    /// Types of vertices and relations, where there are several.
    pub fn types(&self) -> Option<&GraphTypes> {
        self.journal.staged.types.as_ref()
    }

    /// Maps the topology that was added.
    pub fn topology(&self) -> Result<Topology> {
        self.expect_topology()?;
        Topology::open(&self.staging.path("topology"))
    }

    /// Writes a split; `vertices` are sorted, and refused when repeated or out of range.
    pub fn add_split(&mut self, split: Split, mut vertices: Vec<u32>) -> Result<()> {
        vertices.sort_unstable();
        if let Some(pair) = vertices.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::Invalid(format!(
                "{} split: vertex {} is listed twice",
                split.name(),
                pair[0]
            )));
        }
        let n = self.num_vertices();
        if let Some(&last) = vertices.last().filter(|&&last| u64::from(last) >= n) {
            return Err(Error::Invalid(format!(
                "{} split: vertex {last}, expected ids below {n}",
                split.name()
            )));
        }
        self.add(&split.file(), &vertices)
    }

    /// Writes the manifest and makes the dataset visible. The facts counted here are added to the
    /// ones of `provenance`.
    pub fn finish(self, provenance: Provenance) -> Result<Dataset> {
        Dataset::open_unchecked(self.seal(provenance)?.commit()?)
    }

    /// Writes the manifest; the caller makes the dataset visible.
    fn seal(self, mut provenance: Provenance) -> Result<Staging> {
        self.expect_topology()?;
        let Self { staging, name, resumable, journal } = self;
        let resumable = resumable && !journal.stages.is_empty();
        let content = staging.path("");
        tree::prune(&content, |name| journal.staged.files.contains_key(name))?;
        check_lengths(&content, &journal.staged.files)?;
        let mut manifest = journal.staged;
        provenance.facts = manifest.provenance.facts.into_iter().chain(provenance.facts).collect();
        (manifest.name, manifest.provenance) = (name, provenance);
        let shape = manifest.label_shape();
        if let Some(recipe) = &mut manifest.recipe {
            recipe.label_shape = shape.or(recipe.label_shape);
        }
        let checksum = document::write(&staging.path("dataset.json"), &manifest)?;
        if resumable {
            Journal::committing(staging.root(), checksum)?;
        }
        Ok(staging)
    }

    fn expect_topology(&self) -> Result<()> {
        match self.journal.staged.files.contains_key("topology/indptr.npy") {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "{}: the topology must be added before this",
                self.name
            ))),
        }
    }
}

fn scratch_below(staging: &Staging) -> PathBuf {
    staging.root().join(SCRATCH)
}
