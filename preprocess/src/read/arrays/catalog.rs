//! A graph as arrays known by their names: the files of a folder (`edge_index.npy` or `.pt`), the
//! members of an `.npz` archive (`edge_index`), or tensors in a `.pt` file.
//!
//! | what | names, one of |
//! | --- | --- |
//! | edges, (2, E) or (E, 2) | `edge_index`, `edges` |
//! | edges, two arrays (E,) | `row` + `col`, `src` + `dst` |
//! | edges, CSR: row u lists the targets of u -> v | `indptr` + `indices`, `csr_indptr` + `csr_indices`, `adj_indptr` + `adj_indices` |
//! | edges, CSC: column v lists the sources of u -> v | `csc_indptr` + `csc_indices` |
//! | features (n, d) | `feat`, `feats`, `feature`, `features`, `node_feat`, `node_feats`, `node_features`, `x`, `attr_matrix` |
//! | features, CSR | `attr_indptr` + `attr_indices` + `attr_data` + `attr_shape` |
//! | labels (n,), or zeros and ones (n, classes) | `label`, `labels`, `node_label`, `node_label_19`, `node_labels`, `y` |
//! | splits: ids | `train`, `train_idx`; `valid`, `val`, `valid_idx`, `val_idx`; `test`, `test_idx` |
//! | splits: masks (n,), (n, k) or (k, n) | `train_mask(s)`; `val_mask(s)`, `valid_mask(s)`; `test_mask(s)` |
//! | splits: 1, 2, 3 (n,), next to `feature` (Reddit) | `node_types` |
//! | edge weights (E,) | `edge_weight`, `edge_weights`, `weight`; `adj_data` unless all are one |
//! | edge features (E, d) | `edge_feat`, `edge_feats`, `edge_attr` |
//!
//! The first list of edges in this order counts; a note is printed if there are several. Other
//! arrays must occur once. `--schema split-name` chooses one of k masks by its number from 0; without it
//! the first counts, and a note is printed. A missing split is empty. Weights become the edge
//! column `weight`, edge features `feat`.
//!
//! Ids are positions of rows: of the features or labels if there are any, else of a CSR or CSC.
//! Without any of them, the largest id gives the number of vertices.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gsplit_store::Progress;

use super::edges::{ArrayEdges, all_ones};
use super::npz::Npz;
use super::numbers::{Numbers, NumbersColumn};
use super::pt;
use super::sparse::SparseColumn;
use crate::edges::EdgeSource;
use crate::read::options::Schema;
use crate::read::raw::{Column, Ids, Raw, check_size};
use crate::read::text::some;
use crate::{Error, Result};

/// Arrays by name.
pub enum Catalog {
    /// `NAME.npy` or `NAME.pt` in a folder.
    Folder(PathBuf),
    /// A member of an archive.
    Archive(PathBuf, Npz),
    /// Tensors in one file, by their names there.
    Named(PathBuf, BTreeMap<String, Numbers>),
}

const INDEX: [&str; 2] = ["edge_index", "edges"];
/// Names of two arrays that together list edges.
const PAIRS: [([&str; 2], PairKind); 6] = [
    (["row", "col"], PairKind::Coordinates),
    (["src", "dst"], PairKind::Coordinates),
    (["indptr", "indices"], PairKind::Csr),
    (["csr_indptr", "csr_indices"], PairKind::Csr),
    (["csc_indptr", "csc_indices"], PairKind::Csc),
    // Used by Shchur et al. (2018) for their benchmark, and by others after them.
    (["adj_indptr", "adj_indices"], PairKind::Csr),
];
const FEATURES: [&str; 9] = [
    "feat",
    "feats",
    "feature",
    "features",
    "node_feat",
    "node_feats",
    "node_features",
    "x",
    "attr_matrix",
];
/// Names of the arrays of a sparse matrix of features.
const SPARSE: [&str; 4] = ["attr_indptr", "attr_indices", "attr_data", "attr_shape"];
const LABELS: [&str; 6] = ["label", "labels", "node_label", "node_label_19", "node_labels", "y"];
const WEIGHTS: [&str; 3] = ["edge_weight", "edge_weights", "weight"];
const EDGE_FEATURES: [&str; 3] = ["edge_feat", "edge_feats", "edge_attr"];
const SPLITS: [&[&str]; 3] = [
    &["train", "train_idx", "train_mask", "train_masks"],
    &["valid", "val", "valid_idx", "val_idx", "val_mask", "val_masks", "valid_mask", "valid_masks"],
    &["test", "test_idx", "test_mask", "test_masks"],
];

