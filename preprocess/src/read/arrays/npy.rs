//! NumPy arrays on disk: one `.npy` file of edges, or a folder of them.
//!
//! A file is an integer array of shape (2, E), sources then targets, or (E, 2), one edge per row;
//! (2, 2) is taken as (2, E). A folder holds arrays under the names that
//! [`catalog`](super::catalog) lists; other files in it are ignored.
//!
//! `.npy` is NEP 1, version 1 to 3: little-endian bools, integers and floats of up to 8 bytes.
//! Features, labels and values of edges are stored row by row (C order).

use std::path::Path;

use gsplit_store::Progress;

use super::catalog::Catalog;
use super::edges::ArrayEdges;
use super::numbers::Numbers;
use crate::Result;
use crate::read::options::Schema;
use crate::read::raw::{Ids, Raw};

/// Whether `path` is a `.npy` file, or a folder with edges in such files.
pub fn recognises(path: &Path, head: &[u8]) -> bool {
    head.starts_with(b"\x93NUMPY")
        || (path.is_dir() && Catalog::Folder(path.to_path_buf()).has_edges())
}

/// Opens the file or the folder at `path`.
pub fn open(path: &Path, schema: &Schema, progress: &dyn Progress) -> Result<Raw> {
    if path.is_dir() {
        return Catalog::Folder(path.to_path_buf()).graph(schema, progress);
    }
    let edges = ArrayEdges::index(Numbers::open(path)?)?;
    Ok(Raw::of(edges, Ids::Dense(None), vec![path.to_path_buf()]))
}

#[cfg(test)]
mod tests {
    use gsplit_store::NoProgress;

    use super::*;
    use crate::edges::{EDGES_PER_PIECE, EdgeColumn, ValueType};
    use crate::read::arrays::numbers::NumbersColumn;
    use crate::read::golden::*;

    fn read(path: &Path) -> Result<Raw> {
        open(path, &Schema::default(), &NoProgress)
    }

    #[test]
    fn values_stay_with_their_edges() {
        let raw = read(&data("npy")).unwrap();
        let column = |name: &str, value, width| EdgeColumn { name: name.into(), value, width };
        assert_eq!(
            raw.edges.columns(),
            [column("weight", ValueType::F32, 1), column("feat", ValueType::I64, 2)]
        );
        let (edges, values) = read_edges(&*raw.edges).unwrap();
        assert_eq!(edges, EDGES);
        for (edge, row) in values.chunks(20).enumerate() {
            assert_eq!(f32s(&row[..4]), [edge as f32 / 2.0]);
            assert_eq!(row[4..], i64s(&[edge as i64, -(edge as i64)]));
        }
        for name in ["npy-csr", "npy-csc"] {
            let raw = read(&data(name)).unwrap();
            let (edges, values) = read_edges(&*raw.edges).unwrap();
            for (edge, weight) in edges.iter().zip(f64s(&values)) {
                assert_eq!(EDGES[(weight * 2.0) as usize], *edge, "{name}");
            }
        }
        let chosen =
            |name: &str| Schema { edge_columns: Some(vec![name.into()]), ..Default::default() };
        let raw = open(&data("npy"), &chosen("feat"), &NoProgress).unwrap();
        assert_eq!(raw.edges.columns(), [column("feat", ValueType::I64, 2)]);
        let message = problem(open(&data("npy"), &chosen("time"), &NoProgress));
        assert!(
            message.contains("--edge-columns time") && message.contains("found none"),
            "{message}"
        );
    }

