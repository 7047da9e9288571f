//! A graph in one `.npz` archive: arrays recognised by their names, or a sparse matrix of SciPy.
//!
//! Members are named as [`catalog`](super::catalog) lists; others are ignored. An archive with the
//! members `indptr`, `indices`, `data`, `shape` and `format`, or `row`, `col`, `data`, `shape` and
//! `format`, is an adjacency matrix of `scipy.sparse.save_npz`: entry (u, v) is an edge u -> v,
//! `format` is `csr`, `csc` or `coo`, the matrix is square, and `data` becomes the edge column
//! `weight` unless every value is one.
//!
//! Members are stored or deflated. Each is inflated as it is read, and its CRC compared at the end.

use std::path::Path;

use gsplit_store::Progress;

use super::catalog::{Catalog, few};
use super::edges::{ArrayEdges, all_ones};
use crate::read::options::Schema;
use crate::read::raw::Raw;
use crate::{Error, Result};
pub use archive::Npz;

mod archive;

/// Whether `path` is an `.npz` archive with edges in it.
pub fn recognises(path: &Path, head: &[u8]) -> bool {
    let is_zip = head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06");
    is_zip && path.extension().is_some_and(|extension| extension == "npz")
}

/// Opens the archive at `path`.
pub fn open(path: &Path, schema: &Schema, progress: &dyn Progress) -> Result<Raw> {
    let mut archive = Npz::open(path)?;
    if !(archive.contains("format") && archive.contains("shape") && archive.contains("data")) {
        return Catalog::Archive(path.to_path_buf(), archive).graph(schema, progress);
    }
    let mut edges = scipy_edges(&mut archive, path)?;
    if let Some(data) = archive.numbers("data")?
        && schema.keeps("weight")
        && !all_ones(&data)?
    {
        edges = edges.with_values("weight", data)?;
    }
    Catalog::Archive(path.to_path_buf(), archive).rest(edges, schema, progress)
}

/// The entries of the sparse matrix in `archive`, as edges without values.
pub fn scipy_edges(archive: &mut Npz, path: &Path) -> Result<ArrayEdges> {
    let format = archive.text("format.npy")?.unwrap_or_default();
    let by_source = match format.as_str() {
        "csr" => Some(true),
        "csc" => Some(false),
        "coo" => None,
        other => {
            let problem =
                format!("format: a sparse matrix of format {other:?}, expected csr, csc or coo");
            return Err(Error::input(path, format!("{problem}: save matrix.tocsr()")));
        }
    };
    let mut open = |name: &str| {
        let missing = || {
            Error::input(
                path,
                format!("has no member {name}, expected it in a sparse matrix of format {format}"),
            )
        };
        archive.numbers(name)?.ok_or_else(missing)
    };
    let shape = open("shape")?;
    let num_vertices = match few(&shape)?[..] {
        [rows, columns] if rows == columns => rows,
        ref other => {
            return Err(shape.error(format!("a matrix of {other:?}, expected a square one")));
        }
    };
    let edges = match by_source {
        Some(by_source) => ArrayEdges::compressed(open("indptr")?, open("indices")?, by_source)?,
        None => ArrayEdges::coordinates(open("row")?, open("col")?)?,
    };
    match edges.num_vertices() {
        Some(rows) if rows != num_vertices => Err(shape
            .error(format!("{num_vertices} rows, indptr has {rows}: expected the same; damaged?"))),
        _ => Ok(edges.within(num_vertices)),
    }
}

#[cfg(test)]
mod tests {
    use gsplit_store::NoProgress;

    use super::*;
    use crate::read::golden::{Part::*, *};

    fn read(path: &Path) -> Result<Raw> {
        open(path, &Schema::default(), &NoProgress)
    }

    fn with_split(split: &str) -> Schema {
        Schema { split_name: Some(split.into()), ..Default::default() }
    }