#[derive(Clone, Copy)]
enum PairKind {
    Coordinates,
    Csr,
    Csc,
}

impl Catalog {
    /// The arrays at `path`: an archive, a file of tensors, or otherwise a folder.
    pub fn at(path: &Path, progress: &dyn Progress) -> Result<Self> {
        match path.extension() {
            Some(extension) if extension == "npz" => {
                Ok(Self::Archive(path.to_path_buf(), Npz::open(path)?))
            }
            Some(extension) if extension == "pt" => Ok(pt::tensors(path, progress)?.0),
            _ => Ok(Self::Folder(path.to_path_buf())),
        }
    }

    /// Path of the folder or archive.
    pub fn path(&self) -> &Path {
        match self {
            Self::Folder(path) | Self::Archive(path, _) | Self::Named(path, _) => path,
        }
    }

    /// The array called `name`, if there is one.
    pub fn get(&mut self, name: &str) -> Result<Option<Numbers>> {
        let dotted = dotted(name);
        let name = if self.has(name) { name } else { &dotted };
        match self {
            Self::Folder(folder) => {
                let Some(path) = file_of(folder, name) else { return Ok(None) };
                if path.extension().is_some_and(|end| end == "pt") {
                    pt::tensor(&path, name)
                } else {
                    Numbers::open(&path)
                }
                .map(Some)
            }
            Self::Archive(_, archive) => archive.numbers(name),
            Self::Named(_, arrays) => Ok(arrays.get(name).cloned()),
        }
    }

