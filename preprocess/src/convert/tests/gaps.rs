//! Inputs that lack values or repeat them: how these are replaced, and that they are reported.

use std::sync::Arc;

use arrow_array::types::UInt8Type;
use arrow_array::{DurationSecondArray, Float64Array, Int64Array, ListArray};
use gsplit_store::FeatureEncoding;

use super::bad_input::message;
use super::tables::EDGES;
use super::*;
use crate::read::golden::npy;

#[test]
fn the_row_behind_one_that_does_not_count_is_kept() {
    let input = folder(EDGES, "f0,id\n900,10\n1,10\n2,20\n3,30\n4,40\n");
    let (dataset, _) = converted(&input, "--schema on-duplicate=last");
    assert_eq!(rows(&dataset).concat(), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn rows_that_do_not_count_take_no_part_in_scales() {
    let nodes = "f0,town,id\n1,a,10\n900,x,20\n3,b,20\n5,a,30\n7,b,40\n900,x,40\n";
    let input = folder(EDGES, nodes);
    for (keep, kept, mean) in [
        ("first", "f0,town,id\n1,a,10\n900,x,20\n5,a,30\n7,b,40\n", 228.25),
        ("last", "f0,town,id\n1,a,10\n3,b,20\n5,a,30\n900,x,40\n", 227.25),
    ] {
        let words = "--schema scale=standard --label-column none --schema encode=town=onehot";
        let clean = folder(EDGES, kept);
        let (expected, _) = converted(&clean, words);
        let (found, notes) = converted(&input, &format!("{words} --schema on-duplicate={keep}"));
        assert!(
            notes.contains(
                "--schema on-duplicate: 2 of 6 rows are left out: their vertices have another one"
            ),
            "{notes}"
        );
        assert_eq!(found.manifest().recipe, expected.manifest().recipe);
        assert_eq!(rows(&found), rows(&expected));
        let encoding = found.manifest().recipe.as_ref().unwrap().features[0].encoding.clone();
        let is_mean = matches!(encoding, FeatureEncoding::Number { shift, .. } if (shift - mean).abs() < 1e-9);
        assert!(is_mean, "{encoding:?}");
    }
    let input = folder(EDGES, "id,f0\n10,1\n20,2\n");
    let (_, notes) = converted(&input, "--schema missing-rows=fill --schema fill=0");
    assert!(
        notes.contains("--schema missing-rows: 2 vertices without a row get one of missing values"),
        "{notes}"
    );
}

#[test]
fn typed_columns_with_nulls_and_of_other_types_stop_nothing() {
    let classes = [
        Some(vec![Some(1), Some(0)]),
        None,
        Some(vec![Some(1), Some(1)]),
        Some(vec![None, Some(1)]),
    ];
    let input = folder(EDGES, "");
    let path = input.path().join("nodes.parquet");
    let columns = vec![
        ("id", Arc::new(Int64Array::from(vec![10, 20, 30, 40])) as ArrayRef),
        ("f0", Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0, 4.0]))),
        ("rank", Arc::new(Int64Array::from(vec![Some(7), None, Some(9), Some(8)]))),
        ("since", Arc::new(DurationSecondArray::from(vec![1, 2, 3, 4]))),
        ("label", Arc::new(ListArray::from_iter_primitive::<UInt8Type, _, _>(classes))),
    ];
    write_parquet(&path, columns);
    let nodes = format!("--nodes {}", path.display());
    let (dataset, notes) = converted(&input, &format!("{nodes} --feature-columns f0"));
    assert_eq!(rows(&dataset), [[1.0], [2.0], [3.0], [4.0]]);
    assert!(notes.contains("left out the columns since, which hold no numbers"), "{notes}");
    assert!(notes.contains("labels: 1 of 4 vertices are unlabelled"), "{notes}");
    let labels = dataset.multi_labels().unwrap();
    assert_eq!([1, 3].map(|v| labels.num_known(v)), [Some(0), Some(1)]);
    let columns = &dataset.manifest().columns;
    assert_eq!(columns.keys().collect::<Vec<_>>(), ["rank"]);
    // If no label is named, types without numbers do not matter.
    let (dataset, _) = converted(
        &input,
        &format!(
            "{nodes} --label-column none --schema fill=0 --schema \
                                    scale=none"
        ),
    );
    // Lists are features next to the others.
    assert_eq!(rows(&dataset)[0], [1.0, 7.0, 0.0, 1.0, 0.0]);
    assert_eq!(rows(&dataset)[1], [2.0, 0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn arrays_with_gaps_name_the_option() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = |numbers: &[f32]| {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>()
    };
    let write = |name: &str, shape: &str, numbers: &[f32]| {
        fs::write(folder.path().join(name), npy("<f4", false, shape, &bytes(numbers))).unwrap();
    };
    let edges: Vec<u8> = [0i64, 1, 2, 1, 2, 0].iter().flat_map(|id| id.to_le_bytes()).collect();
    fs::write(folder.path().join("edge_index.npy"), npy("<i8", false, "(2, 3)", &edges)).unwrap();
    write("feat.npy", "(3, 2)", &[1.0, f32::NAN, 3.0, 4.0, 5.0, 6.0]);
    write("label.npy", "(3,)", &[0.5, 1.0, 2.0]);
    let told = |words: &str, expected: &str| {
        let found = message(folder.path(), &options(words));
        assert!(found.contains(expected), "{found}");
    };
    told("", "label 0.5: ");
    told("", "pass --schema label-kind=number for a number to learn");
    let gap = "feature NaN: expected a finite 32-bit number: pass --schema fill=NUMBER or --schema \
               fill=mean";
    told("--schema label-kind=number", gap);
    for (words, expected) in [
        ("--schema fill=-2", [[1.0, -2.0], [3.0, 4.0], [5.0, 6.0]]),
        ("--schema fill=mean", [[1.0, 5.0], [3.0, 4.0], [5.0, 6.0]]),
        ("--schema fill=5 --schema scale=minmax", [[0.0, 0.5], [0.5, 0.0], [1.0, 1.0]]),
    ] {
        let words = format!("--schema label-kind=number {words}");
        assert_eq!(
            rows(&convert_new(folder.path(), &options(&words)).unwrap().1),
            expected,
            "{words}"
        );
    }
}
