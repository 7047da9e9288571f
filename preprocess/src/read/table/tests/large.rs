//! Row groups and record batches that are cut into pieces; parts that differ; values at the limits.

use std::fs::File;
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::Compression;
use ::parquet::file::properties::WriterProperties;
use arrow_array::{
    ArrayRef, Float32Array, Float64Array, Int32Array, Int64Array, LargeListArray, RecordBatch,
    StringArray, UInt64Array, types,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};

use super::*;
use crate::read::table::rows::ROWS_PER_PIECE;

/// Writes a Parquet file with row groups of `group` rows.
fn parquet(path: &Path, columns: Vec<(&str, ArrayRef)>, group: usize) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group))
        .set_data_page_row_count_limit(20_000)
        .set_compression(Compression::SNAPPY)
        .build();
    let mut writer =
        ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties))
            .unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Writes an Arrow file of one record batch.
fn arrow(path: &Path, columns: Vec<(&str, ArrayRef)>, compression: Option<CompressionType>) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let file = File::create(path).unwrap();
    let mut writer = FileWriter::try_new_with_options(file, &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}

#[test]
fn oracle_large_groups_come_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let rows = 3 * ROWS_PER_PIECE as i64 - 1000;
    let source = |row: i64| (row * 7919) % 100_003;
    let columns = || -> Vec<(&str, ArrayRef)> {
        vec![
            ("u", Arc::new(Int64Array::from_iter_values((0..rows).map(source)))),
            ("v", Arc::new(UInt64Array::from_iter_values(0..rows as u64))),
            ("w", Arc::new(Float32Array::from_iter_values((0..rows).map(|row| row as f32)))),
        ]
    };
    parquet(&folder.path().join("one.parquet"), columns(), usize::MAX >> 1);
    parquet(&folder.path().join("many.parquet"), columns(), 50_001);
    arrow(&folder.path().join("plain.arrow"), columns(), None);
    arrow(&folder.path().join("zstd.arrow"), columns(), Some(CompressionType::ZSTD));
    for name in ["one.parquet", "many.parquet", "plain.arrow", "zstd.arrow"] {
        let raw = by_default(&folder.path().join(name)).unwrap();
        let (mut piece, mut batch, mut largest) = (Piece::default(), EdgeBatch::default(), 0);
        while raw.edges.next(&mut piece).unwrap() {
            batch.clear();
            raw.edges.parse(&mut piece, &mut batch).unwrap();
            assert_eq!(batch.len() as u64, piece.end - piece.start);
            largest = largest.max(batch.len() as u64);
        }
        assert_eq!(largest, if name == "many.parquet" { 50_001 } else { ROWS_PER_PIECE });
        let batch = read(raw.edges.as_ref()).unwrap();
        assert!(
            batch.sources.iter().copied().eq((0..rows).map(|row| source(row) as u64)),
            "{name}"
        );
        assert!(batch.targets.iter().copied().eq(0..rows as u64), "{name}");
        assert!(
            batch.values.iter().copied().eq((0..rows).flat_map(|row| (row as f32).to_le_bytes())),
            "{name}"
        );
    }
}

fn ids(ids: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(ids))
}

#[test]
fn parts_may_order_and_size_their_columns_differently() {
    let folder = tempfile::tempdir().unwrap();
    parquet(
        &folder.path().join("a.parquet"),
        vec![("src", ids([1])), ("dst", ids([2])), ("t", ids([3]))],
        10,
    );
    let small = |values: [i32; 1]| -> ArrayRef { Arc::new(Int32Array::from(values.to_vec())) };
    let columns =
        vec![("t", small([6])), ("more", ids([0])), ("dst", small([5])), ("src", small([4]))];
    parquet(&folder.path().join("b.parquet"), columns, 10);
    let raw = by_default(folder.path()).unwrap();
    let batch = read(raw.edges.as_ref()).unwrap();
    assert_eq!((batch.sources, batch.targets), (vec![1, 4], vec![2, 5]));
    assert_eq!(batch.values, [3i64.to_le_bytes(), 6i64.to_le_bytes()].concat());
    parquet(&folder.path().join("c.parquet"), vec![("src", ids([1])), ("dst", ids([2]))], 10);
    let text = problem(folder.path());
    assert!(text.contains("c.parquet: has no column `t`"), "{text}");
}

