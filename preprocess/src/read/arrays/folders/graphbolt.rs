//! GraphBolt's raw datasets (DGL): `metadata.yaml` and what it names, of one type of vertices and one of edges.
//!
//! ```text
//! graph:
//!   nodes: [{num: N}]
//!   edges: [{format: numpy, path: ...}]            (2, E) or (E, 2); or csv: lines `SOURCE,TARGET` without a header
//! feature_data:
//!   - {domain: node, name: feat, format: numpy, path: ...}        (N, d): the features
//!   - {domain: node, name: NAME, format: numpy, path: ...}        (N,) or (N, d): the node column NAME
//!   - {domain: edge, name: NAME, format: numpy, path: ...}        (E,) or (E, d): the edge column NAME
//! tasks:
//!   - train_set, validation_set, test_set: [{data: [{name: seeds, path: ...}, {name: labels, path: ...}]}]
//! ```
//! Paths are relative to the folder. `type` may be given, `in_memory`, `num_classes` and other keys do not matter. Seeds (or
//! `seed_nodes`, their older name) are ids (k,), labels numbers (k,); vertices that are in no set are unlabelled. Only the
//! first task counts. Node features called `label` or `labels` are the labels of all vertices, and come before those of sets.
//! Edge columns need edges in `numpy`, whose order they share. `torch` files are pickles and refused.

use std::path::{Path, PathBuf};

use gsplit_store::{Progress, Unit, read_file};
use serde::Deserialize;

use crate::edges::{EdgeBatch, EdgeSource, Ending, Estimate, Piece, Seen, ValueType};
use crate::memory::Memory;
use crate::read::arrays::catalog::{agreed_rows, for_steps, listed};
use crate::read::arrays::edges::ArrayEdges;
use crate::read::arrays::numbers::{Numbers, NumbersColumn};
use crate::read::options::WantedColumns;
use crate::read::raw::{Column, Ids, Raw};
use crate::read::text::field::{shown, unsigned};
use crate::read::text::{TextPieces, lines};
use crate::{Error, Result};

/// Longest `metadata.yaml` accepted.
const MAX_BYTES: u64 = 1 << 20;
/// Most lists and maps in brackets: the parser takes time with the square of how deep they are nested.
const MAX_BRACKETS: usize = 4096;
/// Rows of labels handed over at a time.
const ROWS: u64 = 1 << 16;

#[derive(Deserialize)]
struct Metadata {
    graph: Graph,
    #[serde(default)]
    feature_data: Option<Vec<Feature>>,
    #[serde(default)]
    tasks: Option<Vec<TaskSets>>,
}

#[derive(Deserialize)]
struct Graph {
    nodes: Vec<Nodes>,
    edges: Vec<StoredFile>,
}

#[derive(Deserialize)]
struct Nodes {
    num: u64,
}

/// An array or a table in a file.
#[derive(Deserialize)]
struct StoredFile {
    format: String,
    path: PathBuf,
}

#[derive(Deserialize)]
struct Feature {
    domain: String,
    name: String,
    #[serde(flatten)]
    stored: StoredFile,
}

#[derive(Deserialize)]
struct TaskSets {
    #[serde(default)]
    train_set: Option<Vec<Set>>,
    #[serde(default)]
    validation_set: Option<Vec<Set>>,
    #[serde(default)]
    test_set: Option<Vec<Set>>,
}

#[derive(Deserialize)]
struct Set {
    data: Vec<SetData>,
}

#[derive(Deserialize)]
struct SetData {
    #[serde(default)]
    name: Option<String>,
    #[serde(flatten)]
    stored: StoredFile,
}

/// Whether `path` is such a folder, or the `metadata.yaml` in it.
pub fn recognises(path: &Path, _head: &[u8]) -> bool {
    path.join("metadata.yaml").is_file() || (path.ends_with("metadata.yaml") && path.is_file())
}

