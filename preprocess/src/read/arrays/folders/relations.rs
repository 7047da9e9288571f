//! Folders of arrays by type of vertices and by relation: MAG240M (OGB-LSC, Hu et al., 2021), IGB
//! (the Illinois Graph Benchmark, Khatua et al., KDD 2023), and a `HeteroData` from Python.
//!
//! ```text
//! SOURCE___NAME___TARGET/edge_index.npy  a relation: (2, E) integers, sources and then targets
//! SOURCE__NAME__TARGET/edge_index.npy    IGB: (E, 2), source and target of an edge
//! TYPE/node_feat.npy                     (n, d) numbers
//! TYPE/node_label.npy                    (n,) numbers, NaN or negative for unlabelled
//! TYPE/{train,valid,test}.npy            ids, or masks
//! TYPE/num_nodes.npy                     one number
//! TYPE/node_NAME.npy                     (n,) or (n, d) numbers: become the node column NAME
//! meta.pt                                MAG240M: a dict, the number of vertices of each type
//! split_dict.pt                          MAG240M: a dict, ids of the type with labels
//! ```
//! All except the last two may be in `processed`. Features, labels and splits may have any name
//! that [`catalog`](crate::read::arrays::catalog) lists. (2, E) and (E, 2) are distinguished by the
//! shape, and for two edges by the name of the relation. `node_label_19` holds IGB's labels, and
//! `node_label_2K` becomes the node column `label_2K`, or the labels without `node_label_19`.
//!
//! The rows of a type, `num_nodes.npy` and `meta.pt` give its number of vertices, and must agree.
//! Without any of them, the largest id gives it, after a pass over the edges. A graph of one type
//! and one relation is read as a graph without types.
//!
//! Some files of IGB-large and IGB-full have no `.npy` header: they are raw little-endian f32, one
//! label or 1024 features per vertex, which the length of the file must match.
//!
//! IGB has no split: its loader draws 60 % of the vertices for training, 20 % for validation, the
//! rest for test. MAG240M's `split_dict.pt` lists papers of arXiv only; of its test splits
//! `--schema split-name` chooses one [test-dev].

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use gsplit_store::{GraphTypes, Progress, Relation, VertexType, open_file};

use crate::edges::for_each_batch;
use crate::read::arrays::catalog::{Catalog, agreed_rows, few, is_known, listed};
use crate::read::arrays::edges::ArrayEdges;
use crate::read::arrays::numbers::{Dtype, Numbers, NumbersColumn};
use crate::read::arrays::pickle::Pickled;
use crate::read::options::ReadOptions;
use crate::read::raw::{Ids, Raw};
use crate::read::text::{name_of, some};
use crate::read::typed::{self, RawRelation, RawType};
use crate::{Error, Result};

const EDGES: &str = "edge_index.npy";
/// Name of the array with the number of vertices of a type.
const COUNT: &str = "num_nodes";
/// Features per vertex, in files without a header.
const WIDTH: u64 = 1024;

/// A folder of edges.
struct Folder {
    path: PathBuf,
    relation: Relation,
    /// Whether the name is one of IGB's, with `__`.
    of_igb: bool,
}

impl Folder {
    /// The relation in the folder `path`, if it is one.
    fn of(path: &Path) -> Option<Self> {
        let name = name_of(path);
        let of_igb = !name.contains("___");
        let ends = name.split(if of_igb { "__" } else { "___" }).map(String::from);
        let [source, name, target] = ends.collect::<Vec<_>>().try_into().ok()?;
        let relation = Relation { source, name, target };
        path.join(EDGES).is_file().then(|| Self { path: path.to_path_buf(), relation, of_igb })
    }
}

/// Whether `path` is a folder with relations.
pub fn recognises(path: &Path) -> bool {
    root(path).is_some()
}

/// The folder of the relations: `processed` in `path`, or `path` itself.
fn root(path: &Path) -> Option<PathBuf> {
    let has_relation = |folder: &PathBuf| {
        let entries = gsplit_store::entries(folder).unwrap_or_default();
        entries.iter().any(|entry| Folder::of(entry).is_some())
    };
    [path.join("processed"), path.to_path_buf()].into_iter().find(has_relation)
}