    fn contains(&self, name: &str) -> bool {
        self.has(name) || self.has(&dotted(name))
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::Folder(folder) => file_of(folder, name).is_some(),
            Self::Archive(_, archive) => archive.contains(name),
            Self::Named(_, arrays) => arrays.contains_key(name),
        }
    }

    /// The array that has one of the `names`, if there is one. Fails if there are several.
    fn only(&mut self, what: &str, names: &[&str]) -> Result<Option<(Numbers, String)>> {
        let found: Vec<&str> = names.iter().copied().filter(|name| self.contains(name)).collect();
        match found[..] {
            [] => Ok(None),
            [name] => Ok(self.get(name)?.map(|numbers| (numbers, name.to_string()))),
            [first, second, ..] => {
                let problem =
                    format!("{first} and {second} are both names of {what}: keep one of them");
                Err(Error::input(self.path(), problem))
            }
        }
    }

    /// Names of the lists of edges; for pairs, the first name.
    fn edge_lists(&self) -> Vec<&'static str> {
        let single = INDEX.into_iter().filter(|name| self.contains(name));
        let pairs = PAIRS.iter().filter(|(names, _)| names.iter().all(|name| self.contains(name)));
        single.chain(pairs.map(|(names, _)| names[0])).collect()
    }

    /// Whether there is a list of edges.
    pub fn has_edges(&self) -> bool {
        !self.edge_lists().is_empty()
    }

    fn edges(&mut self, progress: &dyn Progress) -> Result<ArrayEdges> {
        let lists = self.edge_lists();
        let Some(&first) = lists.first() else {
            let problem = "expected edges in it: edge_index, row and col, or indptr and indices";
            return Err(Error::input(self.path(), problem));
        };
        if let Some(second) = lists.get(1) {
            progress.note(&format!(
                "{}: edges are taken from {first}; {second} is not read",
                self.path().display()
            ));
        }
        let missing =
            |path: &Path, name: &str| Error::input(path, format!("expected {name} in it"));
        let mut open = |name: &str| self.get(name)?.ok_or_else(|| missing(self.path(), name));
        match PAIRS.iter().find(|(names, _)| names[0] == first) {
            None => ArrayEdges::index(open(first)?),
            Some(([first, second], kind)) => {
                let (first, second) = (open(first)?, open(second)?);
                match kind {
                    PairKind::Coordinates => ArrayEdges::coordinates(first, second),
                    PairKind::Csr => ArrayEdges::compressed(first, second, true),
                    PairKind::Csc => ArrayEdges::compressed(first, second, false),
                }
            }
        }
    }

    /// Names the members of an archive that have no known name.
    fn note_others(&self, progress: &dyn Progress) {
        let Self::Archive(path, archive) = self else { return };
        let of_reddit = self.is_of_reddit().then_some(REDDIT_SPLIT);
        let is_other = |name: &String| {
            let mut known = known().chain(SCIPY).chain(of_reddit);
            !known.any(|known| known == name || dotted(known) == *name)
        };
        let others: Vec<String> = archive.arrays().into_iter().filter(is_other).collect();
        if !others.is_empty() {
            let others: Vec<String> =
                others.iter().map(|name| name.escape_debug().to_string()).collect();
            progress.note(&format!("note: {}: not read: {}", path.display(), some(&others)));
        }
    }

    /// The graph made of all arrays.
    pub fn graph(self, schema: &Schema, progress: &dyn Progress) -> Result<Raw> {
        self.graph_of(None, schema, progress)
    }

    /// The graph made of all arrays, with `stated` vertices if the number is given.
    pub fn graph_of(
        mut self,
        stated: Option<u64>,
        schema: &Schema,
        progress: &dyn Progress,
    ) -> Result<Raw> {
        let mut edges = self.edges(progress)?;
        if let (Some(n), None) = (stated, edges.num_vertices()) {
            check_size(self.path(), n as usize, edges.num_edges())?;
            edges = edges.within(n);
        }
        let values =
            [("weight", "edge weights", &WEIGHTS[..]), ("feat", "edge features", &EDGE_FEATURES)];
        for (name, what, names) in values {
            if let Some((numbers, _)) = self.only(what, names)?
                && schema.keeps(name)
            {
                edges = edges.with_values(name, numbers)?;
            }
        }
        if self.edge_lists().first() == Some(&"adj_indptr")
            && schema.keeps("weight")
            && let Some(data) = self.get("adj_data")?
            && !all_ones(&data)?
        {
            edges = edges.with_values("weight", data)?;
        }
        self.rest(edges, schema, progress)
    }

    /// The graph made of `edges` and of the arrays of the vertices.
    pub fn rest(
        mut self,
        mut edges: ArrayEdges,
        schema: &Schema,
        progress: &dyn Progress,
    ) -> Result<Raw> {
        schema.check_edge_columns(self.path(), edges.columns())?;
        let stated = edges.num_vertices().map(|n| (self.path().to_path_buf(), n));
        let rows = self.rows(stated, 0, schema.split_name.as_deref(), progress)?;
        if let Some(n) = rows.num_vertices {
            edges = edges.within(n);
        }
        let mut raw = Raw::of(edges, Ids::Dense(rows.num_vertices), self.files()?);
        rows.attach(&mut raw);
        Ok(raw)
    }

    /// Adds the arrays of the vertices to the edges of `raw`: row v belongs to vertex v, or to the
    /// v-th smallest id where ids are compacted.
    pub fn attach(
        mut self,
        raw: &mut Raw,
        split: Option<&str>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let stated = raw.ids.num_vertices().map(|n| (self.path().to_path_buf(), n));
        let rows = self.rows(stated, raw.ids.first(), split, progress)?;
        if raw.ids == Ids::Dense(None) {
            raw.ids = Ids::Dense(rows.num_vertices);
        }
        raw.files.extend(self.files()?);
        rows.attach(raw);
        Ok(())
    }

    /// Whether there is an array of the vertices.
    pub fn has_rows(&self) -> bool {
        let mut names =
            FEATURES.iter().chain(&LABELS).chain(&SPARSE).chain(SPLITS.into_iter().flatten());
        names.any(|name| self.contains(name))
    }

    /// The arrays of the vertices, whose number a file may have `stated`. The `first` vertex has
    /// the first row.
    pub fn rows(
        &mut self,
        stated: Option<(PathBuf, u64)>,
        first: u64,
        split: Option<&str>,
        progress: &dyn Progress,
    ) -> Result<NodeArrays> {
        self.note_others(progress);
        let features = self
            .only("features", &FEATURES)?
            .map(|(numbers, _)| NumbersColumn::new(numbers, "features"));
        let features = features.transpose()?;
        let labels =
            self.only("labels", &LABELS)?.map(|(numbers, _)| NumbersColumn::new(numbers, "labels"));
        let labels = labels.transpose()?;
        let stated = stated.as_ref().map(|(path, n)| (path.as_path(), *n));
        let num_vertices = agreed_rows(stated, [&features, &labels].into_iter().flatten())?;
        let splits = self.splits(num_vertices, first, split, progress)?;
        let dense = features.map(|column| Box::new(column) as Box<dyn Column>);
        let sparse = if dense.is_none() { self.sparse(num_vertices)? } else { None };
        Ok(NodeArrays { num_vertices, features: dense.or(sparse), labels, splits })
    }

    /// Features from a sparse matrix.
    fn sparse(&mut self, num_vertices: Option<u64>) -> Result<Option<Box<dyn Column>>> {
        let [Some(indptr), Some(indices), Some(data), Some(shape)] =
            SPARSE.map(|name| self.get(name).transpose())
        else {
            return Ok(None);
        };
        let column = SparseColumn::new(indptr?, indices?, data?, &few(&shape?)?)?;
        match (column.num_rows(), num_vertices) {
            (Some(rows), Some(n)) if rows != n => Err(Error::input(
                self.path(),
                format!("features have {rows} rows for {n} vertices: expected one each"),
            )),
            _ => Ok(Some(Box::new(column))),
        }
    }

    /// The splits: ids, or masks, of which the first counts unless `--schema split-name` chooses another.
    /// The first row of a mask is the vertex `first`.
    fn splits(
        &mut self,
        num_vertices: Option<u64>,
        first: u64,
        split: Option<&str>,
        progress: &dyn Progress,
    ) -> Result<Option<[Vec<u64>; 3]>> {
        let (mut splits, mut found, mut most) = (None, Vec::new(), 1);
        for (at, names) in SPLITS.iter().enumerate() {
            if let Some((numbers, name)) = self.only("one split", names)? {
                // Some masks are lists of the vertices.
                let is_list = numbers.shape().len() == 1
                    && num_vertices.is_some_and(|n| n != numbers.len())
                    && !numbers.is_bool()
                    && are_distinct(listed(&numbers)?);
                let is_mask = numbers.is_bool() || (name.contains("mask") && !is_list);
                let masks = match is_mask {
                    true => Some(Masks::of(&numbers, num_vertices)?),
                    false => None,
                };
                most = most.max(masks.as_ref().map_or(1, |masks| masks.number));
                found.push((at, numbers, masks));
            }
        }
        let chosen = match split.map(str::parse) {
            Some(Ok(mask)) if mask < most => mask,
            Some(_) if !found.is_empty() => {
                let split = split.unwrap_or_default();
                let problem = format!(
                    "--schema split-name={split}: expected the number of a mask, below {most}"
                );
                return Err(Error::input(self.path(), problem));
            }
            None if most > 1 => {
                let path = self.path().display();
                progress.note(&format!(
                    "note: {path}: has {most} masks for each split; --schema split-name=0 is \
                     taken, the last is --schema split-name={}",
                    most - 1
                ));
                0
            }
            _ => 0,
        };
        if found.is_empty() && self.is_of_reddit() {
            let kinds = self.get(REDDIT_SPLIT)?.map_or(Ok(Vec::new()), |kinds| listed(&kinds))?;
            if let Some(kind) = kinds.iter().find(|kind| !(1..=3).contains(*kind)) {
                let problem = format!("{REDDIT_SPLIT}: {kind}: expected 1, 2 or 3 for the split");
                return Err(Error::input(self.path(), problem));
            }
            let numbered = || (first..).zip(&kinds);
            let split =
                |split| numbered().filter_map(move |(at, &kind)| (kind == split).then_some(at));
            return Ok(Some([1, 2, 3].map(|number| split(number).collect())));
        }
        for (at, numbers, masks) in found {
            splits.get_or_insert_with(<[Vec<u64>; 3]>::default)[at] = match masks {
                // One mask for all values of `--schema split-name`.
                Some(masks) if masks.number == 1 => masks.vertices(&numbers, 0, first)?,
                Some(masks) => masks.vertices(&numbers, chosen, first)?,
                None => listed(&numbers)?,
            };
        }
        Ok(splits)
    }

    /// Whether it is an archive like Reddit's, in which the split of every vertex is a number.
    fn is_of_reddit(&self) -> bool {
        matches!(self, Self::Archive(..)) && self.has("feature") && self.has(REDDIT_SPLIT)
    }

    /// All files that may be read: the archive, or the folder's files with known names.
    fn files(&self) -> Result<Vec<PathBuf>> {
        match self {
            Self::Archive(path, _) | Self::Named(path, _) => Ok(vec![path.clone()]),
            Self::Folder(folder) => Ok(known().filter_map(|name| file_of(folder, name)).collect()),
        }
    }
}