    #[test]
    fn differential_every_layout_over_many_pieces() {
        let mut state = 7u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        // A hub whose edges do not fit a piece, long runs of empty rows, and more edges than some
        // pieces hold.
        let n = 3 * EDGES_PER_PIECE as u64;
        let mut edges: Vec<(i64, i64)> = (0..EDGES_PER_PIECE as u64 * 2 + 5)
            .map(|edge| {
                (if edge % 2 == 0 { n / 2 } else { random(n / 3) } as i64, random(n) as i64)
            })
            .collect();
        edges.sort();
        let expected: Vec<(u64, u64)> = edges.iter().map(|&(u, v)| (u as u64, v as u64)).collect();
        let m = edges.len();
        let (sources, targets): (Vec<i64>, Vec<i64>) = edges.iter().copied().unzip();
        let mut indptr = vec![0i64; n as usize + 1];
        sources.iter().for_each(|&u| indptr[u as usize + 1] += 1);
        (0..n as usize).for_each(|u| indptr[u + 1] += indptr[u]);
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, fortran, shape: &str, numbers: &[i64]| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, npy("<i8", fortran, shape, &i64s(numbers))).unwrap();
        };
        let pairs: Vec<i64> = edges.iter().flat_map(|&(u, v)| [u, v]).collect();
        let halves = [&sources[..], &targets].concat();
        write("a/edge_index.npy", false, &format!("(2, {m})"), &halves);
        write("b/edge_index.npy", false, &format!("({m}, 2)"), &pairs);
        write("c/edge_index.npy", true, &format!("(2, {m})"), &pairs);
        write("d/edge_index.npy", true, &format!("({m}, 2)"), &halves);
        write("e/indptr.npy", false, &format!("({},)", n + 1), &indptr);
        write("e/indices.npy", false, &format!("({m},)"), &targets);
        write("f/csc_indptr.npy", false, &format!("({},)", n + 1), &indptr);
        write("f/csc_indices.npy", false, &format!("({m},)"), &targets);
        for name in ["a", "b", "c", "d", "e", "f"] {
            let (mut edges, _) =
                read_edges(&*read(&folder.path().join(name)).unwrap().edges).unwrap();
            if name == "f" {
                edges.iter_mut().for_each(|edge| *edge = (edge.1, edge.0));
            }
            assert!(edges == expected, "{name}");
        }
    }

    #[test]
    fn two_edges_in_every_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        // [[1, 2], [3, 4]]: rows are sources and targets.
        for (fortran, numbers) in [(false, [1, 2, 3, 4]), (true, [1, 3, 2, 4])] {
            std::fs::write(&path, npy("<i8", fortran, "(2, 2)", &i64s(&numbers))).unwrap();
            assert_eq!(read_edges(&*read(&path).unwrap().edges).unwrap().0, [(1, 3), (2, 4)]);
        }
        let feat = folder.path().join("feat.npy");
        std::fs::write(&feat, npy("<i8", true, "(2, 3)", &i64s(&[1, 4, 2, 5, 3, 6]))).unwrap();
        let rows = NumbersColumn::new(Numbers::open(&feat).unwrap(), "feat").unwrap();
        assert_eq!(numbers(&rows), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        std::fs::write(&path, npy("<i8", false, "(2, 0)", &[])).unwrap();
        assert_eq!(read_edges(&*read(&path).unwrap().edges).unwrap().0, []);
    }

    #[test]
    fn bad_arrays_of_edges() {
        let huge = "(2, 1152921504606846976)";
        type LayoutCase<'a> = (&'a str, bool, &'a str, Vec<u8>, &'a [&'a str]);
        let table: &[LayoutCase] = &[
            (
                "<i8",
                false,
                "(2, 3)",
                i64s(&[0, 1, 2, 3, 4]),
                &["shape [2, 3]", "40 bytes follow", "truncated"],
            ),
            ("<i8", false, "(2, 2)", i64s(&[0, 1, 2, 3, 4]), &["40 bytes follow"]),
            ("<i8", false, huge, i64s(&[0, 1]), &["16 bytes follow"]),
            ("<i8", false, "(2, 9223372036854775808, 4, 0)", vec![], &["truncated or damaged"]),
            ("<i8", false, "(3, 4)", i64s(&[0; 12]), &["expected (2, E) or (E, 2)"]),
            ("<i8", false, "(4,)", i64s(&[0; 4]), &["expected (2, E) or (E, 2)"]),
            ("<i8", false, "(2, 2)", i64s(&[0, 1, 2, -3]), &["edge 1, target -3: expected an id"]),
            ("<i8", false, "(3, 2)", i64s(&[0, 1, 2, 3, -4, 0]), &["edge 2, source -4: expected"]),
            (">i8", false, "(2, 2)", i64s(&[0; 4]), &["big-endian", "newbyteorder"]),
            ("|O", false, "(2, 2)", i64s(&[0; 4]), &["Python objects"]),
            ("<f4", false, "(2, 2)", vec![0; 16], &["expected integer ids", "int64"]),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        for (descr, fortran, shape, bytes, parts) in table {
            std::fs::write(&path, npy(descr, *fortran, shape, bytes)).unwrap();
            refused(read(&path), (descr, shape), &[&["x.npy"], *parts].concat());
        }
        let good = std::fs::read(data("npy/edge_index.npy")).unwrap();
        for cut in 0..good.len() {
            std::fs::write(&path, &good[..cut]).unwrap();
            assert!(problem(read(&path)).contains("x.npy"));
        }
    }

    #[test]
    fn bad_folders() {
        let three = i64s(&[0, 1, 2]);
        let ptr = |list: &[i64]| npy("<i8", false, &format!("({},)", list.len()), &i64s(list));
        let table: &[(&str, &str, Vec<u8>, &[&str])] = &[
            (
                "npy",
                "feat",
                npy("<f4", false, "(5, 1)", &[0; 20]),
                &["labels has 6 rows for 5 vertices"],
            ),
            ("npy", "feat", npy("<f4", false, "(6, 0)", &[]), &["rows of 0 numbers"]),
            ("npy", "feat", npy("<f4", false, "(6, 1, 1)", &[0; 24]), &["one or two dimensions"]),
            ("npy", "feat", npy("<c8", false, "(6,)", &[0; 48]), &["type <c8"]),
            ("npy", "x", ptr(&[0; 6]), &["feat and x are both names of features"]),
            ("npy", "edge_weight", npy("<i8", false, "(3,)", &three), &["3 rows for 10 edges"]),
            (
                "npy",
                "train_mask",
                npy("|b1", false, "(5,)", &[1; 5]),
                &["expected a mask of 6 vertices"],
            ),
            (
                "npy",
                "edge_index",
                npy("<i8", false, "(2, 1)", &i64s(&[1, 6])),
                &["10 rows for 1 edges"],
            ),
            (
                "npy-pairs",
                "y",
                ptr(&[0, 1, 2]),
                &["edge 4, target 3: expected ids below the number of vertices, 3"],
            ),
            ("npy-coo", "col", ptr(&[1, 2]), &["2 targets for 10 sources"]),
            ("npy-coo", "valid_idx", ptr(&[1, -2]), &["valid_idx.npy: entry 1: -2"]),
            ("npy-csr", "indptr", ptr(&[0, 3, 4, 6, 8, 9, 11]), &["entry 6: 11, expected 9 to 10"]),
            ("npy-csr", "indptr", ptr(&[0, 3, 2, 6, 8, 9, 10]), &["entry 2: 2, expected 3 to 10"]),
            ("npy-csr", "indptr", ptr(&[0, 3, 4, 6, 8, 9, 9]), &["ends at edge 9 of 10"]),
            ("npy-csr", "indptr", ptr(&[1, 3, 4, 6, 8, 9, 10]), &["entry 0: expected 0"]),
            ("npy-csr", "indptr", ptr(&[0, 3, -4, 6, 8, 9, 10]), &["entry 2: -4"]),
            ("npy-csr", "indptr", ptr(&[]), &["no entries"]),
            ("npy-csr", "indices", ptr(&[6; 10]), &["edge 0, target 6: expected ids below"]),
        ];
        for (name, file, bytes, parts) in table {
            let folder = copy(name);
            std::fs::write(folder.path().join(format!("{file}.npy")), bytes).unwrap();
            refused(read(folder.path()), (name, file), parts);
        }
        let empty = tempfile::tempdir().unwrap();
        assert!(problem(read(empty.path())).contains("expected edges in it"));
    }
}