/// Opens the folder at `path`, which cannot have edge columns.
pub fn open(
    path: &Path,
    options: &ReadOptions,
    with_splits: bool,
    progress: &dyn Progress,
) -> Result<Raw> {
    let (split, shown) = (options.schema.split_name.as_deref(), path.display());
    options.schema.check_edge_columns(path, &[])?;
    let root = root(path).ok_or_else(|| {
        let problem = format!("expected folders SOURCE___NAME___TARGET in it, with {EDGES}");
        Error::input(path, problem)
    })?;
    let mut entries = gsplit_store::entries(&root).map_err(Error::io(&root))?;
    entries.retain(|entry| entry.is_dir());
    entries.sort();
    let folders: Vec<Folder> = entries.iter().filter_map(|entry| Folder::of(entry)).collect();
    let relations: Vec<Relation> = folders.iter().map(|of| of.relation.clone()).collect();
    let ends: BTreeSet<String> =
        relations.iter().flat_map(|of| [&of.source, &of.target]).cloned().collect();
    let unread = entries.iter().filter(|entry| Folder::of(entry).is_none());
    let names: BTreeSet<String> =
        unread.map(|entry| name_of(entry)).chain(ends.iter().cloned()).collect();
    // Their number bounds the files that are open.
    let known = ends.iter().map(|name| VertexType { name: name.clone(), count: 0, features: None });
    let types = GraphTypes { vertices: known.collect(), relations };
    types.check().map_err(|problem| Error::input(path, problem))?;

    let of_igb = folders.iter().any(|folder| folder.of_igb);
    let base = root.parent().filter(|_| root.ends_with("processed")).unwrap_or(&root);
    let [meta, dict] = ["meta.pt", "split_dict.pt"].map(|name| base.join(name));
    let counts = meta.is_file().then(|| Pickled::open(&meta)).transpose()?;
    let mut files: Vec<PathBuf> = counts.iter().map(|_| meta.clone()).collect();
    let (mut types, mut unknown, mut others) = (Vec::new(), BTreeMap::new(), Vec::new());
    for name in names {
        let stated = counts.as_ref().and_then(|counts| counts.root().get(&name)?.int());
        let stated = stated.map(|count| (meta.clone(), count as u64));
        let (mut of, count, read) = vertices(&root.join(&name), of_igb, stated, split, progress)?;
        if read.is_empty() && !ends.contains(&name) {
            others.push(name);
            continue;
        }
        if count.is_none() && counts.is_some() {
            let problem = format!(
                "no number of vertices of `{name}`: expected it here, or in {name}/num_nodes.npy"
            );
            return Err(Error::input(&meta, problem));
        }
        unknown.extend(count.is_none().then(|| (name.clone(), 0)));
        files.extend(read);
        of.splits.take_if(|_| !with_splits);
        types.push(RawType { name, ..of });
    }
    let mut relations = Vec::new();
    for Folder { path: folder, relation, of_igb } in folders {
        let path = folder.join(EDGES);
        let edges = ArrayEdges::index_by(Numbers::open(&path)?, of_igb)?;
        let entries = gsplit_store::entries(&folder).map_err(Error::io(&folder))?;
        let further = entries.into_iter().filter(|entry| *entry != path && is_array(entry));
        others.extend(further.map(|entry| format!("{relation}/{}", name_of(&entry))));
        files.push(path.clone());
        relations.push((relation, edges, path));
    }
    if !others.is_empty() {
        progress.note(&format!("note: {shown}: not read: {}", some(&others)));
    }
    if dict.is_file() && with_splits && types.iter().all(|of| of.splits.is_none()) {
        let only = types.len() == 1;
        let of = types.iter_mut().find(|of| only || of.labels.is_some()).ok_or_else(|| {
            Error::input(&dict, "splits of the type with labels: expected TYPE/node_label.npy")
        })?;
        of.splits = Some((dict.clone(), listed_splits(&dict, split, progress)?));
        files.push(dict);
    }
    if types.iter().all(|of| of.splits.is_none()) {
        progress.note(&format!("{shown}: no split is read; --random-split draws one"));
    }
    if types.len() == 1 && relations.len() == 1 {
        let relation = &relations[0].0;
        progress.decide(&format!("{shown}: one relation, {relation}: a graph without types"));
        let (of, (_, edges, _)) = (types.remove(0), relations.remove(0));
        let count = unknown.is_empty().then_some(of.count);
        let edges = if let Some(count) = count { edges.within(count) } else { edges };
        return Ok(Raw {
            features: of.features,
            labels: of.labels,
            columns: of.columns,
            splits: of.splits.map(|(_, lists)| lists),
            ..Raw::of(edges, Ids::Dense(count), files)
        });
    }
    for (relation, edges, _) in &relations {
        let ends = [&relation.source, &relation.target];
        if ends.iter().any(|end| unknown.contains_key(*end)) {
            for_each_batch(edges, |batch| {
                for (end, ids) in ends.into_iter().zip([&batch.sources, &batch.targets]) {
                    let count = ids.iter().max().map_or(0, |most| most + 1);
                    unknown.entry(end.clone()).and_modify(|of| *of = count.max(*of));
                }
                Ok(())
            })?;
        }
    }
    for of in &mut types {
        of.count = unknown.get(&of.name).copied().unwrap_or(of.count);
    }
    if !unknown.is_empty() {
        let unknown: Vec<String> = unknown.into_keys().collect();
        progress.decide(&format!(
            "note: {shown}: the largest id gives the number of vertices of {}; TYPE/num_nodes.npy \
             states it",
            some(&unknown)
        ));
    }
    let relations = relations.into_iter().map(|(relation, edges, path)| {
        RawRelation::of(relation, edges, path, options.edges.symmetrise)
    });
    typed::of(path, types, relations.collect(), options.edges, files)
}

