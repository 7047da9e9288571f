//! Parquet, read back through Arrow.

use ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int8Type, Int32Type, Int64Type};

use super::*;

/// All rows of a table, in the order of its parts.
fn table(folder: &Path) -> Vec<RecordBatch> {
    let mut parts: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    parts.sort();
    let open =
        |path| ParquetRecordBatchReaderBuilder::try_new(fs::File::open(path).unwrap()).unwrap();
    parts.into_iter().flat_map(|path| open(path).build().unwrap().map(Result::unwrap)).collect()
}

fn longs(batches: &[RecordBatch], name: &str) -> Vec<i64> {
    let values = |batch: &RecordBatch| batch[name].as_primitive::<Int64Type>().values().to_vec();
    batches.iter().flat_map(values).collect()
}

fn strings(batches: &[RecordBatch], name: &str) -> Vec<Option<String>> {
    let values = |batch: &RecordBatch| {
        batch[name].as_string::<i32>().iter().map(|s| s.map(str::to_string)).collect::<Vec<_>>()
    };
    batches.iter().flat_map(values).collect()
}

#[test]
fn oracle_tables_have_every_value() {
    for kind in [Kind::Single, Kind::Multi, Kind::Number] {
        let example = example(kind, 4000, 300_000, 12);
        let out = example.write(ExportFormat::Parquet, "tables");
        let edges = table(&out.join("edges"));
        assert_eq!(
            longs(&edges, "src"),
            example.edges.iter().map(|edge| i64::from(edge.0)).collect::<Vec<_>>()
        );
        assert_eq!(
            longs(&edges, "dst"),
            example.edges.iter().map(|edge| i64::from(edge.1)).collect::<Vec<_>>()
        );
        let weights = edges
            .iter()
            .flat_map(|batch| batch["weight"].as_primitive::<Float32Type>().values().to_vec());
        assert_eq!(weights.collect::<Vec<f32>>(), example.weights);
        let pairs = edges.iter().flat_map(|batch| {
            batch["feat"]
                .as_fixed_size_list()
                .values()
                .as_primitive::<Float64Type>()
                .values()
                .to_vec()
        });
        let expected = example
            .weights
            .iter()
            .enumerate()
            .flat_map(|(e, &weight)| [f64::from(weight), e as f64]);
        assert!(pairs.eq(expected));
        check_nodes(&example, kind, &table(&out.join("nodes")));
    }
}

fn check_nodes(example: &Example, kind: Kind, nodes: &[RecordBatch]) {
    let n = example.n;
    assert_eq!(longs(nodes, "id"), (0..n as i64).collect::<Vec<_>>());
    assert_eq!(longs(nodes, "year"), example.years);
    let rows = nodes.iter().flat_map(|batch| {
        batch["feat"].as_fixed_size_list().values().as_primitive::<Float32Type>().values().to_vec()
    });
    assert_eq!(rows.collect::<Vec<f32>>(), example.features);
    let splits = strings(nodes, "split");
    assert_eq!(splits.len(), n);
    for (v, split) in splits.iter().enumerate() {
        let expected = ["train", "valid", "test"]
            .into_iter()
            .zip(&example.splits)
            .find_map(|(name, members)| members.binary_search(&(v as u32)).is_ok().then_some(name));
        assert_eq!(split.as_deref(), expected);
    }
    match kind {
        Kind::Single => {
            let labels =
                nodes.iter().flat_map(|batch| batch["label"].as_primitive::<Int32Type>().iter());
            assert!(labels.eq(example.labels.iter().map(|&label| (label >= 0).then_some(label))));
            let names =
                example.labels.iter().map(|&label| (label >= 0).then(|| format!("class: {label}")));
            assert!(strings(nodes, "label_name").into_iter().eq(names));
            assert_eq!(
                longs(nodes, "original_id"),
                (0..n as i64).map(|v| v * 3 + 7).collect::<Vec<_>>()
            );
        }
        Kind::Number => {
            let numbers =
                nodes.iter().flat_map(|batch| batch["label"].as_primitive::<Float32Type>().iter());
            assert!(
                numbers
                    .eq(example.labels.iter().map(|&label| (label >= 0).then(|| number_of(label))))
            );
        }
        _ => {
            let bits = nodes.iter().flat_map(|batch| {
                batch["label"]
                    .as_fixed_size_list()
                    .values()
                    .as_primitive::<Int8Type>()
                    .values()
                    .to_vec()
            });
            let expected = example.labels.iter().flat_map(|&label| {
                let classes = classes_of(label);
                (0..CLASSES).map(move |class| (classes >> class & 1) as i8)
            });
            assert!(bits.eq(expected));
            let names = (0..n).map(|v| Some(format!("vertex/{v}")));
            assert!(strings(nodes, "original_id").into_iter().eq(names));
        }
    }
}

#[test]
fn edges_by_their_original_names() {
    let example = example(Kind::Multi, 50, 200, 12);
    let options = ExportOptions { original_ids: true, ..Default::default() };
    let edges = table(&example.export(ExportFormat::Parquet, "tables", &options).join("edges"));
    let expected = example.edges.iter().map(|edge| Some(format!("vertex/{}", edge.1)));
    assert!(strings(&edges, "dst").into_iter().eq(expected));
}

#[test]
fn empty_tables_have_their_columns() {
    let example = example(Kind::Bare, 6, 0, 12);
    let out = example.write(ExportFormat::Parquet, "tables");
    let part = fs::File::open(out.join("edges/part-00000.parquet")).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(part).unwrap();
    assert_eq!(
        reader.schema().fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(),
        ["src", "dst"]
    );
    assert_eq!(longs(&table(&out.join("nodes")), "id"), [0, 1, 2, 3, 4, 5]);
}
