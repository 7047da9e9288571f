//! Opening a dataset directory.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::labels::KNOWN_LABELS;
use crate::manifest::{Axis, Columns};
use crate::rows::check_ascending;
use crate::shard::OWNED;
use crate::{
    Checksum, Column, ColumnFile, DatasetManifest, Element, Error, FeatureTable, Files, GraphTypes,
    MultiLabels, Names, OriginalIds, Result, RowIndex, Split, Topology, bare_key,
};
use crate::{check, document};

/// A dataset directory, opened for reading.
#[derive(Clone, Debug)]
pub struct Dataset {
    path: PathBuf,
    manifest: DatasetManifest,
    topology: Topology,
    /// Whether files are checked when they are opened.
    checked: bool,
    /// The vertices that have rows, in a shard.
    owned: Option<(Column<u32>, RowIndex)>,
}

impl Dataset {
    /// Reads the manifest, checks every file's length and maps the topology. Files are checked
    /// against their checksums when they are opened, the topology here ([`check`]).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_as(path.as_ref(), true)
    }

    /// Opens a dataset without checking checksums, for callers that only read manifests and shapes.
    pub fn open_unchecked(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_as(path.as_ref(), false)
    }

    fn open_as(path: &Path, checked: bool) -> Result<Self> {
        let path = path.to_path_buf();
        let document = manifest_of(&path)?;
        let (manifest, _) = document::read::<DatasetManifest>(&document)?;
        check_lengths(&path, &manifest.files)?;
        for (name, record) in
            manifest.files.iter().filter(|(name, _)| checked && name.starts_with("topology/"))
        {
            check::opened(&path, name, record)?;
        }
        let topology = Topology::open(&path.join("topology"))?;
        let found = (topology.num_vertices() as u64, topology.num_edges() as u64);
        if found != (manifest.num_vertices, manifest.num_edges) {
            let (n, m) = (manifest.num_vertices, manifest.num_edges);
            let problem = format!(
                "promises {n} vertices and {m} edges, the topology has {} and {}",
                found.0, found.1
            );
            return Err(Error::corrupt(document, problem));
        }
        let topology = match &manifest.types {
            Some(types) => {
                types.check().map_err(|problem| Error::corrupt(&document, problem))?;
                topology.with_rows(&path.join("topology"), types)?
            }
            None => topology,
        };
        let mut dataset = Self { path, manifest, topology, checked, owned: None };
        if dataset.shard().is_some_and(|shard| shard.partition().is_some()) {
            let path = dataset.part(OWNED, "list of its own vertices", "cut it again")?;
            let owned = Column::<u32>::open(&path)?;
            let index = RowIndex::new(dataset.num_vertices(), &owned);
            dataset.owned = Some((owned, index.map_err(|problem| Error::corrupt(path, problem))?));
        }
        Ok(dataset)
    }

    /// Whether files are checked when they are opened.
    pub(crate) fn is_checked(&self) -> bool {
        self.checked
    }

    /// The same dataset with unchecked files, for callers that have just written the files.
    pub(crate) fn unchecked(&self) -> Self {
        Self { checked: false, ..self.clone() }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the manifest.
    fn document(&self) -> PathBuf {
        self.path.join("dataset.json")
    }

    /// Name of the dataset when it was made.
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

    /// The vertices whose rows a shard holds, ascending; `None` for a whole dataset.
    pub fn owned(&self) -> Option<&[u32]> {
        self.owned.as_ref().map(|(owned, _)| &owned[..])
    }

    /// Row of each vertex, in a shard.
    pub(crate) fn index(&self) -> Option<&RowIndex> {
        self.owned.as_ref().map(|(_, index)| index)
    }

    /// Digest of the graph: two datasets with the same one have the same vertices and edges.
    pub fn topology_checksum(&self) -> Checksum {
        let files = &self.manifest.files;
        let parts = ["topology/indptr.npy", "topology/rows.npy", "topology/indices.npy"];
        Checksum::combine(
            parts.iter().filter_map(|name| files.get(*name)).map(|record| &record.checksum),
        )
    }

    /// Types of vertices and relations, where there are several.
    pub fn types(&self) -> Option<&GraphTypes> {
        self.manifest.types.as_ref()
    }

    /// Refuses vertices of several types, for `work` that does not know them.
    pub fn expect_one_type(&self, work: &str) -> Result<()> {
        let Some(types) = self.types() else { return Ok(()) };
        let names: Vec<&str> = types.vertices.iter().map(|of| &of.name[..]).collect();
        Err(Error::Invalid(format!(
            "{}: {work} knows vertices of one type only, and the dataset has {}",
            self.path.display(),
            names.join(", ")
        )))
    }

    /// The feature rows of the vertices of type `at`, mapped, if it has any: row i is that of the
    /// type's vertex i.
    pub fn features_of(&self, at: usize) -> Result<Option<FeatureTable>> {
        let of = self.types().and_then(|types| types.vertices.get(at));
        let Some(of) = of.filter(|of| of.features.is_some()) else { return Ok(None) };
        let file = GraphTypes::feature_file(&of.name);
        let table = FeatureTable::open(&self.part(&file, "features", "rebuild it")?)?;
        if table.num_rows() as u64 != of.count {
            let problem = format!("expected {} rows, found {}", of.count, table.num_rows());
            return Err(Error::corrupt(self.path.join(file), problem));
        }
        Ok(Some(table))
    }

    /// The feature rows of all types of vertices that have any.
    pub(crate) fn features_by_type(&self, types: &GraphTypes) -> Result<FeatureTable> {
        let rows = types.rows().into_iter().enumerate();
        let tables = rows.filter_map(|(at, of)| {
            let start = of.vertices.start as u32;
            self.features_of(at).transpose().map(|table| Ok((start, table?)))
        });
        Ok(FeatureTable::of_types(tables.collect::<Result<_>>()?))
    }

    /// The feature rows, mapped. Refuses a shard: see [`Dataset::held_features`].
    pub fn features(&self) -> Result<FeatureTable> {
        self.expect_whole("features")?;
        self.stored_features()
    }

    /// All stored feature rows, in their own order.
    pub(crate) fn stored_features(&self) -> Result<FeatureTable> {
        let remedy = "convert or generate it with --features random:D or --features fastrp:D";
        let table = FeatureTable::open(&self.part("nodes/feat.arrow", "features", remedy)?)?;
        self.check_rows("nodes/feat.arrow", table.num_rows())?;
        Ok(table)
    }

    /// One class per vertex, -1 for unlabelled. Fails when vertices can have several: see
    /// [`Dataset::multi_labels`]. Refuses a shard: see [`Dataset::held_labels`].
    pub fn labels(&self) -> Result<Column<i32>> {
        self.expect_whole("labels")?;
        self.stored_labels()
    }

    /// All stored labels, in their own order.
    pub(crate) fn stored_labels(&self) -> Result<Column<i32>> {
        if self.manifest.multi_label {
            return Err(self.missing(
                "labels of one class a vertex",
                "its vertices can have several classes: a bit matrix",
            ));
        }
        if self.manifest.numeric_label {
            return Err(self.missing(
                "classes",
                "its vertices have numbers to learn: train --task regression",
            ));
        }
        let remedy = "convert with a table of the vertices (--nodes), or learn the edges (train --task link)";
        self.stored("nodes/label.npy", "labels", remedy)
    }

    /// One number per vertex, NaN for unlabelled, in the unit of the input. Fails when vertices
    /// have classes: see [`Dataset::labels`]. Refuses a shard: see
    /// [`Dataset::held_numeric_labels`].
    pub fn numeric_labels(&self) -> Result<Column<f32>> {
        self.expect_whole("labels")?;
        self.stored_numeric_labels()
    }

    /// All stored numeric labels, in their own order.
    pub(crate) fn stored_numeric_labels(&self) -> Result<Column<f32>> {
        if !self.manifest.numeric_label {
            let remedy = "convert it with --schema label-kind=number --label-column COLUMN";
            return Err(self.missing("labels that are numbers", remedy));
        }
        self.stored("nodes/label.npy", "labels", "rebuild it")
    }

    /// The classes of each vertex as a bit matrix. Fails when vertices have one class each: see
    /// [`Dataset::labels`]. Refuses a shard: see [`Dataset::held_multi_labels`].
    pub fn multi_labels(&self) -> Result<MultiLabels> {
        self.expect_whole("labels")?;
        self.stored_multi_labels()
    }

    /// All stored multi-label targets, in their own order.
    pub(crate) fn stored_multi_labels(&self) -> Result<MultiLabels> {
        let Some(classes) = self.manifest.num_classes.filter(|_| self.manifest.multi_label) else {
            return Err(
                self.missing("multi-label targets", "its vertices have one class each, or none")
            );
        };
        let path = self.part("nodes/label.npy", "labels", "rebuild it")?;
        let is_there = self.manifest.files.contains_key(KNOWN_LABELS);
        let known = is_there.then(|| self.part(KNOWN_LABELS, "known labels", "rebuild it"));
        let labels = MultiLabels::open(&path, known.transpose()?.as_deref(), classes)?;
        self.check_rows("nodes/label.npy", labels.num_rows())?;
        Ok(labels)
    }

    /// Whether some vertex of the whole dataset has no value for some of its classes, where
    /// vertices can have several.
    pub fn lacks_label_cells(&self) -> bool {
        self.whole_files().contains_key(KNOWN_LABELS)
    }

    /// The column `nodes/<name>.npy`, with one row per vertex.
    pub fn node_column(&self, name: &str) -> Result<ColumnFile> {
        self.column(Axis::Nodes, name)
    }

    /// The column `edges/<name>.npy`, with one row per edge in the order of [`Topology::indices`].
    pub fn edge_column(&self, name: &str) -> Result<ColumnFile> {
        self.column(Axis::Edges, name)
    }

    fn column(&self, axis: Axis, name: &str) -> Result<ColumnFile> {
        let columns: &Columns = match axis {
            Axis::Nodes => &self.manifest.columns,
            Axis::Edges => &self.manifest.edge_columns,
        };
        let words = axis.words();
        let Some(info) = columns.get(name) else {
            let names: Vec<&str> = columns.keys().map(String::as_str).collect();
            let remedy = if names.is_empty() {
                "it has none".into()
            } else {
                format!("it has {}", names.join(", "))
            };
            return Err(self.missing(format!("{words} `{name}`"), remedy));
        };
        axis.check(name, &info.descr)
            .map_err(|error| Error::corrupt(self.document(), error.to_string()))?;
        let file = axis.file(name);
        let column =
            ColumnFile::open(self.part(&file, &format!("{words} `{name}`"), "rebuild it")?)?;
        let (found, expected) =
            ((column.descr(), column.width() as u64), (info.descr.as_str(), info.width));
        if found != expected {
            return Err(Error::corrupt(
                column.path(),
                format!("expected {expected:?} (type, width), found {found:?}"),
            ));
        }
        // A shard holds the columns of all vertices.
        let (expected, items) = match axis {
            Axis::Nodes => (self.num_vertices(), "vertices"),
            Axis::Edges => (self.topology.num_edges(), "edges"),
        };
        let found = column.rows();
        if found != expected {
            let problem =
                format!("expected one row for each of the {expected} {items}, found {found}");
            return Err(Error::corrupt(column.path(), problem));
        }
        Ok(column)
    }

    /// The ids of the raw input if they are numbers; `None` if they are strings or equal to the
    /// dataset's own ids.
    pub fn original_ids(&self) -> Result<Option<OriginalIds>> {
        let counted = OriginalIds::counted(self.manifest.first_id, self.num_vertices());
        Ok(self.listed_ids()?.map(OriginalIds::Listed).or(counted))
    }

    /// The ids of the raw input if a file lists them.
    pub fn listed_ids(&self) -> Result<Option<Column<u64>>> {
        self.expect_ids()?;
        if !self.manifest.files.contains_key("nodes/original_id.npy") {
            return Ok(None);
        }
        self.stored("nodes/original_id.npy", "original ids", "rebuild it").map(Some)
    }

    /// The ids of the raw input if they are strings; `None` if they are numbers.
    pub fn original_names(&self) -> Result<Option<Names>> {
        self.expect_ids()?;
        if !self.manifest.string_ids {
            return Ok(None);
        }
        let names =
            Names::open(self.part("nodes/original_id.arrow", "original ids", "rebuild it")?)?;
        self.check_rows("nodes/original_id.arrow", names.len())?;
        Ok(Some(names))
    }

    /// Refuses a shard of a dataset with original ids, which shards do not hold.
    fn expect_ids(&self) -> Result<()> {
        match self.whole_files().keys().any(|name| name.starts_with("nodes/original_id.")) {
            true => self.expect_whole("original ids"),
            false => Ok(()),
        }
    }

    /// Vertices of a split, ascending.
    pub fn split(&self, split: Split) -> Result<Column<u32>> {
        let remedy = match self.manifest.links {
            Some(_) => {
                "its splits are of links: train with --task link, or convert it with \
                 --random-split TRAIN,VALID,TEST"
            }
            None => "convert it with --schema split-name=NAME or --random-split TRAIN,VALID,TEST",
        };
        let path = self.part(&split.file(), &format!("{} split", split.name()), remedy)?;
        let vertices = Column::<u32>::open(&path)?;
        check_ascending(self.num_vertices(), &vertices)
            .map_err(|problem| Error::corrupt(path, problem))?;
        Ok(vertices)
    }

    /// Keys of the artifacts below `kind` (`presample`, `partition` or `placement`), sorted; other
    /// folders are left out.
    pub fn keys(&self, kind: &str) -> Result<Vec<String>> {
        let mut keys = self.folders(kind)?;
        let document = format!("{}.json", bare_key(kind));
        keys.retain(|key| self.path.join(kind).join(key).join(&document).exists());
        Ok(keys)
    }

    /// Names of the folders below `kind`, sorted: artifacts, and the remains of damaged ones.
    pub(crate) fn folders(&self, kind: &str) -> Result<Vec<String>> {
        let folder = self.path.join(kind);
        if !folder.exists() {
            return Ok(Vec::new());
        }
        let mut names = Vec::new();
        for path in crate::entries(&folder).map_err(Error::io(&folder))? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Path of the file `name`, checked. Fails if the manifest does not list it.
    pub(crate) fn part(&self, name: &str, what: &str, remedy: &str) -> Result<PathBuf> {
        let Some(record) = self.manifest.files.get(name) else {
            return Err(self.missing(what, remedy));
        };
        if self.checked {
            check::opened(&self.path, name, record)?;
        }
        Ok(self.path.join(name))
    }

    /// The array `name`, with one row for each vertex that has rows.
    fn stored<T: Element>(&self, name: &str, what: &str, remedy: &str) -> Result<Column<T>> {
        let column = Column::open(self.part(name, what, remedy)?)?;
        self.check_rows(name, column.len())?;
        Ok(column)
    }

    /// The error for a part that the dataset does not have.
    pub(crate) fn missing(&self, what: impl Into<String>, remedy: impl Into<String>) -> Error {
        Error::Missing { path: self.path.clone(), what: what.into(), remedy: remedy.into() }
    }

    fn check_rows(&self, name: &str, rows: usize) -> Result<()> {
        let n = self.owned().map_or(self.num_vertices(), <[u32]>::len);
        if rows == n {
            return Ok(());
        }
        let problem = format!("expected one row for each of the {n} vertices, found {rows}");
        Err(Error::corrupt(self.path.join(name), problem))
    }
}

/// Path of the manifest of the dataset at `path`. Fails if it does not exist.
pub(crate) fn manifest_of(path: &Path) -> Result<PathBuf> {
    let document = path.join("dataset.json");
    match std::fs::metadata(&document) {
        Ok(_) => Ok(document),
        // Find out whether the folder exists.
        Err(cause) if cause.kind() == ErrorKind::NotFound => match std::fs::metadata(path) {
            Ok(_) => Err(Error::NotADataset(path.to_path_buf())),
            Err(cause) => Err(Error::io(path)(cause)),
        },
        Err(cause) if cause.kind() == ErrorKind::NotADirectory => {
            Err(Error::NotADataset(path.to_path_buf()))
        }
        Err(cause) => Err(Error::io(&document)(cause)),
    }
}

/// Checks that every recorded file below `folder` is there with its recorded length.
pub(crate) fn check_lengths(folder: &Path, files: &Files) -> Result<()> {
    for (name, record) in files {
        let path = folder.join(name);
        let found = std::fs::metadata(&path).map_err(|cause| match cause.kind() {
            ErrorKind::NotFound => Error::corrupt(&path, "is missing"),
            _ => Error::io(&path)(cause),
        })?;
        let found = found.len();
        if found != record.bytes {
            return Err(Error::corrupt(
                path,
                format!("expected {} bytes, found {found}", record.bytes),
            ));
        }
    }
    Ok(())
}
