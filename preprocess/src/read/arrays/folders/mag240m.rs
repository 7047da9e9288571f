//! MAG240M (OGB-LSC, Hu et al., 2021): its papers and their citations.
//!
//! ```text
//! DIR[/processed]/paper___cites___paper/edge_index.npy  (2, E) i64: citing papers, then cited ones
//! DIR[/processed]/paper/node_feat.npy                   (n, 768) f16
//! DIR[/processed]/paper/node_label.npy                  (n,) float, NaN for unlabelled
//! DIR[/processed]/paper/node_year.npy                   (n,) integers: becomes the node column `year`
//! ```
//! `split_dict.pt` is a pickle of PyTorch and is not read. Authors and institutions are other vertex types, not read either.

use std::path::{Path, PathBuf};

use gsplit_store::Progress;

use crate::Result;
use crate::edges::EdgeSource;
use crate::read::arrays::catalog::{agreed_rows, with_columns};
use crate::read::arrays::edges::ArrayEdges;
use crate::read::arrays::numbers::{Numbers, NumbersColumn};
use crate::read::options::WantedColumns;
use crate::read::raw::Raw;

/// Whether `path` is a folder with MAG240M's citations.
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
    let mut column = |file: &str, name: &str| -> Result<Option<NumbersColumn>> {
        let path = root.join("paper").join(file);
        if !path.exists() {
            return Ok(None);
        }
        let column = NumbersColumn::new(Numbers::open(&path)?, name)?;
        files.push(path);
        Ok(Some(column))
    };
    let features = column("node_feat.npy", "features")?;
    let labels = column("node_label.npy", "labels")?;
    let year = column("node_year.npy", "year")?;
    let num_vertices = agreed_rows(None, [&features, &labels, &year].into_iter().flatten())?;
    for split_file in [path.join("split_dict.pt"), root.join("../split_dict.pt")] {
        if split_file.exists() {
            let remedy = "save its arrays in a folder of .npy files, or pass --random-split";
            progress.note(&format!("{}: a pickle of PyTorch, not read; {remedy}", split_file.display()));
            break;
        }
    }
    Ok(with_columns(edges, num_vertices, files, [features, labels, year]))
}

/// The folder itself, or `processed` in it.
fn root(path: &Path) -> PathBuf {
    let processed = path.join("processed");
    if edges_in(&processed).exists() { processed } else { path.to_path_buf() }
}

fn edges_in(root: &Path) -> PathBuf {
    root.join("paper___cites___paper/edge_index.npy")
}

#[cfg(test)]
mod tests {
    use gsplit_store::NoProgress;

    use gsplit_store::Notes;

    use super::*;
    use crate::read::golden::{Part::*, *};

    #[test]
    fn golden_input() {
        let folder = copy("mag240m");
        std::fs::write(folder.path().join("split_dict.pt"), "a pickle").unwrap();
        for path in [folder.path().to_path_buf(), folder.path().join("processed")] {
            assert!(recognises(&path, &[]) && !crate::read::arrays::folders::igb::recognises(&path, &[]));
            let notes = Notes::default();
            let raw = open(&path, WantedColumns::default(), &notes).unwrap();
            check(&raw, &[Vertices, Features, Labels]);
            assert_eq!(raw.features.as_ref().unwrap().descr(), "<f2");
            assert_eq!((raw.columns[0].name(), raw.columns[0].descr()), ("year", "<i4"));
            assert_eq!(numbers(&*raw.columns[0]), [2010.0, 2011.0, 2012.0, 2013.0, 2014.0, 2015.0]);
            assert!(notes.lines()[0].contains("split_dict.pt: a pickle of PyTorch"));
        }
    }

    #[test]
    fn files_that_disagree() {
        let folder = copy("mag240m");
        let path = folder.path().join("processed/paper/node_year.npy");
        std::fs::write(&path, npy("<i8", false, "(2,)", &i64s(&[2010, 2011]))).unwrap();
        let message = problem(open(folder.path(), WantedColumns::default(), &NoProgress));
        assert!(message.contains("node_year.npy: year has 2 rows for 6 vertices"), "{message}");
    }
}
