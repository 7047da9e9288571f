//! Inputs that lack values, or list them several times: what stands for them, and that they are counted.

use std::sync::Arc;

use arrow_array::types::UInt8Type;
use arrow_array::{ArrayRef, DurationSecondArray, Float64Array, Int64Array, ListArray, RecordBatch};
use gsplit_store::{FeatureEncoding, Notes};
use parquet::arrow::ArrowWriter;

use super::bad_input::message;
use super::tables::{EDGES, converted, folder, names, options_of, rows};
use super::*;
use crate::read::golden::npy;
use crate::read::options::{Fill, LabelKind, MissingRows, OnDuplicate, Scale};

#[test]
fn the_row_behind_one_that_does_not_count_is_kept() {
    let input = folder(EDGES, "f0,id\n900,10\n1,10\n2,20\n3,30\n4,40\n");
    let mut options = options_of(&input);
    (options.read.node_table.on_duplicate, options.read.node_table.scale) =
        (Some(OnDuplicate::Last), Some(Scale::None));
    let (_out, dataset, _) = converted(&input, &options);
    assert_eq!(rows(&dataset).concat(), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn rows_that_do_not_count_take_no_part_in_scales() {
    let nodes = "f0,town,id\n1,a,10\n900,x,20\n3,b,20\n5,a,30\n7,b,40\n900,x,40\n";
    let input = folder(EDGES, nodes);
    for (keep, kept, mean) in [
        (OnDuplicate::First, "f0,town,id\n1,a,10\n900,x,20\n5,a,30\n7,b,40\n", 228.25),
        (OnDuplicate::Last, "f0,town,id\n1,a,10\n3,b,20\n5,a,30\n900,x,40\n", 227.25),
    ] {
        let mut options = options_of(&input);
        options.read.node_table.scale = Some(Scale::Standard);
        options.read.node_table.label_column = names(&["none"]);
        options.read.node_table.encode = Some(vec!["town=onehot".parse().unwrap()]);
        let clean = folder(EDGES, kept);
        let (_a, expected, _) = converted(
            &clean,
            &ConvertOptions {
                read: ReadOptions { nodes: Some(clean.path().join("nodes.csv")), ..options.read.clone() },
                ..options.clone()
            },
        );
        options.read.node_table.on_duplicate = Some(keep);
        let (_b, found, notes) = converted(&input, &options);
        assert!(notes.contains("--on-duplicate: 2 of 6 rows are left out: their vertices have another one"), "{notes}");
        assert_eq!(found.manifest().recipe, expected.manifest().recipe);
        assert_eq!(rows(&found), rows(&expected));
        let encoding = found.manifest().recipe.as_ref().unwrap().features[0].encoding.clone();
        assert!(
            matches!(encoding, FeatureEncoding::Number { shift, .. } if (shift - mean).abs() < 1e-9),
            "{encoding:?}"
        );
    }
    let input = folder(EDGES, "id,f0\n10,1\n20,2\n");
    let mut options = options_of(&input);
    options.read.node_table.missing_rows = Some(MissingRows::Fill);
    options.read.node_table.fill = Some(Fill::Value(0.0));
    let (_out, _, notes) = converted(&input, &options);
    assert!(notes.contains("--missing-rows: 2 vertices without a row get one of missing values"), "{notes}");
}

#[test]
fn typed_columns_with_nulls_and_of_other_types_stop_nothing() {
    let classes = [Some(vec![Some(1), Some(0)]), None, Some(vec![Some(1), Some(1)]), Some(vec![Some(0), Some(1)])];
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from(vec![10, 20, 30, 40])) as ArrayRef, false),
        ("f0", Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0, 4.0])), true),
        ("rank", Arc::new(Int64Array::from(vec![Some(7), None, Some(9), Some(8)])), true),
        ("since", Arc::new(DurationSecondArray::from(vec![1, 2, 3, 4])), true),
        ("label", Arc::new(ListArray::from_iter_primitive::<UInt8Type, _, _>(classes)), true),
    ]);
    let batch = batch.unwrap();
    let input = folder(EDGES, "");
    let path = input.path().join("nodes.parquet");
    let mut writer = ArrowWriter::try_new(std::fs::File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let mut options = options_of(&input);
    options.read.nodes = Some(path);
    options.read.node_table.feature_columns = names(&["f0"]);
    let (_out, dataset, notes) = converted(&input, &options);
    assert_eq!(rows(&dataset), [[1.0], [2.0], [3.0], [4.0]]);
    assert!(notes.contains("left out the columns since, which hold no numbers"), "{notes}");
    assert!(notes.contains("labels: 1 of 4 vertices have no class"), "{notes}");
    let columns = &dataset.manifest().columns;
    assert_eq!(columns.keys().collect::<Vec<_>>(), ["rank"]);
    // Without a label named, types without numbers are looked at by nobody.
    options.read.node_table.label_column = names(&["none"]);
    options.read.node_table.feature_columns = None;
    options.read.node_table.fill = Some(Fill::Mean);
    let (_out, dataset, _) = converted(&input, &options);
    assert_eq!(rows(&dataset)[1], [2.0, 8.0, 1.0]);
}