/// The vertices of the type in `folder`, without its name; their number, which a file may have
/// `stated`; and the files that are read.
fn vertices(
    folder: &Path,
    of_igb: bool,
    stated: Option<(PathBuf, u64)>,
    split: Option<&str>,
    progress: &dyn Progress,
) -> Result<(RawType, Option<u64>, Vec<PathBuf>)> {
    let (mut arrays, mut columns, mut files) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let mut entries = match folder.is_dir() {
        true => gsplit_store::entries(folder).map_err(Error::io(folder))?,
        false => Vec::new(),
    };
    entries.sort();
    for path in entries.into_iter().filter(|entry| is_array(entry)) {
        let name = name_of(&path);
        let name = name.trim_end_matches(".npy");
        let (to, name) = match name.strip_prefix("node_") {
            _ if name == COUNT || is_known(name) => (&mut arrays, name),
            Some(name) => (&mut columns, name),
            None => continue,
        };
        let width = if name == "node_feat" { WIDTH } else { 1 };
        let array = if of_igb { numbers(&path, width)? } else { Numbers::open(&path)? };
        to.insert(name.to_string(), array);
        files.push(path);
    }
    if of_igb && !arrays.contains_key("node_label_19") {
        arrays.extend(columns.remove("label_2K").map(|labels| ("label".into(), labels)));
    }
    let mut counted = None;
    if let Some(array) = arrays.remove(COUNT) {
        let [count] = few(&array)?[..] else {
            return Err(array.error("expected one number, the number of vertices"));
        };
        if let Some((meta, other)) = stated.as_ref().filter(|(_, other)| *other != count) {
            let problem = format!("{count} vertices, and {other} in {}", meta.display());
            return Err(array.error(format!("{problem}: expected the same")));
        }
        counted = Some((array.path().to_path_buf(), count));
    }
    let stated = counted.or(stated);
    let rows =
        Catalog::Named(folder.to_path_buf(), arrays).rows(stated.clone(), 0, split, progress)?;
    let columns = columns.into_iter().map(|(name, array)| NumbersColumn::new(array, &name));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let place = stated.as_ref().map_or(folder, |(path, _)| path);
    let count = agreed_rows(rows.num_vertices.map(|count| (place, count)), &columns)?;
    let of = RawType {
        name: String::new(),
        count: count.unwrap_or_default(),
        features: rows.features,
        labels: rows.labels.map(|labels| Box::new(labels) as _),
        columns: columns.into_iter().map(|column| Box::new(column) as _).collect(),
        splits: rows.splits.map(|lists| (folder.to_path_buf(), lists)),
    };
    Ok((of, count, files))
}

fn is_array(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "npy")
}

