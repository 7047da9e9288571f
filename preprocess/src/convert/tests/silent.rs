//! Inputs that once gave a wrong graph, label or split without a word.

use std::sync::Arc;

use super::bad_input::message;
use super::*;
use crate::export::{ExportFormat, ExportOptions, export};
use crate::read::golden::npy;

/// A folder with these files.
fn files(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn splits(dataset: &Dataset) -> [Vec<u32>; 3] {
    Split::ALL.map(|split| dataset.split(split).unwrap().to_vec())
}

#[test]
fn one_percent_sign_is_a_matrix_too() {
    let text = "%MatrixMarket matrix coordinate pattern symmetric\n4 4 2\n2 1\n3 2\n";
    let (_folder, path) = file("g.mtx", text);
    let (_out, dataset) = convert_new(&path, &options("")).unwrap();
    assert_eq!((dataset.num_vertices(), dataset.topology().num_edges()), (4, 4));
}

#[test]
fn folder_names_are_columns() {
    let folder = files(&[
        ("edges.csv", "src,dst\n1,2\n2,3\n3,4\n"),
        ("people/split=train/0.csv", "id,x,label\n1,0.5,a\n2,1.5,b\n"),
        ("people/split=valid/0.csv", "id,x,label\n3,2.5,a\n"),
        ("people/split=test/0.csv", "id,x,label\n4,3.5,b\n"),
        ("days/day=1/0.csv", "src,dst\n1,2\n"),
        ("days/day=2/0.csv", "src,dst\n2,3\n"),
    ]);
    let nodes = folder.path().join("people");
    let options = options(&format!("--nodes {} --directed", nodes.display()));
    let (_out, dataset) = convert_new(&folder.path().join("edges.csv"), &options).unwrap();
    assert_eq!(splits(&dataset), [vec![0, 1], vec![2], vec![3]]);
    assert_eq!(dataset.features().unwrap().dim(), 1);
    let days = folder.path().join("days");
    let (_out, days) = convert_new(&days, &super::options("")).unwrap();
    assert_eq!(days.edge_column("day").unwrap().as_slice::<i64>().unwrap(), [1, 2]);
}

#[test]
fn splits_are_told_by_their_values() {
    let edges = "src,dst\n1,2\n2,3\n3,4\n";
    let nodes = "id,x,partition,label\n1,1,train,0\n2,2,train,1\n3,3,val,0\n4,4,test,1\n";
    let input = folder(edges, nodes);
    let (dataset, notes) = converted(&input, "");
    assert_eq!(splits(&dataset), [vec![0, 1], vec![2], vec![3]]);
    assert!(notes.contains("splits from `partition`"), "{notes}");
    let several = "id,a,b,label\n1,train,test,0\n2,test,train,1\n3,val,val,0\n4,test,test,1\n";
    refused(&folder(edges, several), "", &["`a`, `b` hold the names of splits: pass --split"]);
    let (dataset, _) = converted(&input, "--split-column none");
    assert!(dataset.manifest().splits().is_empty());
}

#[test]
fn a_label_has_two_values() {
    let nodes = "id,x,labels,kind\n1,1,Paper,a\n2,2,Paper,b\n3,3,Paper,a\n4,4,Paper,b\n";
    let input = folder("src,dst\n1,2\n2,3\n3,4\n", nodes);
    let question = "column `labels` holds `Paper` and no other value, so it cannot be the label";
    refused(&input, "", &[question, "`id`, `x`, `labels`, `kind`"]);
    assert_eq!(labels(&converted(&input, "--label-column kind").0), [0, 1, 0, 1]);
}

#[test]
fn tables_with_a_log_are_refused_with_the_command_that_writes_them() {
    for (mark, words) in [
        ("_delta_log/0.json", "a Delta table, whose log says which of its files count: write it"),
        (".hoodie/hoodie.properties", "a Hudi table"),
        ("metadata/v1.metadata.json", "iceberg_scan"),
    ] {
        let input = files(&[("t/part-0.csv", "src,dst\n1,2\n"), (&format!("t/{mark}"), "{}")]);
        let found = message(&input.path().join("t"), &options("--format csv"));
        assert!(found.contains(words) && found.contains("plain Parquet"), "{found}");
    }
}

#[test]
fn what_lies_next_to_the_edges_is_named() {
    let input = files(&[
        ("g/edges.csv", "src,dst\n1,2\n"),
        ("g/labels.tsv", "1\t0\n2\t1\n"),
        ("g/features.csv", "id,x\n1,2\n"),
    ]);
    for (path, expected) in [
        ("g", "g: not read: features.csv, labels.tsv. --nodes names a table of vertices"),
        ("g/edges.csv", "g/edges.csv, not read: features.csv, labels.tsv. --nodes names data"),
    ] {
        let (out, notes) = (tempfile::tempdir().unwrap(), Notes::default());
        let path = input.path().join(path);
        convert(&path, &out.path().join("ds"), &options(""), false, &notes).unwrap();
        assert!(notes.lines().join("\n").contains(expected), "{:?}", notes.lines());
    }
}

#[test]
fn years_and_own_splits_of_ogb_are_read() {
    let folder = copy("ogb-csv");
    let raw = folder.path().join("raw");
    fs::write(raw.join("node_year.csv"), "2010\n2011\n2012\n2013\n2014\n2015\n").unwrap();
    let split = folder.path().join("split");
    fs::remove_dir_all(&split).unwrap();
    fs::create_dir_all(split.join("random")).unwrap();
    fs::copy(data("pt/split_dict.pt"), split.join("random/split_dict.pt")).unwrap();
    let (_out, dataset) = convert_new(folder.path(), &options("")).unwrap();
    let years = dataset.node_column("year").unwrap();
    assert_eq!(years.as_slice::<i64>().unwrap(), [2010, 2011, 2012, 2013, 2014, 2015]);
    assert_eq!(splits(&dataset), [vec![0, 3], vec![1], vec![4, 5]]);
    let refused = message(folder.path(), &options("--edge-columns weight"));
    assert!(refused.contains("--edge-columns weight"), "{refused}");
}

#[test]
fn numbers_of_the_edges_of_ogb_are_columns() {
    // Sorted by target, as datasets keep them.
    let column = |dataset: &Dataset, name: &str| -> Vec<f64> {
        let column = dataset.edge_column(name).unwrap();
        match column.as_slice::<f32>() {
            Ok(values) => values.iter().map(|&value| value.into()).collect(),
            Err(_) => column.as_slice::<i64>().unwrap().iter().map(|&value| value as f64).collect(),
        }
    };
    let folder = copy("ogb-csv");
    let raw = folder.path().join("raw");
    let lines = |each: &dyn Fn(u32) -> String| (0..10).map(each).collect::<String>();
    fs::write(raw.join("edge-feat.csv"), lines(&|edge| format!("{edge}.5,{edge}\n"))).unwrap();
    fs::write(raw.join("edge_weight.csv.gz"), gz(&lines(&|edge| format!("{edge}\n")))).unwrap();
    fs::write(raw.join("edge_year.csv"), lines(&|edge| format!("{}\n", 2000 + edge))).unwrap();
    let (_out, dataset) = convert_new(folder.path(), &options("--keep-duplicates")).unwrap();
    let weights = column(&dataset, "weight");
    let mut order = weights.clone();
    order.sort_by(f64::total_cmp);
    assert_eq!(order, (0..10).map(f64::from).collect::<Vec<_>>());
    let years: Vec<f64> = weights.iter().map(|weight| 2000.0 + weight).collect();
    let feats: Vec<f64> = weights.iter().flat_map(|weight| [weight + 0.5, *weight]).collect();
    assert_eq!((column(&dataset, "year"), column(&dataset, "feat")), (years, feats));
    let only = options("--keep-duplicates --edge-columns year");
    let (_out, dataset) = convert_new(folder.path(), &only).unwrap();
    assert_eq!(dataset.manifest().edge_columns.keys().collect::<Vec<_>>(), ["year"]);
    for (name, text, expected) in [
        ("edge_year.csv", lines(&|_| "2000,1\n".into()) + "1,1\n", "edge.csv.gz: fewer lines"),
        ("edge_year.csv", "2000\n".into(), "edge_year.csv: fewer lines than the files next to it"),
        (
            "edge_year.csv",
            lines(&|edge| if edge == 1 { "1,2\n" } else { "1\n" }.into()),
            "line 2: more numbers of the edge than",
        ),
        (
            "edge-feat.csv",
            lines(&|edge| if edge == 1 { "1\n" } else { "1,2\n" }.into()),
            "line 2: expected a value of feat",
        ),
    ] {
        let folder = copy("ogb-csv");
        fs::write(folder.path().join("raw").join(name), text).unwrap();
        let found = message(folder.path(), &options(""));
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn one_way_edges_of_ogb_are_named() {
    for (name, words, is_named) in [
        ("ogbn_products", "", true),
        ("ogbn_products", "--symmetrise", false),
        ("ogbn_arxiv", "", false),
    ] {
        let folder = copy("ogb-csv");
        let path = folder.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::rename(folder.path().join("raw"), path.join("raw")).unwrap();
        let (notes, out) = (Notes::default(), folder.path().join("ds"));
        convert(&path, &out, &options(words), false, &notes).unwrap();
        let notes = notes.lines().join("\n");
        assert_eq!(
            notes.contains("OGB adds the reverses; so does --symmetrise"),
            is_named,
            "{notes}"
        );
    }
}

#[test]
fn splits_of_mag240m_are_read_and_other_types_are_named() {
    let folder = copy("mag240m");
    fs::copy(data("pt/split_dict.pt"), folder.path().join("split_dict.pt")).unwrap();
    fs::create_dir_all(folder.path().join("processed/author___writes___paper")).unwrap();
    for (words, test) in [("", 4), ("--schema split-name=test-challenge", 5)] {
        let (out, notes) = (tempfile::tempdir().unwrap(), Notes::default());
        let made = convert(folder.path(), &out.path().join("ds"), &options(words), false, &notes);
        assert_eq!(splits(&made.unwrap().0), [vec![0, 3], vec![1], vec![test]]);
        let notes = notes.lines().join("\n");
        assert!(notes.contains("not read: author___writes___paper"), "{notes}");
    }
    let unknown = message(folder.path(), &options("--schema split-name=valid"));
    assert!(unknown.contains("--schema split-name=valid: expected a test split"), "{unknown}");
}

#[test]
fn masks_may_list_the_vertices() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, shape: &str, numbers: &[i64]| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        fs::write(folder.path().join(name), npy("<i8", false, shape, &bytes)).unwrap();
    };
    write("edge_index.npy", "(2, 3)", &[0, 1, 2, 1, 2, 0]);
    write("label.npy", "(5,)", &[0, 1, 0, 1, 0]);
    write("train_mask.npy", "(2,)", &[0, 4]);
    write("val_mask.npy", "(1,)", &[1]);
    write("test_mask.npy", "(5,)", &[0, 0, 1, 1, 0]);
    let (_out, dataset) = convert_new(folder.path(), &options("")).unwrap();
    assert_eq!(splits(&dataset), [vec![0, 4], vec![1], vec![2, 3]]);
    write("train_mask.npy", "(4,)", &[0, 1, 1, 0]);
    let found = message(folder.path(), &options(""));
    assert!(found.contains("expected a mask of 5 vertices"), "{found}");
}

#[test]
fn an_export_that_loses_links_says_so() {
    let folder = copy("ogb-csv");
    fs::remove_dir_all(folder.path().join("split")).unwrap();
    let to = folder.path().join("split/time");
    fs::create_dir_all(&to).unwrap();
    fs::copy(data("ogb-links/dict/split_dict.pt"), to.join("split_dict.pt")).unwrap();
    let (out, dataset) = convert_new(folder.path(), &options("")).unwrap();
    let to = out.path().join("tables");
    let options = ExportOptions::default();
    let written = export(&dataset, ExportFormat::Parquet, &to, &options, &NoProgress).unwrap();
    assert_eq!(written.left_out, ["the split of links"]);
}

#[test]
fn bytes_of_parquet_are_strings_where_they_are_text() {
    use arrow_array::BinaryArray;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edges.parquet");
    let bytes =
        |values: [&'static [u8]; 3]| Arc::new(BinaryArray::from_iter_values(values)) as ArrayRef;
    let columns = vec![
        ("src", bytes([b"ada", b"bob", b"eve"])),
        ("dst", bytes([b"bob", b"eve", b"ada"])),
        ("picture", bytes([b"\xff\xd8", b"\xff\xd9", b"x"])),
    ];
    write_parquet(&path, columns);
    let (_out, dataset) = convert_new(&path, &options("")).unwrap();
    let names = dataset.original_names().unwrap().unwrap();
    assert_eq!((0..3).map(|v| names.get(v).unwrap()).collect::<Vec<_>>(), ["ada", "bob", "eve"]);
    assert!(dataset.manifest().edge_columns.is_empty());
}

#[test]
fn gaps_in_lists_next_to_other_features_are_refused() {
    use arrow_array::types::Float32Type;
    use arrow_array::{Float64Array, Int64Array, ListArray};
    let input = folder("src,dst\n1,2\n2,3\n", "");
    let path = input.path().join("nodes.parquet");
    let nodes = format!("--nodes {}", path.display());
    let write = |second: Option<Vec<Option<f32>>>| {
        let lists =
            vec![Some(vec![Some(1.0), Some(2.0)]), second, Some(vec![Some(3.0), Some(4.0)])];
        let columns = vec![
            ("id", Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef),
            ("age", Arc::new(Float64Array::from(vec![5.0, 6.0, 7.0]))),
            ("vector", Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(lists))),
        ];
        write_parquet(&path, columns);
    };
    for gap in [None, Some(vec![Some(f32::NAN), Some(2.0)]), Some(vec![None, Some(2.0)])] {
        write(gap);
        refused(&input, &nodes, &["nodes.parquet"]);
    }
    write(Some(vec![Some(8.0), Some(9.0)]));
    let (dataset, _) = converted(&input, &nodes);
    assert_eq!(rows(&dataset), [[5.0, 1.0, 2.0], [6.0, 8.0, 9.0], [7.0, 3.0, 4.0]]);
}
