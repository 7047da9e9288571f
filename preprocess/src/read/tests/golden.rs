//! The graph of 6 vertices that `tests/data/make.py` writes in every format, and ways to read all
//! of a [`Raw`].

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use gsplit_store::NoProgress;

use crate::Result;
use crate::edges::{EdgeBatch, EdgeSource, Piece, Seen};
use crate::read::raw::{self, Column, Ids, Raw};

pub const EDGES: [(u64, u64); 10] =
    [(0, 1), (0, 2), (1, 2), (2, 0), (2, 3), (3, 3), (3, 4), (4, 5), (5, 4), (0, 1)];

/// The tiny inputs.
pub fn data(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data")).join(name)
}

/// A real input, if the real inputs are there.
pub fn real(name: &str) -> Option<PathBuf> {
    let roots = ["/../../shared/data", "/../../../shared/data"]
        .map(|root| format!("{}{root}", env!("CARGO_MANIFEST_DIR")));
    let found = roots.iter().map(|root| Path::new(root).join(name)).find(|path| path.exists());
    if found.is_none() {
        println!("skipped: no {name}");
    }
    found
}

/// Sources and targets, and the bytes of all values.
type EdgesAndValues = (Vec<(u64, u64)>, Vec<u8>);

/// All edges in the input's order, and their values, read as the engine does. Every piece is parsed
/// twice over two passes, and pieces of the second pass in another order.
pub fn read_edges(source: &dyn EdgeSource) -> Result<EdgesAndValues> {
    let mut first = None;
    for reversed in [false, true] {
        source.rewind()?;
        let mut pieces = Vec::new();
        let mut piece = Piece::default();
        while source.next(&mut piece)? {
            pieces.push((pieces.len(), std::mem::take(&mut piece)));
        }
        assert!(source.bytes_done() <= source.estimate()?.bytes);
        if reversed {
            pieces.reverse();
        }
        let batches = Mutex::new(Vec::new());
        for (at, mut piece) in pieces {
            let mut batch = EdgeBatch::default();
            source.parse(&mut piece, &mut batch)?;
            assert_eq!(batch.sources.len(), batch.targets.len());
            assert_eq!(batch.values.len(), batch.len() * crate::edges::row_bytes(source.columns()));
            batches.lock().unwrap().push((at, batch));
        }
        let mut batches = batches.into_inner().unwrap();
        batches.sort_by_key(|(at, _)| *at);
        let edges: Vec<(u64, u64)> = batches
            .iter()
            .flat_map(|(_, b)| b.sources.iter().copied().zip(b.targets.iter().copied()))
            .collect();
        let values = batches.iter().flat_map(|(_, b)| b.values.clone()).collect::<Vec<u8>>();
        let largest = edges.iter().map(|&(u, v)| u.max(v)).max();
        source.finish(&Seen {
            edges: edges.len() as u64,
            largest,
            distinct: None,
            has_zero: true,
        })?;
        match &first {
            None => first = Some((edges, values)),
            Some(before) => assert!(*before == (edges, values), "another pass reads the same"),
        }
    }
    Ok(first.unwrap())
}

/// All rows of a column.
pub fn read_column(column: &dyn Column) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    let size: usize = column.descr()[2..].parse().unwrap();
    column.read(&NoProgress, &mut |rows| {
        assert!(!rows.is_empty() && rows.len().is_multiple_of(column.width() * size));
        all.extend_from_slice(rows);
        Ok(())
    })?;
    assert!(
        column
            .num_rows()
            .is_none_or(|rows| rows * (column.width() * size) as u64 == all.len() as u64)
    );
    Ok(all)
}

/// All numbers of a column, as doubles.
pub fn numbers(column: &dyn Column) -> Vec<f64> {
    raw::numbers(column.descr(), &read_column(column).unwrap()).collect()
}

/// Decodes values of edges as `f32`.
pub fn f32s(values: &[u8]) -> Vec<f32> {
    values.as_chunks().0.iter().map(|&value| f32::from_le_bytes(value)).collect()
}