    #[test]
    fn golden_inputs() {
        let path = data("npz/graph.npz");
        assert!(recognises(&path, &std::fs::read(&path).unwrap()));
        check(
            &open(&path, &with_split("1"), &NoProgress).unwrap(),
            &[Vertices, Features, Labels, Splits],
        );
        let notes = gsplit_store::Notes::default();
        let first = open(&path, &Schema::default(), &notes).unwrap();
        assert_eq!(first.splits, Some(Default::default()), "mask 0 is empty");
        assert!(
            notes
                .lines()
                .join("\n")
                .contains("has 2 masks for each split; --schema split-name=0 is taken")
        );
        let message = problem(open(&path, &with_split("2"), &NoProgress));
        assert!(
            message.contains("--schema split-name=2: expected the number of a mask, below 2"),
            "{message}"
        );
        assert_eq!(f32s(&read_edges(&*read(&path).unwrap().edges).unwrap().1)[9], 4.5);
    }

    #[test]
    fn sparse_matrices() {
        let ones = read(&data("npz/csr-ones.npz")).unwrap();
        check(&ones, &[Vertices]);
        assert_eq!(ones.edges.columns(), []);
        for name in ["npz/csr-weights.npz", "npz/coo.npz"] {
            let raw = read(&data(name)).unwrap();
            check(&raw, &[Vertices]);
            let (edges, values) = read_edges(&*raw.edges).unwrap();
            let weights = if name.contains("csr") {
                f64s(&values)
            } else {
                f32s(&values).iter().map(|&x| x.into()).collect()
            };
            for (edge, weight) in edges.iter().zip(weights) {
                assert_eq!(EDGES[(weight * 2.0) as usize], *edge, "{name}");
            }
        }
    }

    #[test]
    fn every_flipped_byte_and_every_cut_is_noticed_or_harmless() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npz");
        for name in ["npz/csr-weights.npz", "npz/coo.npz"] {
            let good = std::fs::read(data(name)).unwrap();
            let expected = read_edges(&*read(&data(name)).unwrap().edges).unwrap();
            for at in (0..good.len()).step_by(7) {
                std::fs::write(&path, &good[..at]).unwrap();
                problem(read(&path));
                let mut bytes = good.clone();
                bytes[at] ^= 0x11;
                std::fs::write(&path, &bytes).unwrap();
                // Timestamps, repeated sizes and the like may change; numbers may not, and nothing
                // may panic.
                if let Ok(found) = read(&path).and_then(|raw| read_edges(&*raw.edges)) {
                    let same_numbers =
                        found.0 == expected.0 && (found.1.is_empty() || found.1 == expected.1);
                    assert!(same_numbers, "{name}, byte {at}");
                }
            }
        }
    }

    #[test]
    fn real_masks() {
        let Some(path) = real("heterophilous-npz/tolokers.npz") else { return };
        let raw = open(&path, &with_split("3"), &NoProgress).unwrap();
        let (edges, _) = read_edges(&*raw.edges).unwrap();
        assert_eq!((edges.len(), raw.ids), (519_000, crate::read::raw::Ids::Dense(Some(11_758))));
        let splits = raw.splits.unwrap();
        assert_eq!(splits.iter().map(Vec::len).sum::<usize>(), 11_758);
        assert_ne!(splits, read(&path).unwrap().splits.unwrap());
        let features = raw.features.unwrap();
        assert_eq!((features.width(), numbers(&*features).len()), (10, 117_580));
        assert!(numbers(&*raw.labels.unwrap()).iter().all(|&label| label == 0.0 || label == 1.0));
    }

    #[test]
    fn real_sparse_matrix() {
        let Some(path) = real("flickr_graphsaint/adj_full.npz") else { return };
        let (mut edges, _) = read_edges(&*read(&path).unwrap().edges).unwrap();
        assert_eq!(edges.len(), 899_756);
        let mut mirrored: Vec<(u64, u64)> = edges.iter().map(|&(u, v)| (v, u)).collect();
        edges.sort();
        mirrored.sort();
        assert!(edges == mirrored, "it is symmetric");
    }
}
