//! Planetoid's files (Yang et al., ICML 2016), e.g. of Cora, CiteSeer and PubMed: pickles, read
//! without executing them.
//!
//! ```text
//! DIR/ind.NAME.graph        {vertex: [neighbour, ...], ...}
//! DIR/ind.NAME.allx, .tx    features (CSR) of the vertices from 0 on, and of the vertices in test.index
//! DIR/ind.NAME.ally, .ty    their classes, one-hot
//! DIR/ind.NAME.y            as many rows as there are training vertices, from 0 on; the next 500 are for validation
//! DIR/ind.NAME.test.index   one vertex per line
//! ```
//! Vertices without a row, which CiteSeer has, have no features and no class. `x` is a part of
//! `allx`, and is not read. The graph and the classes are held in memory, as their pickles are.

use std::path::{Path, PathBuf};

use gsplit_store::Progress;

use crate::edges::{EdgeBatch, EdgeSource};
use crate::read::arrays::numbers::Numbers;
use crate::read::arrays::pickle::{Item, Pickled};
use crate::read::arrays::sparse::{SparseColumn, floats};
use crate::read::arrays::webgraph::with_extension;
use crate::read::listed::Listed;
use crate::read::options::Schema;
use crate::read::raw::{Column, Ids, Raw, check_size, describe_column};
use crate::read::text::listed_numbers;
use crate::{Error, Result};

/// Number of vertices for validation.
const VALID: u64 = 500;

/// Whether `path` is a folder with `ind.NAME.graph`.
pub fn recognises(path: &Path, _head: &[u8]) -> bool {
    name_in(path).is_some()
}

/// The part of the files' names before their endings, `DIR/ind.NAME`.
fn name_in(path: &Path) -> Option<PathBuf> {
    let is_graph = |name: &[u8]| name.starts_with(b"ind.") && name.ends_with(b".graph");
    let mut paths = gsplit_store::entries(path).ok()?.into_iter();
    Some(
        paths
            .find(|path| path.file_name().is_some_and(|name| is_graph(name.as_encoded_bytes())))?
            .with_extension(""),
    )
}

/// Opens the folder at `path`, which cannot have edge columns.
pub fn open(path: &Path, schema: &Schema, progress: &dyn Progress) -> Result<Raw> {
    let name = name_in(path).ok_or_else(|| Error::input(path, "expected ind.NAME.graph in it"))?;
    let file = |end: &str| with_extension(&name, end);
    let edges = graph(&file("graph"))?;
    schema.check_edge_columns(path, edges.columns())?;
    let (all, tested) = (matrix(&file("allx"))?, matrix(&file("tx"))?);
    let (known, found) = (all.num_rows().unwrap_or(0), tested.num_rows().unwrap_or(0));
    let test = listed_numbers(&file("test.index"), u32::MAX.into(), progress)?;
    if found != test.len() as u64 || all.width() != tested.width() {
        let (rows, lines, widths) = (found, test.len(), [all.width(), tested.width()]);
        let problem = format!(
            "{rows} rows for {lines} lines of test.index, of {widths:?} features: they must match"
        );
        return Err(Error::input(file("tx"), problem));
    }
    let mut order: Vec<u64> = (0..known).chain(test.iter().copied()).collect();
    let largest = order.iter().chain(&edges.edges.sources).chain(&edges.edges.targets).max();
    let num_vertices = largest.map_or(0, |&largest| largest.saturating_add(1));
    check_size(
        &file("graph"),
        usize::try_from(num_vertices).unwrap_or(usize::MAX),
        edges.edges.len() as u64,
    )?;
    let mut seen = vec![false; num_vertices as usize];
    order.iter().for_each(|&vertex| seen[vertex as usize] = true);
    let rows = order.len();
    order.extend((0..num_vertices).filter(|&vertex| !seen[vertex as usize]));
    let zeros = order.len() - rows;
    if zeros > 0 {
        progress.note(&format!(
            "note: {}: {zeros} of {num_vertices} vertices have no features: they get zeros, and no \
             class",
            path.display()
        ));
    }
    let mut labels = classes(&file("ally"))?;
    labels.extend(classes(&file("ty"))?);
    if labels.len() != rows {
        let problem = format!(
            "{} classes with those of ty, for {rows} rows of features: expected one each",
            labels.len()
        );
        return Err(Error::input(file("ally"), problem));
    }
    labels.resize(order.len(), -1);
    let train = classes(&file("y"))?.len() as u64;
    let files = ["graph", "allx", "tx", "ally", "ty", "y", "test.index"].map(file).to_vec();
    let mut raw = Raw::of(edges, Ids::Dense(Some(num_vertices)), files);
    raw.node_ids = Some(Box::new(Listed::vertices(order)));
    raw.features = Some(Box::new(Stacked { parts: [all, tested], zeros }));
    raw.labels = Some(Box::new(Classes { path: file("ally"), labels }));
    raw.splits = Some([(0..train).collect(), (train..train + VALID).collect(), test]);
    Ok(raw)
}

/// The edges of the dict of lists at `path`.
fn graph(path: &Path) -> Result<Listed> {
    let pickled = Pickled::open(path)?;
    let wrong = |what: &str| {
        Error::input(path, format!("found {what}: expected {{vertex: [vertex, ...], ...}}"))
    };
    let vertex = |item: Item<'_>| {
        item.int().and_then(|id| u64::try_from(id).ok()).ok_or_else(|| wrong(item.what()))
    };
    let root = pickled.root();
    let lists = root.pairs().ok_or_else(|| wrong(root.what()))?;
    let mut edges = EdgeBatch::default();
    for (source, list) in lists {
        let source = vertex(source)?;
        for target in list.list().ok_or_else(|| wrong(list.what()))? {
            edges.push(source, vertex(target)?);
        }
    }
    Ok(Listed::new(edges, Vec::new(), false))
}