/// The file of the array `name` in `folder`.
fn file_of(folder: &Path, name: &str) -> Option<PathBuf> {
    [".npy", ".pt"].iter().map(|end| folder.join(format!("{name}{end}"))).find(|path| path.exists())
}

/// Name of the array in Reddit's archive with the split of every vertex: 1 for training, 2 for
/// validation, 3 for test.
const REDDIT_SPLIT: &str = "node_types";

/// Further members of sparse matrices of edges.
const SCIPY: [&str; 4] = ["data", "shape", "format", "adj_shape"];

/// The name of the array `name` in the archives of Gasteiger et al. (2019): `adj_matrix.data` for
/// `adj_data`.
fn dotted(name: &str) -> String {
    match name.split_once('_') {
        Some((matrix @ ("adj" | "attr"), part)) => format!("{matrix}_matrix.{part}"),
        _ => name.into(),
    }
}

/// All names of arrays.
fn known() -> impl Iterator<Item = &'static str> {
    let pairs = PAIRS.iter().flat_map(|(names, _)| names).chain(&["adj_data"]);
    let known = INDEX.iter().chain(pairs).chain(&FEATURES).chain(&LABELS).chain(&WEIGHTS);
    known.chain(&EDGE_FEATURES).chain(&SPARSE).chain(SPLITS.into_iter().flatten()).copied()
}

