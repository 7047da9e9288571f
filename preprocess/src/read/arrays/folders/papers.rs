//! Papers and their citations, as two benchmarks publish them: IGB, the Illinois Graph Benchmark
//! (Khatua et al., KDD 2023), homogeneous, and MAG240M (OGB-LSC, Hu et al., 2021).
//!
//! ```text
//! DIR[/processed]/paper__cites__paper/edge_index.npy    IGB: (E, 2) integers, source and target of an edge
//! DIR[/processed]/paper___cites___paper/edge_index.npy  MAG240M: (2, E) i64: citing papers, then cited ones
//! DIR[/processed]/paper/node_feat.npy                   (n, 1024) f32, or (n, 768) f16
//! DIR[/processed]/paper/node_label_19.npy               IGB: (n,) f32, NaN or -1 for unlabelled
//! DIR[/processed]/paper/node_label_2K.npy               IGB: the same with 2983 classes
//! DIR[/processed]/paper/node_label.npy                  MAG240M: (n,) float, NaN for unlabelled
//! DIR[/processed]/paper/node_year.npy                   MAG240M: (n,) integers: becomes the node column `year`
//! ```
//! `node_label_19` holds the labels, and `node_label_2K` becomes the node column `label_2K`, or the
//! labels if there is no `node_label_19`. Other types of vertices and of edges, such as authors and
//! institutions, are not read: a note names them.
//!
//! The files of IGB-large and IGB-full in `paper/` have no `.npy` header: they are raw
//! little-endian f32, one label or 1024 features per vertex, which the length of the file must
//! match. If there are both features and labels, they must have the same number of vertices.
//!
//! IGB has no split: its loader takes the first 60 % of the vertices for training, 20 % for
//! validation, the rest for test. MAG240M's `split_dict.pt` lists papers of arXiv only; of its test
//! splits `--schema split-name` chooses one [test-dev].

use std::io::Read;
use std::path::{Path, PathBuf};

use gsplit_store::{Progress, open_file};

use crate::edges::EdgeSource;
use crate::read::arrays::catalog::{agreed_rows, listed, with_columns};
use crate::read::arrays::edges::ArrayEdges;
use crate::read::arrays::numbers::{Dtype, Numbers, NumbersColumn};
use crate::read::arrays::pickle::Pickled;
use crate::read::options::Schema;
use crate::read::raw::Raw;
use crate::read::text::{name_of, some};
use crate::{Error, Result};

/// Names of the files of a benchmark.
pub struct Papers {
    edges: &'static str,
    labels: &'static str,
    /// A further column: its file and its name.
    further: (&'static str, &'static str),
}

/// IGB's names.
pub const IGB: Papers = Papers {
    edges: "paper__cites__paper/edge_index.npy",
    labels: "node_label_19.npy",
    further: ("node_label_2K.npy", "label_2K"),
};

/// MAG240M's names.
pub const MAG240M: Papers = Papers {
    edges: "paper___cites___paper/edge_index.npy",
    labels: "node_label.npy",
    further: ("node_year.npy", "year"),
};

/// Features per vertex, in files without a header.
const WIDTH: u64 = 1024;

impl Papers {
    /// Whether `path` is a folder with these citations.
    pub fn recognises(&self, path: &Path) -> bool {
        self.root(path).join(self.edges).is_file()
    }

    /// Opens the folder at `path`, which cannot have edge columns.
    pub fn open(
        &self,
        path: &Path,
        schema: &Schema,
        split: Option<&str>,
        with_splits: bool,
        progress: &dyn Progress,
    ) -> Result<Raw> {
        let root = self.root(path);
        let edge_file = root.join(self.edges);
        let edges = ArrayEdges::index(Numbers::open(&edge_file)?)?;
        schema.check_edge_columns(path, edges.columns())?;
        let mut files = vec![edge_file];
        let mut column = |file: &str, name: &str, width: u64| -> Result<Option<NumbersColumn>> {
            let path = root.join("paper").join(file);
            if !path.exists() {
                return Ok(None);
            }
            let column = NumbersColumn::new(numbers(&path, width)?, name)?;
            files.push(path);
            Ok(Some(column))
        };
        let features = column("node_feat.npy", "features", WIDTH)?;
        let mut labels = column(self.labels, "labels", 1)?;
        let (file, name) = self.further;
        let mut further = column(file, name, 1)?;
        if labels.is_none() && file == IGB.further.0 {
            labels = further.take();
        }
        let num_vertices = agreed_rows(None, [&features, &labels, &further].into_iter().flatten())?;
        let edges_folder = Path::new(self.edges).parent();
        let is_other = |entry: &PathBuf| {
            let name = entry.strip_prefix(&root).unwrap_or(entry);
            entry.is_dir() && name != Path::new("paper") && Some(name) != edges_folder
        };
        let entries = gsplit_store::entries(&root).map_err(Error::io(&root))?;
        let others: Vec<String> =
            entries.iter().filter(|entry| is_other(entry)).map(|entry| name_of(entry)).collect();
        if !others.is_empty() {
            progress.note(&format!(
                "note: {}: not read: {}: gsplit reads papers and their citations",
                path.display(),
                some(&others)
            ));
        }
        let mut raw = with_columns(edges, num_vertices, files, [features, labels, further]);
        let dict = path.join("split_dict.pt");
        match dict.is_file() && with_splits {
            true => {
                raw.splits = Some(splits(&dict, split, progress)?);
                raw.files.push(dict);
            }
            false => progress
                .note(&format!("{}: no split is read; --random-split draws one", path.display())),
        }
        Ok(raw)
    }

    /// The folder itself, or `processed` in it.
    fn root(&self, path: &Path) -> PathBuf {
        let processed = path.join("processed");
        if processed.join(self.edges).exists() { processed } else { path.to_path_buf() }
    }
}

/// The splits of MAG240M in the dict at `path`: train, valid, and the one called `test`, or else
/// test-dev.
fn splits(path: &Path, test: Option<&str>, progress: &dyn Progress) -> Result<[Vec<u64>; 3]> {
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
        IGB.open(path, &Schema::default(), None, true, &NoProgress)
    }

    #[test]
    fn golden_input_with_headers() {
        for path in [data("igb"), data("igb/processed")] {
            assert!(IGB.recognises(&path));
            let notes = Notes::default();
            let raw = IGB.open(&path, &Schema::default(), None, true, &notes).unwrap();
            check(&raw, &[Vertices, Features, Labels]);
            assert_eq!(raw.columns.len(), 1);
            assert_eq!(
                (raw.columns[0].name(), golden::numbers(&*raw.columns[0])[3]),
                ("label_2K", 102.0)
            );
            assert!(notes.lines()[0].contains("--random-split"));
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
            assert!(MAG240M.recognises(&path) && !IGB.recognises(&path));
            let raw = MAG240M.open(&path, &Schema::default(), None, true, &NoProgress).unwrap();
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
        let message =
            problem(MAG240M.open(folder.path(), &Schema::default(), None, true, &NoProgress));
        assert!(message.contains("node_year.npy: year has 2 rows for 6 vertices"), "{message}");
    }
}