#[test]
fn whole_numbers_of_a_part_that_floats_cannot_hold_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let double = |values: &[f64]| -> ArrayRef { Arc::new(Float64Array::from(values.to_vec())) };
    let single = |values: &[f32]| -> ArrayRef { Arc::new(Float32Array::from(values.to_vec())) };
    let part = |file: &str, name, values| {
        parquet(
            &folder.path().join(file),
            vec![("src", ids([1])), ("dst", ids([2])), (name, values)],
            10,
        );
    };
    let inexact = "b.parquet: row 0, column `t`: is 9007199254740993: expected a number that an f64 holds exactly";
    let rounded = "b.parquet: row 0, column `t`: is 1: expected a float, as in the first file";
    let beyond = "row 0, column `weight`: is 1e39: expected a number of at most 3.4e38";
    for (name, first, second, expected) in [
        ("t", double(&[0.5]), ids([(1 << 53) + 1]), Some(inexact)),
        ("t", double(&[0.5]), ids([1 << 60]), None),
        ("t", single(&[0.5]), ids([1]), Some(rounded)),
        ("weight", single(&[0.5]), double(&[1e39]), Some(beyond)),
        // Weights are rounded.
        ("weight", single(&[0.5]), ids([(1 << 53) + 1]), None),
    ] {
        part("a.parquet", name, first);
        part("b.parquet", name, second);
        match expected {
            Some(expected) => {
                assert!(problem(folder.path()).contains(expected), "{}", problem(folder.path()))
            }
            None => drop(read_once(by_default(folder.path()).unwrap().edges.as_ref()).unwrap()),
        }
    }
}

#[test]
fn rows_that_cannot_be_kept_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let text = |names: &[&str]| -> ArrayRef { Arc::new(StringArray::from(names.to_vec())) };
    let maybe = |ids: [Option<i64>; 3]| -> ArrayRef { Arc::new(Int64Array::from(ids.to_vec())) };
    let lists = |rows: [Option<Vec<Option<f32>>>; 3]| -> ArrayRef {
        Arc::new(LargeListArray::from_iter_primitive::<types::Float32Type, _, _>(rows))
    };
    let large = || -> ArrayRef { Arc::new(UInt64Array::from(vec![0, 1, u64::MAX])) };
    let three = || ids([0, 1, 2]);
    let null = lists([Some(vec![Some(1.0); 2]), None, Some(vec![Some(2.0), None])]);
    let wrong = lists([Some(vec![Some(1.0); 2]), Some(vec![Some(1.0); 3]), None]);
    for (columns, expected) in [
        (
            vec![("u", three()), ("v", maybe([Some(1), None, Some(2)]))],
            "row 1, column `v`: is empty: expected an id",
        ),
        (
            vec![("u", three()), ("v", ids([0, 1, -7]))],
            "row 2, column `v`: is -7: expected ids from 0",
        ),
        (
            vec![("u", three()), ("v", three()), ("t", maybe([None, None, None]))],
            "row 0, column `t`: is null: expected an integer",
        ),
        (
            vec![("u", three()), ("v", three()), ("t", large())],
            "row 2, column `t`: is 18446744073709551615: expected a signed",
        ),
        (
            vec![("u", three()), ("v", three()), ("t", wrong)],
            "row 1, column `t`: holds 3 numbers: expected 2",
        ),
        (
            vec![("u", text(&["a", "b", "c"])), ("v", three())],
            "one holds integers, the other strings",
        ),
    ] {
        // Groups of two rows: the row of a message counts from the start of the file.
        parquet(&path, columns, 2);
        let text = problem(&path);
        assert!(text.contains("x.parquet") && text.contains(expected), "{text}");
    }
    parquet(&path, vec![("u", large()), ("v", three()), ("t", null)], 2);
    let raw = by_default(&path).unwrap();
    let batch = read(raw.edges.as_ref()).unwrap();
    assert_eq!(batch.sources, [0, 1, u64::MAX]);
    let numbers = [1.0, 1.0, f32::NAN, f32::NAN, 2.0, f32::NAN];
    assert_eq!(
        batch.values,
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>()
    );
}

#[test]
fn a_table_without_rows_is_a_graph_without_edges() {
    let folder = tempfile::tempdir().unwrap();
    parquet(&folder.path().join("a.parquet"), vec![("u", ids([])), ("v", ids([]))], 10);
    let raw = by_default(folder.path()).unwrap();
    let mut piece = Piece::default();
    assert!(!raw.edges.next(&mut piece).unwrap());
    assert_eq!(raw.edges.estimate().unwrap().edges, 0);
}