fn array(pickled: &Pickled, item: Option<Item<'_>>, name: &str) -> Result<Numbers> {
    let found = item.map(|item| item.numbers(name)).transpose()?.flatten();
    found.ok_or_else(|| Error::input(pickled.path(), format!("expected an array {name} in it")))
}

/// The CSR matrix at `path`.
fn matrix(path: &Path) -> Result<SparseColumn> {
    let pickled = Pickled::open(path)?;
    let root = pickled.root();
    let of = |name: &str| array(&pickled, root.get(name), name);
    let shape = root.get("_shape").or(root.get("shape")).and_then(Item::list);
    let shape: Option<Vec<u64>> = shape.and_then(|all| {
        all.into_iter().map(|item| item.int().and_then(|n| u64::try_from(n).ok())).collect()
    });
    let shape = shape.ok_or_else(|| Error::input(path, "expected a csr_matrix with its shape"))?;
    SparseColumn::new(of("indptr")?, of("indices")?, of("data")?, &shape)
}

/// The class of every row of the one-hot array at `path`; -1 for a row of zeros.
fn classes(path: &Path) -> Result<Vec<i64>> {
    let pickled = Pickled::open(path)?;
    let numbers = array(&pickled, Some(pickled.root()), "of classes")?;
    let (_, width) = numbers.rows()?;
    let values = floats(&numbers)?;
    let class =
        |row: &[f32]| row.iter().position(|&value| value == 1.0).map_or(-1, |class| class as i64);
    Ok(values.chunks_exact(width.max(1)).map(class).collect())
}

/// Rows of the two matrices in sequence, followed by rows of zeros.
struct Stacked {
    parts: [SparseColumn; 2],
    zeros: usize,
}

impl Column for Stacked {
    describe_column!(self:
        self.parts[0].path(),
        "features",
        "<f4",
        self.parts[0].width(),
        Some(self.parts.iter().filter_map(Column::num_rows).sum::<u64>() + self.zeros as u64)
    );

    fn read(
        &self,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.parts.iter().try_for_each(|part| part.read(progress, take))?;
        let zeros = vec![0; 4 * self.width()];
        (0..self.zeros).try_for_each(|_| take(&zeros))
    }
}

/// The class of every row.
struct Classes {
    path: PathBuf,
    labels: Vec<i64>,
}

impl Column for Classes {
    describe_column!(self: &self.path, "labels", "<i8", 1, Some(self.labels.len() as u64));

    fn read(
        &self,
        _progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        take(bytemuck::cast_slice(&self.labels))
    }
}

#[cfg(test)]
mod tests {
    use gsplit_store::{NoProgress, Notes};

    use super::*;
    use crate::read::golden::{numbers, problem, read_edges, real};

    fn read(path: &Path) -> Result<Raw> {
        open(path, &Schema::default(), &NoProgress)
    }

    #[test]
    fn real_citations() {
        for (name, vertices, entries, features, classes, test, unknown) in
            [("cora", 2708, 10_858, 1433, 7, 1000, 0), ("citeseer", 3327, 9464, 3703, 6, 1000, 15)]
        {
            let Some(path) = real(&format!("planetoid-{name}")) else { continue };
            assert!(recognises(&path, &[]));
            let notes = Notes::default();
            let raw = open(&path, &Schema::default(), &notes).unwrap();
            let note = format!("{unknown} of {vertices} vertices have no features");
            assert_eq!(notes.lines().join("").contains(&note), unknown > 0);
            assert_eq!(raw.ids, Ids::Dense(Some(vertices)));
            let (edges, _) = read_edges(&*raw.edges).unwrap();
            assert_eq!(edges.len(), entries, "{name}");
            let (found, labels) = (raw.features.unwrap(), numbers(&*raw.labels.unwrap()));
            assert_eq!((found.width(), found.num_rows()), (features, Some(vertices)));
            assert!(numbers(&*found).iter().all(|&value| value == 0.0 || value == 1.0));
            assert_eq!(labels.iter().filter(|&&label| label < 0.0).count(), unknown);
            assert!(labels.iter().all(|&label| label < f64::from(classes)));
            assert_eq!(
                raw.splits.unwrap().map(|split| split.len()),
                [20 * classes as usize, 500, test]
            );
        }
    }

    #[test]
    fn damaged_files_are_named() {
        let Some(path) = real("planetoid-cora") else { return };
        let ends = ["graph", "allx", "tx", "ally", "ty", "y", "test.index"];
        let copied = |folder: &tempfile::TempDir| {
            ends.iter().for_each(|end| {
                let name = format!("ind.cora.{end}");
                std::fs::copy(path.join(&name), folder.path().join(name)).unwrap();
            });
        };
        for end in ends {
            for cut in [0, 100, 2000] {
                let folder = tempfile::tempdir().unwrap();
                copied(&folder);
                let file = folder.path().join(format!("ind.cora.{end}"));
                let bytes = std::fs::read(&file).unwrap();
                std::fs::write(&file, &bytes[..cut]).unwrap();
                let message = problem(read(folder.path()));
                assert_eq!(message.lines().count(), 1, "{message}");
                assert!(message.contains("ind.cora.") && !message.contains('\u{0}'), "{message}");
            }
        }
        // A pickle of a call, not of an array.
        let folder = tempfile::tempdir().unwrap();
        copied(&folder);
        std::fs::write(folder.path().join("ind.cora.y"), b"\x80\x02cposix\nsystem\nU\x02ls\x85R.")
            .unwrap();
        let message = problem(read(folder.path()));
        assert!(
            message.contains("ind.cora.y: posix.system, which this reader does not run"),
            "{message}"
        );
    }
}
