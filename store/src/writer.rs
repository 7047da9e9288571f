//! Writing a dataset directory.

use std::path::{Path, PathBuf};

use crate::dataset::{FeatureInfo, Split};
use crate::staging::Staging;
use crate::topology::check_indptr;
use crate::{
    Dataset, DatasetManifest, Error, FeatureDtype, FeatureWriter, Files, Provenance, Result, TopologyWriter, document,
    write_npy,
};

/// Folder of [`DatasetWriter::scratch`].
const SCRATCH: &str = "scratch";

/// A dataset under construction: nothing is visible at its path before [`DatasetWriter::finish`].
#[derive(Debug)]
pub struct DatasetWriter {
    staging: Staging,
    name: String,
    num_vertices: u64,
    num_edges: u64,
    features: Option<FeatureInfo>,
    num_classes: Option<u32>,
    files: Files,
}

/// Fails when a dataset may not be written at `path`: something is there, and either `replace` is false or it is no dataset.
pub fn check_target(path: &Path, replace: bool) -> Result<()> {
    match (path.exists(), replace) {
        (false, _) => Ok(()),
        (true, false) => Err(Error::Exists(path.to_path_buf())),
        (true, true) if path.join("dataset.json").exists() => Ok(()),
        (true, true) => {
            Err(Error::Invalid(format!("{}: is not a dataset, so --force will not replace it", path.display())))
        }
    }
}

impl DatasetWriter {
    /// Starts a dataset. `replace` allows an existing dataset at `path` to be replaced (with everything derived from it);
    /// anything else there is refused.
    pub fn begin(path: &Path, replace: bool) -> Result<Self> {
        check_target(path, replace)?;
        let staging = Staging::begin(path, replace)?;
        Ok(Self {
            staging,
            name: path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            num_vertices: 0,
            num_edges: 0,
            features: None,
            num_classes: None,
            files: Files::new(),
        })
    }

    /// [`DatasetWriter::begin`] with a graph that is in memory: `indptr` of `n + 1` offsets, `indices` of the
    /// in-neighbours.
    pub fn create(path: &Path, replace: bool, indptr: &[u64], indices: &[u32]) -> Result<Self> {
        check_indptr(indptr, indices.len() as u64).map_err(Error::Invalid)?;
        let mut dataset = Self::begin(path, replace)?;
        let mut topology = dataset.topology_writer()?;
        let degrees: Vec<u64> = indptr.windows(2).map(|pair| pair[1] - pair[0]).collect();
        topology.push(&degrees, indices)?;
        dataset.add_topology(topology)?;
        Ok(dataset)
    }

    /// Opens the topology's files; hand the writer back to [`DatasetWriter::add_topology`] when all vertices are pushed.
    pub fn topology_writer(&self) -> Result<TopologyWriter> {
        TopologyWriter::create(&self.staging.path("topology"))
    }

    /// Closes the topology's files. From here on the numbers of vertices and edges are known.
    pub fn add_topology(&mut self, writer: TopologyWriter) -> Result<()> {
        (self.num_vertices, self.num_edges) = (writer.num_vertices(), writer.num_edges());
        let (indptr, indices) = writer.finish()?;
        self.files.insert("topology/indptr.npy".into(), indptr);
        self.files.insert("topology/indices.npy".into(), indices);
        Ok(())
    }

    /// A place for files that are gone when the dataset is finished.
    pub fn scratch(&self) -> PathBuf {
        self.staging.path(SCRATCH)
    }

    /// Opens the feature file; hand the writer back to [`DatasetWriter::add_features`] when all rows are pushed.
    pub fn feature_writer(&self, dtype: FeatureDtype, dim: usize) -> Result<FeatureWriter> {
        FeatureWriter::create(self.staging.path("nodes/feat.arrow"), dtype, dim)
    }

    /// Closes the feature file. `generated` says how the rows were made, `None` when they came with the graph.
    pub fn add_features(
        &mut self,
        writer: FeatureWriter,
        dtype: FeatureDtype,
        generated: Option<String>,
    ) -> Result<()> {
        let dim = writer.dim() as u32;
        let (rows, record) = writer.finish()?;
        self.expect_rows("feature rows", rows)?;
        self.files.insert("nodes/feat.arrow".into(), record);
        self.features = Some(FeatureInfo { dim, dtype, generated });
        Ok(())
    }

    /// Writes one class per vertex, -1 for unlabelled.
    pub fn add_labels(&mut self, labels: &[i32]) -> Result<()> {
        self.expect_rows("labels", labels.len() as u64)?;
        let classes = labels.iter().max().map_or(0, |&largest| largest + 1);
        self.num_classes = Some(classes.max(0) as u32);
        self.add("nodes/label.npy", labels)
    }

    /// Writes the raw input's id of every vertex.
    pub fn add_original_ids(&mut self, ids: &[u64]) -> Result<()> {
        self.expect_rows("original ids", ids.len() as u64)?;
        self.add("nodes/original_id.npy", ids)
    }

    /// Writes a split; `vertices` are sorted, and refused when repeated or out of range.
    pub fn add_split(&mut self, split: Split, mut vertices: Vec<u32>) -> Result<()> {
        vertices.sort_unstable();
        if let Some(pair) = vertices.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::Invalid(format!("{} split: vertex {} is listed twice", split.name(), pair[0])));
        }
        if let Some(&last) = vertices.last().filter(|&&last| u64::from(last) >= self.num_vertices) {
            let n = self.num_vertices;
            return Err(Error::Invalid(format!("{} split: vertex {last}, expected ids below {n}", split.name())));
        }
        self.add(&split.file(), &vertices)
    }

    /// Writes the manifest and makes the dataset visible.
    pub fn finish(self, provenance: Provenance) -> Result<Dataset> {
        let manifest = DatasetManifest {
            name: self.name,
            num_vertices: self.num_vertices,
            num_edges: self.num_edges,
            features: self.features,
            num_classes: self.num_classes,
            files: self.files,
            provenance,
        };
        let scratch = self.staging.path(SCRATCH);
        if scratch.exists() {
            std::fs::remove_dir_all(&scratch).map_err(Error::io(&scratch))?;
        }
        document::write(&self.staging.path("dataset.json"), &manifest)?;
        let path: PathBuf = self.staging.commit()?;
        Dataset::open(path)
    }

    fn add<T: crate::Element>(&mut self, name: &str, values: &[T]) -> Result<()> {
        let record = write_npy(self.staging.path(name), values)?;
        self.files.insert(name.into(), record);
        Ok(())
    }

    fn expect_rows(&self, what: &str, found: u64) -> Result<()> {
        let n = self.num_vertices;
        if found == n {
            return Ok(());
        }
        Err(Error::Invalid(format!("{found} {what} for {n} vertices: expected one each")))
    }
}
