//! IGB, the Illinois Graph Benchmark (Khatua et al., KDD 2023), homogeneous.
//!
//! ```text
//! DIR[/processed]/paper__cites__paper/edge_index.npy    (E, 2) integers, source and target of an edge
//! DIR[/processed]/paper/node_feat.npy                   (n, 1024) f32
//! DIR[/processed]/paper/node_label_19.npy               (n,) f32, NaN or -1 for unlabelled
//! DIR[/processed]/paper/node_label_2K.npy               the same with 2983 classes
//! ```
//! `node_label_19` holds the labels, and `node_label_2K` becomes the node column `label_2K`, or the labels if there is
//! no `node_label_19`. `paper_id_index_mapping.npy` is ignored.
//!
//! The files of IGB-large and IGB-full in `paper/` have no `.npy` header: they are raw little-endian f32, one label or
//! 1024 features per vertex, which the length of the file must match. If there are both features and labels, they must
//! have the same number of vertices.
//!
//! IGB ships no splits: its loader takes the first 60 % of the vertices for training, 20 % for validation, the rest for test.

use std::io::Read;
use std::path::{Path, PathBuf};

use gsplit_store::{Progress, open_file};

use crate::edges::EdgeSource;
use crate::read::arrays::catalog::{agreed_rows, with_columns};
use crate::read::arrays::edges::ArrayEdges;
use crate::read::arrays::numbers::{Dtype, Numbers, NumbersColumn};
use crate::read::options::WantedColumns;
use crate::read::raw::Raw;
use crate::{Error, Result};

/// Features per vertex, in files without a header.
const WIDTH: u64 = 1024;

/// Whether `path` is a folder with IGB's citations.
pub fn recognises(path: &Path, _head: &[u8]) -> bool {
    edges_in(&root(path)).is_file()
}

/// Opens the folder at `path`, which cannot have edge columns.
pub fn open(path: &Path, wanted: WantedColumns<'_>, progress: &dyn Progress) -> Result<Raw> {
    let root = root(path);
    let edge_file = edges_in(&root);
    let edges = ArrayEdges::index(Numbers::open(&edge_file)?)?;
    wanted.check(path, edges.columns())?;
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
    let mut labels = column("node_label_19.npy", "labels", 1)?;
    let mut more_labels = column("node_label_2K.npy", if labels.is_some() { "label_2K" } else { "labels" }, 1)?;
    if labels.is_none() {
        labels = more_labels.take();
    }
    let num_vertices = agreed_rows(None, [&features, &labels, &more_labels].into_iter().flatten())?;
    progress.note(&format!(
        "{}: IGB has no split files; --random-split draws some (its loader takes 0.6,0.2,0.2)",
        path.display()
    ));
    Ok(with_columns(edges, num_vertices, files, [features, labels, more_labels]))
}

/// The folder itself, or `processed` in it.
fn root(path: &Path) -> PathBuf {
    let processed = path.join("processed");
    if edges_in(&processed).exists() { processed } else { path.to_path_buf() }
}

fn edges_in(root: &Path) -> PathBuf {
    root.join("paper__cites__paper/edge_index.npy")
}

/// The array at `path`: with a header, or raw f32 in rows of `width`.
fn numbers(path: &Path, width: u64) -> Result<Numbers> {
    let mut head = Vec::new();
    let file = open_file(path).map_err(Error::io(path))?;
    file.take(6).read_to_end(&mut head).map_err(Error::io(path))?;
    if head == b"\x93NUMPY" { Numbers::open(path) } else { Numbers::headerless(path, Dtype::F4, width) }
}

#[cfg(test)]
mod tests {
    use gsplit_store::NoProgress;

    use gsplit_store::Notes;

    use super::*;
    use crate::read::golden::{self, Part::*, *};

    fn read(path: &Path) -> Result<Raw> {
        open(path, WantedColumns::default(), &NoProgress)
    }

    #[test]
    fn golden_input_with_headers() {
        for path in [data("igb"), data("igb/processed")] {
            assert!(recognises(&path, &[]));
            let notes = Notes::default();
            let raw = open(&path, WantedColumns::default(), &notes).unwrap();
            check(&raw, &[Vertices, Features, Labels]);
            assert_eq!(raw.columns.len(), 1);
            assert_eq!((raw.columns[0].name(), golden::numbers(&*raw.columns[0])[3]), ("label_2K", 102.0));
            assert!(notes.lines()[0].contains("--random-split"));
        }
    }

    #[test]
    fn lengths_that_do_not_fit() {
        let table: &[(&str, usize, &str)] = &[
            ("paper/node_feat.npy", 24_575, "24575 bytes without a .npy header: expected rows of 1024 <f4"),
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
}