/// Opens the folder at `path`, or that of the `metadata.yaml` at `path`.
pub fn open(path: &Path, wanted: WantedColumns<'_>, memory: Memory, progress: &dyn Progress) -> Result<Raw> {
    let document = if path.ends_with("metadata.yaml") { path.to_path_buf() } else { path.join("metadata.yaml") };
    let metadata = read_metadata(&document)?;
    let mut dataset = Dataset { document: document.clone(), files: vec![document] };
    let [Nodes { num: num_vertices }] = metadata.graph.nodes[..] else { return Err(dataset.one_type("nodes")) };
    let [edges] = &metadata.graph.edges[..] else { return Err(dataset.one_type("edges")) };
    let features = metadata.feature_data.unwrap_or_default();
    let mut raw = match edges.format.as_str() {
        "csv" => dataset.csv_edges(edges, num_vertices, &features, wanted, progress)?,
        _ => dataset.array_edges(edges, num_vertices, &features, wanted)?,
    };
    for feature in features.iter().filter(|feature| feature.domain == "node") {
        let name = match feature.name.as_str() {
            "feat" => "features",
            "label" => "labels",
            other => other,
        };
        let column = NumbersColumn::new(dataset.array(&feature.stored)?, name)?;
        agreed_rows(Some((&dataset.document, num_vertices)), [&column])?;
        match name {
            "features" => raw.features = Some(Box::new(column)),
            "labels" => raw.labels = Some(Box::new(column)),
            _ => raw.columns.push(Box::new(column)),
        }
    }
    if let Some(task) = metadata.tasks.unwrap_or_default().into_iter().next() {
        dataset.task(task, num_vertices, memory, &mut raw)?;
    }
    raw.files = dataset.files;
    Ok(raw)
}

fn read_metadata(path: &Path) -> Result<Metadata> {
    let bytes = std::fs::metadata(path).map_err(Error::io(path))?.len();
    if bytes > MAX_BYTES {
        return Err(Error::input(path, format!("{bytes} bytes: expected a metadata.yaml of at most {MAX_BYTES}")));
    }
    let text = read_file(path).map_err(Error::io(path))?;
    let brackets = text.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if brackets > MAX_BRACKETS {
        let problem = format!("{brackets} brackets: expected a metadata.yaml with at most {MAX_BRACKETS} of [ and {{");
        return Err(Error::input(path, problem));
    }
    yaml_serde::from_slice(&text).map_err(|error| {
        let problem = error.to_string().replace('\n', " ");
        Error::input(path, format!("{problem}: expected GraphBolt's metadata.yaml"))
    })
}

/// The files of a dataset as they are opened.
struct Dataset {
    document: PathBuf,
    files: Vec<PathBuf>,
}

impl Dataset {
    fn one_type(&self, what: &str) -> Error {
        Error::input(&self.document, format!("graph.{what}: expected exactly one type of {what} (a homogeneous graph)"))
    }

    /// Full path of `path` in the document.
    fn file(&mut self, path: &Path) -> PathBuf {
        let path = self.document.parent().unwrap_or(Path::new("")).join(path);
        self.files.push(path.clone());
        path
    }

    fn array(&mut self, stored: &StoredFile) -> Result<Numbers> {
        if stored.format != "numpy" {
            let (path, format) = (stored.path.display(), &stored.format);
            let remedy = "save it with numpy.save and write format: numpy";
            return Err(Error::input(&self.document, format!("{path}: format {format}, expected numpy: {remedy}")));
        }
        Numbers::open(&self.file(&stored.path))
    }

    fn array_edges(
        &mut self,
        edges: &StoredFile,
        n: u64,
        features: &[Feature],
        wanted: WantedColumns<'_>,
    ) -> Result<Raw> {
        let mut edges = ArrayEdges::index(self.array(edges)?)?.within(n);
        for feature in features.iter().filter(|feature| feature.domain == "edge" && wanted.keeps(&feature.name)) {
            edges = edges.with_values(&feature.name, self.array(&feature.stored)?)?;
        }
        wanted.check(&self.document, edges.columns())?;
        Ok(Raw::of(edges, Ids::Dense(Some(n)), Vec::new()))
    }