/// Whether an array called `name` is read.
pub fn is_known(name: &str) -> bool {
    known().any(|known| known == name)
}

/// Arrays that come with the vertices.
pub struct NodeArrays {
    /// Number of vertices, if it is stated or there are rows.
    pub num_vertices: Option<u64>,
    /// Feature rows.
    pub features: Option<Box<dyn Column>>,
    /// Labels.
    pub labels: Option<NumbersColumn>,
    /// Training, validation and test vertices.
    pub splits: Option<[Vec<u64>; 3]>,
}

impl NodeArrays {
    fn attach(self, raw: &mut Raw) {
        // The input's own arrays are kept where there are no others.
        if let Some(column) = self.features {
            raw.features = Some(column);
        }
        if let Some(column) = self.labels {
            raw.labels = Some(Box::new(column));
        }
        raw.splits = self.splits.or(raw.splits.take());
    }
}

/// The number of vertices, which the number of rows of every column, and `known`, must equal.
pub fn agreed_rows<'a>(
    known: Option<(&'a Path, u64)>,
    columns: impl IntoIterator<Item = &'a NumbersColumn>,
) -> Result<Option<u64>> {
    let mut agreed = known;
    for column in columns {
        let Some(rows) = column.num_rows() else { continue };
        match agreed {
            Some((other, n)) if n != rows => {
                let problem = format!(
                    "{} has {rows} rows for {n} vertices ({})",
                    column.name(),
                    other.display()
                );
                return Err(Error::input(column.path(), format!("{problem}: expected one each")));
            }
            _ => agreed = Some((column.path(), rows)),
        }
    }
    Ok(agreed.map(|(_, n)| n))
}

