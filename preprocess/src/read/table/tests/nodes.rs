//! Tables of vertices.

use std::fs;

use xxhash_rust::xxh3::xxh3_64;

use super::*;
use crate::read::raw::Column;

/// The table at `path`, for a graph whose ids are integers, or strings in `nodes.arrow`.
fn nodes(path: &Path, schema: Schema) -> Result<crate::read::table::nodes::NodeTable> {
    let edges = if path.ends_with("nodes.arrow") { "names.parquet" } else { "edges.csv" };
    let edges = by_default(&fixture(edges))?.edges;
    super::nodes(path, Some(edges.as_ref()), &schema.into(), &NoProgress, &mut Vec::new())
}

const ORDER: [u64; 6] = [4, 2, 0, 5, 1, 3];

fn bytes(column: &dyn Column) -> Vec<u8> {
    let mut all = Vec::new();
    column
        .read(&NoProgress, &mut |rows| {
            all.extend_from_slice(rows);
            Ok(())
        })
        .unwrap();
    assert!(column.num_rows().is_none_or(|rows| rows == 6));
    all
}

/// Features, labels (-1 for none), and the years of tests/data/make_tables.py, in its order.
fn features() -> Vec<u8> {
    ORDER
        .iter()
        .flat_map(|&v| (0..3).flat_map(move |c| (v as f32 + c as f32 / 4.0).to_le_bytes()))
        .collect()
}

const LABELS: [i64; 6] = [1, -1, 0, 0, 1, 2];

#[test]
fn every_writer_gives_the_same_vertices() {
    for name in ["nodes.parquet", "nodes.arrow", "nodes.tsv"] {
        let as_is = Schema { scale: Some(Scale::None), ..Schema::default() };
        let table = nodes(&fixture(name), as_is).unwrap();
        let strings = table.has_string_ids();
        assert_eq!(strings, name == "nodes.arrow");
        let names = ["zero", "one", "two", "three", "four", "five"];
        let id = |v: u64| if strings { xxh3_64(names[v as usize].as_bytes()) } else { v };
        let batch = read(table.ids.as_deref().unwrap()).unwrap();
        assert_eq!(batch.sources, ORDER.map(id), "{name}");
        assert!(batch.targets.is_empty() && batch.values.is_empty());
        assert_eq!(batch.names.len(), if strings { 6 } else { 0 });
        let labels = table.labels.column.unwrap();
        match labels.descr() {
            "<i8" => {
                assert_eq!(
                    bytes(labels.as_ref()),
                    LABELS.iter().flat_map(|l| l.to_le_bytes()).collect::<Vec<_>>()
                )
            }
            _ => {
                let label = |&l: &i64| if l < 0 { f64::NAN } else { l as f64 };
                assert_eq!((labels.descr(), name), ("<f8", "nodes.tsv"));
                let expected: Vec<u8> =
                    LABELS.iter().flat_map(|l| label(l).to_le_bytes()).collect();
                assert_eq!(bytes(labels.as_ref()), expected);
            }
        }
        let split = table.splits.unwrap();
        assert_eq!(split, [vec![id(0), id(3)], vec![id(1)], vec![id(4), id(5)]], "{name}");
        let found = table.features.unwrap();
        let columns: Vec<_> = table.columns.iter().map(|column| column.name()).collect();
        if name == "nodes.tsv" {
            // Without a list of features, numbers are features.
            assert_eq!((found.descr(), found.width(), columns.len()), ("<f4", 1, 0));
            let years: Vec<u8> =
                ORDER.iter().flat_map(|&v| (2000.0 + v as f32).to_le_bytes()).collect();
            assert_eq!(bytes(found.as_ref()), years);
        } else {
            // The list, and the number next to it.
            assert_eq!((found.descr(), found.width(), columns.len()), ("<f4", 4, 0));
            let row = |(at, &v): (usize, &u64)| {
                let year = (2000.0 + v as f32).to_le_bytes();
                let list = features()[12 * at..][..12].to_vec();
                [list, year.to_vec()]
            };
            let rows: Vec<u8> = ORDER.iter().enumerate().flat_map(row).flatten().collect();
            assert_eq!(bytes(found.as_ref()), rows, "{name}");
        }
    }
}

#[test]
fn masks_lists_and_several_labels() {
    let table = nodes(&fixture("masks.parquet"), Schema::default()).unwrap();
    assert_eq!(read(table.ids.as_deref().unwrap()).unwrap().sources, ORDER);
    assert_eq!(table.splits.unwrap(), [vec![0, 3], vec![1], vec![4, 5]]);
    let (features, labels) = (table.features.unwrap(), table.labels.column.unwrap());
    assert_eq!((features.descr(), features.width()), ("<f8", 2));
    let pair = |&v: &u64| [(v as f64).to_le_bytes(), (-(v as f64)).to_le_bytes()].concat();
    let negative_zero = |bytes: Vec<u8>| {
        bytes.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(
        negative_zero(bytes(features.as_ref())),
        negative_zero(ORDER.iter().flat_map(pair).collect())
    );
    assert_eq!((labels.descr(), labels.width()), ("<f4", 3));
    let flags = ORDER.map(|v| [v & 1, v >> 1 & 1, v >> 2]).concat();
    assert_eq!(
        bytes(labels.as_ref()),
        flags.iter().flat_map(|&flag| (flag as f32).to_le_bytes()).collect::<Vec<u8>>()
    );
    assert!(table.columns.is_empty());
}

#[test]
fn a_folder_of_two_tables_is_a_graph() {
    let raw = by_default(&fixture("graph")).unwrap();
    assert_eq!(read(raw.edges.as_ref()).unwrap().targets, TARGETS);
    assert_eq!(read(raw.node_ids.unwrap().as_ref()).unwrap().sources, ORDER);
    assert!(
        raw.features.is_some()
            && raw.labels.is_some()
            && raw.splits.is_some()
            && raw.columns.is_empty()
    );
    assert_eq!(raw.files.len(), 2);
    let other = ReadOptions { nodes: Some(fixture("nodes.tsv")), ..ReadOptions::default() };
    assert!(opened(&fixture("graph"), &other).unwrap().node_ids.is_none());
}

#[test]
fn bad_tables_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nodes.csv");
    for (text, options, expected) in [
        ("id,split\n1,train\n2,trian\n", None, "line 3: column `split`: `trian`: expected train"),
        ("weight\n0.5\n", None, "expected a column of ids"),
        ("id,w\n1,0.5\n", Some("w"), "column `w`: expected integers or strings"),
        ("id,w\n1,0.5\n", Some("z"), "has no column `z` for --id-column"),
        ("id,a b,a/b\n1,2,3\n", None, "two columns become `a_b`"),
    ] {
        fs::write(&path, text).unwrap();
        let schema = Schema {
            id_column: options.map(Into::into),
            feature_columns: Some(vec!["none".into()]),
            ..Schema::default()
        };
        let message = nodes(&path, schema).err().unwrap().to_string();
        assert!(message.contains("nodes.csv") && message.contains(expected), "{message}");
    }
}