    fn csv_edges(
        &mut self,
        edges: &StoredFile,
        n: u64,
        features: &[Feature],
        wanted: WantedColumns<'_>,
        progress: &dyn Progress,
    ) -> Result<Raw> {
        wanted.check(&self.document, &[])?;
        for feature in features.iter().filter(|feature| feature.domain == "edge") {
            let (name, path) = (&feature.name, self.document.display());
            progress.note(&format!("{path}: edge feature {name} is not read: it needs edges with format: numpy"));
        }
        let path = self.file(&edges.path);
        std::fs::metadata(&path).map_err(Error::io(&path))?;
        let pairs = Pairs { text: TextPieces::of(&path), path, num_vertices: n };
        Ok(Raw::of(pairs, Ids::Dense(Some(n)), Vec::new()))
    }

    /// Splits and labels of the first task.
    fn task(&mut self, task: TaskSets, num_vertices: u64, budget: Memory, raw: &mut Raw) -> Result<()> {
        let mut splits = <[Vec<u64>; 3]>::default();
        let mut labels = SetLabels { path: self.document.clone(), num_vertices, budget, sets: Vec::new() };
        let sets = [task.train_set, task.validation_set, task.test_set];
        for (split, set) in splits.iter_mut().zip(sets) {
            for set in set.unwrap_or_default() {
                let mut named = |names: &[&str]| -> Result<Option<Numbers>> {
                    let is_named = |data: &&SetData| data.name.as_deref().is_some_and(|name| names.contains(&name));
                    set.data.iter().find(is_named).map(|data| self.array(&data.stored)).transpose()
                };
                let Some(seeds) = named(&["seeds", "seed_nodes"])? else { continue };
                let ids = listed(&seeds, budget)?;
                if let Some(found) = named(&["labels"])? {
                    if !matches!(found.shape(), &[k] | &[k, 1] if k == ids.len() as u64) {
                        let problem =
                            format!("shape {:?}: expected a label for each of {} seeds", found.shape(), ids.len());
                        return Err(found.error(problem));
                    }
                    labels.sets.push((seeds, found));
                }
                split.extend(ids);
            }
        }
        if splits.iter().any(|split| !split.is_empty()) {
            raw.splits = Some(splits);
        }
        if raw.labels.is_none() && !labels.sets.is_empty() {
            raw.labels = Some(Box::new(labels));
        }
        Ok(())
    }
}

/// Labels of the vertices that are in a set.
struct SetLabels {
    path: PathBuf,
    num_vertices: u64,
    budget: Memory,
    sets: Vec<(Numbers, Numbers)>,
}

impl SetLabels {
    /// Vertices and their classes, ascending. In memory, since the sets are in an order of their own.
    fn pairs(&self) -> Result<Vec<(u64, i64)>> {
        let mut pairs = Vec::new();
        for (seeds, labels) in &self.sets {
            // Its classes too, pairs with those of all sets, which grow by doubling, and are sorted.
            labels.check(self.budget, 64)?;
            let ids = listed(seeds, self.budget)?;
            if let Some(id) = ids.iter().find(|&&id| id >= self.num_vertices) {
                return Err(
                    seeds.error(format!("{id}: expected ids below the number of vertices, {}", self.num_vertices))
                );
            }
            let mut classes = Vec::new();
            for_steps(labels, |first, bytes| decode_classes(labels, first, bytes, &mut classes))?;
            pairs.extend(ids.into_iter().zip(classes));
        }
        pairs.sort_by_key(|&(id, _)| id);
        Ok(pairs)
    }
}