/// The splits of MAG240M in the dict at `path`: train, valid, and the one called `test`, or else
/// test-dev.
fn listed_splits(
    path: &Path,
    test: Option<&str>,
    progress: &dyn Progress,
) -> Result<[Vec<u64>; 3]> {
    let file = Pickled::open(path)?;
    let entries = file.root().entries().unwrap_or_default();
    let mut tests: Vec<String> = entries.iter().map(|(name, _)| name.to_string()).collect();
    tests.retain(|name| name.starts_with("test"));
    let usual = || tests.iter().find(|name| *name == "test-dev").or(tests.first());
    let test = test.or(usual().map(String::as_str)).unwrap_or("test");
    if !tests.iter().any(|name| name == test) {
        let found = some(&tests);
        return Err(Error::Option(format!(
            "--schema split-name={test}: expected a test split of {}, found {found}",
            path.display()
        )));
    }
    let mut splits = <[Vec<u64>; 3]>::default();
    for (name, ids) in ["train", "valid", test].into_iter().zip(&mut splits) {
        let found = file.root().get(name).map(|item| item.numbers(name)).transpose()?.flatten();
        let numbers = found.ok_or_else(|| {
            Error::input(path, format!("{name}: expected an array of vertices: download it again"))
        })?;
        *ids = listed(&numbers)?;
    }
    if tests.len() > 1 {
        let path = path.display();
        progress.note(&format!(
            "note: {path}: the test split is {test}; --schema split-name chooses another of {}",
            some(&tests)
        ));
    }
    Ok(splits)
}

/// The array at `path`: with a header, or raw f32 in rows of `width`.
fn numbers(path: &Path, width: u64) -> Result<Numbers> {
    let mut head = Vec::new();
    let file = open_file(path).map_err(Error::io(path))?;
    file.take(6).read_to_end(&mut head).map_err(Error::io(path))?;
    if head == b"\x93NUMPY" {
        Numbers::open(path)
    } else {
        Numbers::headerless(path, Dtype::F4, width)
    }
}

#[cfg(test)]
mod tests {
    use gsplit_store::{NoProgress, Notes};

    use super::*;
    use crate::read::golden::{self, Part::*, *};

    fn read(path: &Path) -> Result<Raw> {
        open(path, &ReadOptions::default(), true, &NoProgress)
    }

    #[test]
    fn golden_input_with_headers() {
        for path in [data("igb"), data("igb/processed")] {
            assert!(recognises(&path));
            let notes = Notes::default();
            let raw = open(&path, &ReadOptions::default(), true, &notes).unwrap();
            check(&raw, &[Vertices, Features, Labels]);
            assert_eq!(raw.columns.len(), 1);
            assert_eq!(
                (raw.columns[0].name(), golden::numbers(&*raw.columns[0])[3]),
                ("label_2K", 102.0)
            );
            assert!(notes.lines()[0].contains("--random-split"));
            assert!(notes.lines()[1].contains("paper/cites/paper: a graph without types"));
        }
    }

    #[test]
    fn lengths_that_do_not_fit() {
        let table: &[(&str, usize, &str)] = &[
            (
                "paper/node_feat.npy",
                24_575,
                "24575 bytes without a .npy header: expected rows of 1024 <f4",
            ),
            ("paper/node_feat.npy", 20_480, "labels has 6 rows for 5 vertices"),
            ("paper/node_label_19.npy", 23, "23 bytes without"),
            ("paper/node_label_19.npy", 20, "labels has 5 rows for 6 vertices"),
            ("paper__cites__paper/edge_index.npy", 200, "truncated"),
        ];
        for (name, length, part) in table {
            let folder = copy("igb-raw");
            let path = folder.path().join(name);
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(&path, &bytes[..*length]).unwrap();
            let message = problem(read(folder.path()));
            assert!(message.contains(part) && message.contains(name), "{message}");
        }
        let folder = copy("igb-raw");
        for name in ["node_feat.npy", "node_label_19.npy"] {
            std::fs::remove_file(folder.path().join("paper").join(name)).unwrap();
        }
        check(&read(folder.path()).unwrap(), &[]);
    }

    #[test]
    fn golden_input_of_mag240m() {
        let folder = copy("mag240m");
        for path in [folder.path().to_path_buf(), folder.path().join("processed")] {
            let raw = read(&path).unwrap();
            check(&raw, &[Vertices, Features, Labels]);
            assert_eq!(raw.features.as_ref().unwrap().descr(), "<f2");
            assert_eq!((raw.columns[0].name(), raw.columns[0].descr()), ("year", "<i4"));
            assert_eq!(
                golden::numbers(&*raw.columns[0]),
                [2010.0, 2011.0, 2012.0, 2013.0, 2014.0, 2015.0]
            );
        }
    }

    #[test]
    fn files_that_disagree() {
        let folder = copy("mag240m");
        let path = folder.path().join("processed/paper/node_year.npy");
        std::fs::write(&path, npy("<i8", false, "(2,)", &i64s(&[2010, 2011]))).unwrap();
        let message = problem(read(folder.path()));
        assert!(message.contains("node_year.npy: year has 2 rows for 6 vertices"), "{message}");
    }
}