/// Decodes values of edges as `f64`.
pub fn f64s(values: &[u8]) -> Vec<f64> {
    values.as_chunks().0.iter().map(|&value| f64::from_le_bytes(value)).collect()
}

/// `edges` of a file that counts its vertices from 1.
pub fn from_one(edges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    edges.iter().map(|&(u, v)| (u + 1, v + 1)).collect()
}

/// Part that a golden input may have in addition to its edges.
#[derive(Clone, Copy, PartialEq)]
pub enum Part {
    /// The number of vertices.
    Vertices,
    /// 3 features a vertex.
    Features,
    /// The labels.
    Labels,
    /// The splits, in any order.
    Splits,
}

/// Checks that `raw` holds the graph and the `parts` of it, no others.
pub fn check(raw: &Raw, parts: &[Part]) {
    let has = |part| parts.contains(&part);
    let (mut edges, _) = read_edges(&*raw.edges).unwrap();
    let mut expected = if raw.ids.first() == 1 { from_one(&EDGES) } else { EDGES.to_vec() };
    edges.sort();
    expected.sort();
    assert_eq!(edges, expected);
    assert!(
        raw.ids != Ids::Sparse && raw.ids.num_vertices() == has(Part::Vertices).then_some(6),
        "{:?}",
        raw.ids
    );
    assert_eq!(raw.features.is_some(), has(Part::Features));
    if let Some(features) = &raw.features {
        let expected: Vec<f64> =
            (0..18).map(|at| f64::from(at / 3) + f64::from(at % 3) / 4.0).collect();
        assert_eq!((numbers(&**features), features.width()), (expected, 3));
    }
    assert_eq!(raw.labels.is_some(), has(Part::Labels));
    if let Some(labels) = &raw.labels {
        let found: Vec<f64> =
            numbers(&**labels).iter().map(|x| if x.is_nan() { -1.0 } else { *x }).collect();
        assert_eq!(found, [0.0, 1.0, -1.0, 2.0, 1.0, 0.0]);
    }
    let splits = raw.splits.clone().map(|mut splits| {
        splits.iter_mut().for_each(|split| split.sort());
        splits
    });
    assert_eq!(splits, has(Part::Splits).then(|| [vec![0, 3], vec![1], vec![4, 5]]));
    assert!(
        !raw.files.is_empty() && raw.files.iter().all(|path| path.is_file()),
        "{:?}",
        raw.files
    );
}

/// Message of the error, found at opening the input or at reading all of it.
pub fn problem(opened: Result<Raw>) -> String {
    let read = opened.and_then(|raw| {
        read_edges(&*raw.edges)?;
        for column in raw.features.iter().chain(&raw.labels).chain(&raw.columns) {
            read_column(&**column)?;
        }
        Ok(())
    });
    let message = match read {
        Ok(()) => panic!("it was read"),
        Err(error) => error.to_string(),
    };
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

/// Copies a tiny input to a place where it may be damaged.
pub fn copy(name: &str) -> tempfile::TempDir {
    fn copy_into(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let target = to.join(path.file_name().unwrap());
            if path.is_dir() {
                copy_into(&path, &target)
            } else {
                std::fs::copy(&path, &target).map(drop).unwrap()
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    copy_into(&data(name), folder.path());
    folder
}

/// A `.npy` file with header `descr`, `order` and `shape` before `data`.
pub fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let dict = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\x00", &(dict.len() as u16).to_le_bytes()[..], dict.as_bytes(), data].concat()
}

/// Little-endian bytes.
pub fn i64s(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Fails unless the input of this `case` is refused with all of `parts`.
pub fn refused(opened: Result<Raw>, case: impl std::fmt::Debug, parts: &[&str]) {
    let message = problem(opened);
    for part in parts {
        assert!(message.contains(part), "{case:?}: expected `{part}` in `{message}`");
    }
}