#[test]
fn arrays_with_gaps_name_the_option() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
    let write = |name: &str, shape: &str, numbers: &[f32]| {
        std::fs::write(folder.path().join(name), npy("<f4", false, shape, &bytes(numbers))).unwrap();
    };
    let edges: Vec<u8> = [0i64, 1, 2, 1, 2, 0].iter().flat_map(|id| id.to_le_bytes()).collect();
    std::fs::write(folder.path().join("edge_index.npy"), npy("<i8", false, "(2, 3)", &edges)).unwrap();
    write("feat.npy", "(3, 2)", &[1.0, f32::NAN, 3.0, 4.0, 5.0, 6.0]);
    write("label.npy", "(3,)", &[0.5, 1.0, 2.0]);
    let mut options = ConvertOptions::default();
    let problem = message(folder.path(), &options);
    assert!(
        problem.contains("label 0.5: ") && problem.contains("pass --label-kind number for a number to learn"),
        "{problem}"
    );
    options.read.node_table.label_kind = Some(LabelKind::Number);
    let problem = message(folder.path(), &options);
    assert!(
        problem.contains("feature NaN: expected a finite 32-bit number: pass --fill NUMBER or --fill mean"),
        "{problem}"
    );
    for (fill, filled) in [(Fill::Value(-2.0), -2.0), (Fill::Mean, 5.0)] {
        options.read.node_table.fill = Some(fill);
        let (_out, dataset) = convert_new(folder.path(), &options).unwrap();
        assert_eq!(rows(&dataset), [[1.0, filled], [3.0, 4.0], [5.0, 6.0]]);
    }
    options.read.node_table.scale = Some(Scale::Minmax);
    options.read.node_table.fill = Some(Fill::Value(5.0));
    let (_out, dataset) = convert_new(folder.path(), &options).unwrap();
    assert_eq!(rows(&dataset), [[0.0, 0.5], [0.5, 0.0], [1.0, 1.0]]);
}

#[test]
fn numbers_of_the_edges_of_ogb_are_named() {
    let folder = copy("ogb-csv");
    std::fs::write(folder.path().join("raw/edge-feat.csv"), "1\n").unwrap();
    let (out, notes) = (tempfile::tempdir().unwrap(), Notes::default());
    let options = ConvertOptions { random_split: Some("0.5,0.2,0.2".parse().unwrap()), ..Default::default() };
    convert(folder.path(), &out.path().join("ds"), &options, false, &notes).unwrap();
    let lines = notes.lines().join("\n");
    assert!(lines.contains("edge-feat.csv: left out, OGB's numbers of edges are not read"), "{lines}");
}