fn are_distinct(mut ids: Vec<u64>) -> bool {
    ids.sort_unstable();
    ids.windows(2).all(|pair| pair[0] != pair[1])
}

/// The ids in an array (k,) or (k, 1), or the one in an array ().
pub fn listed(numbers: &Numbers) -> Result<Vec<u64>> {
    if !matches!(numbers.shape(), [] | [_] | [_, 1]) {
        return Err(
            numbers.error(format!("shape {:?}: expected one dimension of ids", numbers.shape()))
        );
    }
    let mut ids = Vec::with_capacity(numbers.len() as usize);
    numbers.for_steps(|first, bytes| {
        let decoded = numbers.dtype().ids(bytes, &mut ids);
        decoded.map_err(|(at, problem)| numbers.error(format!("entry {}: {problem}", first + at)))
    })?;
    Ok(ids)
}

/// The numbers of a short array: a shape, or a count.
pub fn few(numbers: &Numbers) -> Result<Vec<u64>> {
    const MOST: u64 = 16;
    match numbers.len() {
        0..=MOST => listed(numbers),
        found => Err(numbers.error(format!("{found} numbers: expected {MOST} at most"))),
    }
}

/// Masks in one array.
struct Masks {
    num_vertices: u64,
    number: u64,
    /// Whether the masks of one vertex are contiguous.
    by_row: bool,
}

impl Masks {
    /// The masks in `numbers`.
    fn of(numbers: &Numbers, num_vertices: Option<u64>) -> Result<Self> {
        let n = num_vertices.unwrap_or(numbers.shape().iter().copied().max().unwrap_or(0));
        let (number, by_row) = match *numbers.shape() {
            [length] if length == n => (1, true),
            [rows, columns] if rows == n => (columns, !numbers.column_major()),
            [rows, columns] if columns == n => (rows, numbers.column_major()),
            ref shape => {
                return Err(numbers.error(format!(
                    "shape {shape:?}: expected a mask of {n} vertices, or k of them"
                )));
            }
        };
        if !numbers.dtype().is_integer() {
            return Err(numbers.error(format!("type {}: expected bools", numbers.dtype().descr())));
        }
        Ok(Self { num_vertices: n, number, by_row })
    }

    /// The positions where mask `chosen` is not zero, counted from `start`.
    fn vertices(&self, numbers: &Numbers, chosen: u64, start: u64) -> Result<Vec<u64>> {
        let (n, masks) = (self.num_vertices, self.number);
        let size = numbers.dtype().bytes();
        let mut vertices = Vec::new();
        numbers.for_steps(|first, bytes| {
            for (at, number) in (first..).zip(bytes.chunks_exact(size)) {
                let (vertex, of) =
                    if self.by_row { (at / masks, at % masks) } else { (at % n, at / n) };
                if of == chosen && number.iter().any(|&byte| byte != 0) {
                    vertices.push(start + vertex);
                }
            }
            Ok(())
        })?;
        Ok(vertices)
    }
}
