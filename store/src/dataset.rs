//! Opening a dataset directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::document::{self, Document};
use crate::{Checksum, Column, Error, FeatureDtype, FeatureTable, Files, Result, SourceFile, Topology};

/// Which vertices a metric or a training run looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Seeds of training.
    Train,
    /// Looked at while training, to choose.
    Valid,
    /// Looked at last.
    Test,
}

impl Split {
    /// All three.
    pub const ALL: [Split; 3] = [Split::Train, Split::Valid, Split::Test];

    /// Its name on disk and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Valid => "valid",
            Self::Test => "test",
        }
    }

    pub(crate) fn file(self) -> String {
        format!("splits/{}.npy", self.name())
    }
}

/// How a dataset came to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// Version of gsplit.
    pub tool_version: String,
    /// The subcommand, as `convert ogb`.
    pub command: String,
    /// All of its options, defaults included.
    pub options: serde_json::Value,
    /// The raw files read.
    pub sources: Vec<SourceFile>,
    /// What was counted on the way: duplicates merged, self-loops dropped ...
    pub facts: BTreeMap<String, u64>,
}

/// Content of `dataset.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetManifest {
    /// The directory's name when it was made.
    pub name: String,
    /// `n`.
    pub num_vertices: u64,
    /// `m`.
    pub num_edges: u64,
    /// Values of a feature row and how they are stored, when there are features.
    pub features: Option<FeatureInfo>,
    /// Number of classes, when there are labels: the largest label and one.
    pub num_classes: Option<u32>,
    /// Every file with its length and digest.
    pub files: Files,
    /// How it was made.
    pub provenance: Provenance,
}

/// The feature column in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureInfo {
    /// Values of a row.
    pub dim: u32,
    /// Stored type.
    pub dtype: FeatureDtype,
    /// How they were generated, as `fastrp:128`; `None` when they came with the graph.
    pub generated: Option<String>,
}

impl DatasetManifest {
    /// The splits that there are.
    pub fn splits(&self) -> Vec<Split> {
        Split::ALL.into_iter().filter(|split| self.files.contains_key(&split.file())).collect()
    }
}

impl Document for DatasetManifest {
    const FORMAT: &'static str = "gsplit-dataset";
    const VERSION: u32 = 1;
}

/// A dataset directory, opened for reading.
#[derive(Clone, Debug)]
pub struct Dataset {
    path: PathBuf,
    manifest: DatasetManifest,
    topology: Topology,
}

impl Dataset {
    /// Reads the manifest, checks every file's length and maps the topology.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let document = path.join("dataset.json");
        if !document.exists() {
            return Err(Error::NotADataset(path));
        }
        let (manifest, _) = document::read::<DatasetManifest>(&document)?;
        check_lengths(&path, &manifest.files)?;
        let topology = Topology::open(&path.join("topology"))?;
        let found = (topology.num_vertices() as u64, topology.num_edges() as u64);
        if found != (manifest.num_vertices, manifest.num_edges) {
            let (n, m) = (manifest.num_vertices, manifest.num_edges);
            let problem = format!("promises {n} vertices and {m} edges, the topology has {} and {}", found.0, found.1);
            return Err(Error::corrupt(document, problem));
        }
        Ok(Self { path, manifest, topology })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its name when it was made.
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    /// Content of `dataset.json`.
    pub fn manifest(&self) -> &DatasetManifest {
        &self.manifest
    }

    /// The graph.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Number of vertices.
    pub fn num_vertices(&self) -> usize {
        self.topology.num_vertices()
    }

    /// Digest of the graph: two datasets with the same one have the same vertices and edges.
    pub fn topology_checksum(&self) -> Checksum {
        let files = &self.manifest.files;
        let parts = ["topology/indptr.npy", "topology/indices.npy"];
        Checksum::combine(parts.iter().filter_map(|name| files.get(*name)).map(|record| &record.checksum))
    }

    /// The feature rows, mapped.
    pub fn features(&self) -> Result<FeatureTable> {
        let remedy = "convert or generate it with --features random:D or --features fastrp:D";
        let table = FeatureTable::open(&self.part("nodes/feat.arrow", "features", remedy)?)?;
        self.check_rows("nodes/feat.arrow", table.num_rows())?;
        Ok(table)
    }

    /// One class per vertex, -1 for unlabelled.
    pub fn labels(&self) -> Result<Column<i32>> {
        let remedy = "labels come with the raw graph; training needs them";
        let labels = Column::open(self.part("nodes/label.npy", "labels", remedy)?)?;
        self.check_rows("nodes/label.npy", labels.len())?;
        Ok(labels)
    }

    /// The ids of the raw input, `None` when they are the dataset's own.
    pub fn original_ids(&self) -> Result<Option<Column<u64>>> {
        if !self.manifest.files.contains_key("nodes/original_id.npy") {
            return Ok(None);
        }
        let ids = Column::open(self.path.join("nodes/original_id.npy"))?;
        self.check_rows("nodes/original_id.npy", ids.len())?;
        Ok(Some(ids))
    }

    /// Vertices of a split, ascending.
    pub fn split(&self, split: Split) -> Result<Column<u32>> {
        let remedy = "convert it with --split NAME or --random-split TRAIN,VALID,TEST";
        let path = self.part(&split.file(), &format!("{} split", split.name()), remedy)?;
        let vertices = Column::<u32>::open(&path)?;
        let n = self.num_vertices();
        let ascending = vertices.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || vertices.last().is_some_and(|&last| last as usize >= n) {
            return Err(Error::corrupt(path, format!("expected distinct vertices below {n}, ascending")));
        }
        Ok(vertices)
    }

    /// Keys of the artifacts below `kind` (`presample` or `partition`), sorted; what else lies there is left out.
    pub fn keys(&self, kind: &str) -> Result<Vec<String>> {
        let mut keys = self.folders(kind)?;
        keys.retain(|key| self.path.join(kind).join(key).join(kind).with_extension("json").exists());
        Ok(keys)
    }

    /// Names of the folders below `kind`, sorted: artifacts, and what is left of damaged ones.
    pub(crate) fn folders(&self, kind: &str) -> Result<Vec<String>> {
        let folder = self.path.join(kind);
        if !folder.exists() {
            return Ok(Vec::new());
        }
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(Error::io(&folder))? {
            let entry = entry.map_err(Error::io(&folder))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.path().is_dir() && !name.starts_with('.') {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Path of a file that the manifest must list.
    fn part(&self, name: &str, what: &str, remedy: &str) -> Result<PathBuf> {
        if self.manifest.files.contains_key(name) {
            return Ok(self.path.join(name));
        }
        Err(Error::Missing { path: self.path.clone(), what: what.into(), remedy: remedy.into() })
    }

    fn check_rows(&self, name: &str, rows: usize) -> Result<()> {
        let n = self.num_vertices();
        if rows == n {
            return Ok(());
        }
        Err(Error::corrupt(
            self.path.join(name),
            format!("expected one row for each of the {n} vertices, found {rows}"),
        ))
    }
}

/// Checks that every recorded file below `folder` is there with its recorded length.
pub(crate) fn check_lengths(folder: &Path, files: &Files) -> Result<()> {
    for (name, record) in files {
        let path = folder.join(name);
        let found = std::fs::metadata(&path).map_err(Error::io(&path))?.len();
        if found != record.bytes {
            return Err(Error::corrupt(path, format!("expected {} bytes, found {found}", record.bytes)));
        }
    }
    Ok(())
}