/// Appends the integers that the numbers from number `first` on stand for, -1 for NaN.
fn decode_classes(labels: &Numbers, first: u64, bytes: &[u8], classes: &mut Vec<i64>) -> Result<()> {
    let mut values = Vec::new();
    labels
        .dtype()
        .values(bytes, &mut values)
        .map_err(|(at, problem)| labels.error(format!("entry {}: {problem}", first + at)))?;
    let mut real = |at: usize, value: f64| {
        let class = if value.is_nan() { -1 } else { value as i64 };
        if class as f64 != value && !value.is_nan() {
            let problem = format!("entry {}: label {value}, expected a class number", first + at as u64);
            return Err(labels.error(problem));
        }
        classes.push(class);
        Ok(())
    };
    match labels.dtype().value_type() {
        ValueType::I64 => classes.extend(values.as_chunks().0.iter().map(|&value| i64::from_le_bytes(value))),
        ValueType::F32 => {
            let numbers = values.as_chunks().0.iter().map(|&value| f32::from_le_bytes(value));
            numbers.enumerate().try_for_each(|(at, value)| real(at, value.into()))?;
        }
        ValueType::F64 => {
            let numbers = values.as_chunks().0.iter().map(|&value| f64::from_le_bytes(value));
            numbers.enumerate().try_for_each(|(at, value)| real(at, value))?;
        }
    }
    Ok(())
}

impl Column for SetLabels {
    fn path(&self) -> &Path {
        &self.path
    }

    fn name(&self) -> &str {
        "labels"
    }

    fn descr(&self) -> &'static str {
        "<i8"
    }

    fn width(&self) -> usize {
        1
    }

    fn num_rows(&self) -> Option<u64> {
        Some(self.num_vertices)
    }

    fn read(&self, progress: &dyn Progress, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let stage = progress.stage("reading labels", Some(self.num_vertices), Unit::Items("vertices"));
        let mut pairs = self.pairs()?.into_iter().peekable();
        let (mut first, mut bytes) = (0, Vec::new());
        while first < self.num_vertices {
            let end = (first + ROWS).min(self.num_vertices);
            bytes.clear();
            for vertex in first..end {
                let mut class = -1i64;
                while let Some((_, found)) = pairs.next_if(|&(id, _)| id == vertex) {
                    class = found;
                }
                bytes.extend(class.to_le_bytes());
            }
            take(&bytes)?;
            stage.advance(end - first);
            first = end;
        }
        Ok(())
    }
}

/// Lines `SOURCE,TARGET`.
struct Pairs {
    path: PathBuf,
    num_vertices: u64,
    text: TextPieces,
}

impl Pairs {
    fn edge(&self, line: &[u8]) -> Result<(u64, u64), String> {
        let ids: Option<Vec<u64>> =
            line.split(|&byte| byte == b',').map(|field| unsigned(field.trim_ascii())).collect();
        match ids.as_deref() {
            Some(&[source, target]) if source.max(target) < self.num_vertices => Ok((source, target)),
            Some(&[source, target]) => {
                let id = source.max(target);
                Err(format!("{id}: expected ids below the number of vertices, {}", self.num_vertices))
            }
            _ => Err(format!("expected `SOURCE,TARGET`, found {}", shown(line))),
        }
    }
}

impl EdgeSource for Pairs {
    fn rewind(&self) -> Result<()> {
        self.text.rewind()
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        self.text.next(piece)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        for (number, line) in lines(piece).filter(|(_, line)| !line.trim_ascii().is_empty()) {
            let (source, target) = self.edge(line).map_err(|problem| Error::line(&self.path, number, problem))?;
            batch.push(source, target);
        }
        Ok(())
    }

    fn finish(&self, _seen: &Seen) -> Result<Ending> {
        Ok(Ending { num_vertices: Some(self.num_vertices), ..Ending::default() })
    }

    fn estimate(&self) -> Result<Estimate> {
        let bytes = std::fs::metadata(&self.path).map_err(Error::io(&self.path))?.len();
        // Ids have about as many digits as the largest, half of it where lines are compressed.
        let digits = u64::from(self.num_vertices.max(2).ilog10()) + 1;
        Ok(Estimate { edges: bytes / (2 * digits + 2).max(1), vertices: self.num_vertices, bytes })
    }

    fn bytes_done(&self) -> u64 {
        self.text.bytes_done()
    }
}

#[cfg(test)]
mod tests;
