//! GraphBolt, DGL's chunks and PyG.

use gsplit_store::{PartitionConfig, PartitionMap, PartitionReport};
use serde_json::Value;

use super::*;

fn ends(example: &Example) -> StoredArray {
    let sources = example.edges.iter().map(|edge| f64::from(edge.0));
    let values = sources.chain(example.edges.iter().map(|edge| f64::from(edge.1))).collect();
    StoredArray { descr: "<i8".into(), shape: vec![2, example.edges.len()], values }
}

fn features(example: &Example) -> StoredArray {
    let values = example.features.iter().map(|&value| f64::from(value)).collect();
    StoredArray { descr: "<f4".into(), shape: vec![example.n, DIM], values }
}

fn labels(example: &Example, kind: Kind, vertices: &[u32]) -> StoredArray {
    let label = |v: &u32| example.labels[*v as usize];
    if kind == Kind::Single {
        let values = vertices.iter().map(|v| f64::from(label(v))).collect();
        return StoredArray { descr: "<i8".into(), shape: vec![vertices.len()], values };
    }
    let bits = |v: &u32| {
        let classes = classes_of(label(v));
        (0..CLASSES).map(move |class| f64::from(classes >> class & 1))
    };
    let shape = vec![vertices.len(), CLASSES as usize];
    StoredArray { descr: "<f4".into(), shape, values: vertices.iter().flat_map(bits).collect() }
}

fn column(descr: &str, values: impl Iterator<Item = f64>) -> StoredArray {
    let values: Vec<f64> = values.collect();
    StoredArray { descr: descr.into(), shape: vec![values.len()], values }
}

#[test]
fn oracle_graphbolt_arrays() {
    for kind in [Kind::Single, Kind::Multi] {
        let example = example(kind, 90, 700, 8);
        let out = example.write(ExportFormat::Graphbolt, "gb");
        assert_eq!(npy(&out.join("edges/edges.npy")), ends(&example));
        assert_eq!(npy(&out.join("node/feat.npy")), features(&example));
        let years = example.years.iter().map(|&year| year as f64);
        assert_eq!(npy(&out.join("node/year.npy")), column("<i8", years));
        assert_eq!(npy(&out.join("edge/feat.npy")).shape, [700, 2]);
        for (set, vertices) in ["train", "validation", "test"].iter().zip(&example.splits) {
            let seeds = column("<i8", vertices.iter().map(|&v| f64::from(v)));
            assert_eq!(npy(&out.join(format!("set/{set}-seeds.npy"))), seeds);
            assert_eq!(npy(&out.join(format!("set/{set}-labels.npy"))), labels(&example, kind, vertices));
        }
        let text = fs::read_to_string(out.join("metadata.yaml")).unwrap();
        let expected =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/export/tests/graphbolt.yaml")).unwrap();
        // One class each has names.
        let has = |line: &&str| kind == Kind::Single || !line.contains("class_names");
        assert!(text.lines().eq(expected.lines().filter(has)), "{text}");
    }
}

#[test]
fn oracle_pyg_arrays() {
    for kind in [Kind::Single, Kind::Multi] {
        let example = example(kind, 90, 700, 9);
        let out = example.write(ExportFormat::Pyg, "pyg");
        assert_eq!(npy(&out.join("edge_index.npy")), ends(&example));
        assert_eq!(npy(&out.join("x.npy")), features(&example));
        let all: Vec<u32> = (0..90).collect();
        assert_eq!(npy(&out.join("y.npy")), labels(&example, kind, &all));
        for (name, members) in ["train", "val", "test"].iter().zip(&example.splits) {
            let mask = column("|u1", all.iter().map(|v| f64::from(u8::from(members.contains(v)))));
            assert_eq!(npy(&out.join(format!("{name}_mask.npy"))), mask);
        }
        let weights = column("<f4", example.weights.iter().map(|&weight| f64::from(weight)));
        assert_eq!(npy(&out.join("edge_weight.npy")), weights);
        assert_eq!(npy(&out.join("edge_attr.npy")).shape, [700, 2]);
        assert_eq!(npy(&out.join("year.npy")).shape, [90]);
        let names = fs::read(out.join("class_names.json")).ok();
        let names = names.map(|names| serde_json::from_slice::<Vec<String>>(&names).unwrap());
        assert_eq!(names, (kind == Kind::Single).then(|| class_names(&example.labels)));
        assert_eq!(fs::read_to_string(out.join("num_nodes.txt")).unwrap(), "90\n");
    }
}

#[test]
fn numbers_are_f32_labels_and_nan_where_there_is_none() {
    let example = example(Kind::Number, 90, 700, 9);
    // NaN is no equal of itself.
    let bits = |numbers: &[f64]| numbers.iter().map(|&number| (number as f32).to_bits()).collect::<Vec<u32>>();
    let expected = |vertices: &[u32]| {
        vertices.iter().map(|&v| number_of(example.labels[v as usize]).to_bits()).collect::<Vec<u32>>()
    };
    let check = |found: StoredArray, vertices: &[u32]| {
        assert_eq!((&*found.descr, &found.shape[..]), ("<f4", &[vertices.len()][..]));
        assert_eq!(bits(&found.values), expected(vertices));
    };
    let all: Vec<u32> = (0..90).collect();
    assert!(example.labels.contains(&-1));
    check(npy(&example.write(ExportFormat::Pyg, "pyg").join("y.npy")), &all);
    let graphbolt = example.write(ExportFormat::Graphbolt, "gb");
    check(npy(&graphbolt.join("set/test-labels.npy")), &example.splits[2]);
    let text = fs::read_to_string(graphbolt.join("metadata.yaml")).unwrap();
    assert!(text.contains("name: node_regression") && !text.contains("num_classes"), "{text}");
    let dgl = example.export(ExportFormat::Dgl, "dgl", &ExportOptions { chunks: Some(4), ..Default::default() });
    let metadata: Value = serde_json::from_slice(&fs::read(dgl.join("metadata.json")).unwrap()).unwrap();
    assert_eq!(bits(&chunks(&dgl, &metadata["node_data"]["_N"]["label"])), expected(&all));
}

#[test]
fn a_graph_without_edges_has_arrays_of_that_shape() {
    let example = example(Kind::Bare, 7, 0, 1);
    for (format, name) in [(ExportFormat::Pyg, "edge_index.npy"), (ExportFormat::Graphbolt, "edges/edges.npy")] {
        assert_eq!(npy(&example.write(format, &format.to_string()).join(name)).shape, [2, 0]);
    }
}

#[test]
fn no_chunk_of_edges_is_empty() {
    let example = example(Kind::Bare, 7, 3, 1);
    let options = ExportOptions { chunks: Some(9), ..Default::default() };
    let out = example.export(ExportFormat::Dgl, "dgl", &options);
    let metadata: Value = serde_json::from_slice(&fs::read(out.join("metadata.json")).unwrap()).unwrap();
    assert_eq!(metadata["num_edges_per_chunk"], serde_json::json!([[1, 1, 1]]));
    assert_eq!(metadata["num_nodes_per_chunk"], serde_json::json!([[3, 2, 2]]));
}

/// The concatenation of the chunks that the metadata names.
fn chunks(out: &Path, entry: &Value) -> Vec<f64> {
    assert_eq!(entry["format"]["name"], "numpy");
    let files = entry["data"].as_array().unwrap().iter();
    files.flat_map(|file| npy(&out.join(file.as_str().unwrap())).values).collect()
}

#[test]
fn oracle_dgl_chunks() {
    for (kind, pieces) in [(Kind::Single, 1), (Kind::Single, 7), (Kind::Multi, 11)] {
        let example = example(kind, 90, 700, 10);
        let options = ExportOptions { chunks: Some(pieces), ..Default::default() };
        let out = example.export(ExportFormat::Dgl, &format!("dgl{pieces}"), &options);
        let metadata: Value = serde_json::from_slice(&fs::read(out.join("metadata.json")).unwrap()).unwrap();
        for (key, total) in [("num_nodes_per_chunk", 90), ("num_edges_per_chunk", 700)] {
            let sizes: Vec<u64> = serde_json::from_value(metadata[key][0].clone()).unwrap();
            assert_eq!((sizes.len(), sizes.iter().sum::<u64>()), (pieces as usize, total));
        }
        let mut edges = Vec::new();
        let files = metadata["edges"]["_N:_E:_N"]["data"].as_array().unwrap();
        for (file, size) in files.iter().zip(metadata["num_edges_per_chunk"][0].as_array().unwrap()) {
            let text = fs::read_to_string(out.join(file.as_str().unwrap())).unwrap();
            assert_eq!(text.lines().count() as u64, size.as_u64().unwrap());
            edges.extend(text.lines().map(|line| {
                let (u, v) = line.split_once(' ').unwrap();
                (u.parse::<u32>().unwrap(), v.parse::<u32>().unwrap())
            }));
        }
        assert_eq!(edges, example.edges);
        let nodes = &metadata["node_data"]["_N"];
        let all: Vec<u32> = (0..90).collect();
        assert_eq!(chunks(&out, &nodes["feat"]), features(&example).values);
        assert_eq!(chunks(&out, &nodes["label"]), labels(&example, kind, &all).values);
        assert_eq!(chunks(&out, &nodes["year"]), example.years.iter().map(|&year| year as f64).collect::<Vec<_>>());
        let mask: Vec<f64> = all.iter().map(|v| f64::from(u8::from(example.splits[1].contains(v)))).collect();
        assert_eq!(chunks(&out, &nodes["val_mask"]), mask);
        let weights = chunks(&out, &metadata["edge_data"]["_N:_E:_N"]["weight"]);
        assert_eq!(weights, example.weights.iter().map(|&weight| f64::from(weight)).collect::<Vec<_>>());
    }
}

#[test]
fn dgl_gets_the_parts_of_a_partition() {
    let example = example(Kind::Bare, 50, 200, 3);
    let assignment: Vec<u16> = (0..50).map(|v| v * 7 % 3).collect();
    let mut order: Vec<u32> = (0..50).collect();
    order.sort_by_key(|&v| (assignment[v as usize], v));
    let sizes = (0..3).map(|part| assignment.iter().filter(|&&p| p == part).count() as u64).collect();
    let (partitioner, weights) = ("gsplit".into(), "degree".into());
    let config = PartitionConfig {
        parts: 3,
        servers: 1,
        targets: None,
        partitioner,
        weights,
        epsilon: 0.1,
        seed: 0,
        source: None,
    };
    let report: PartitionReport = serde_json::from_value(serde_json::json!({
        "part_sizes": Vec::<u64>::clone(&sizes), "cut": 0, "adjacent_pairs": 0, "weighted_cut": 0, "total_weight": 0,
        "imbalance": 1.0, "balance": { "vertices": 1.0, "edges": 1.0, "targets": null, "work": null },
        "expected_cross_share": 0.0, "expected_cross_edges": null,
    }))
    .unwrap();
    PartitionMap::save(&example.dataset, "three", None, config, report, &assignment, &order, false).unwrap();
    let options = ExportOptions { partition: Some("three".into()), ..Default::default() };
    let out = example.export(ExportFormat::Dgl, "dgl", &options);
    let parts = fs::read_to_string(out.join("partition/_N.txt")).unwrap();
    assert_eq!(parts.lines().map(|line| line.parse().unwrap()).collect::<Vec<u16>>(), assignment);
    let meta: Value = serde_json::from_slice(&fs::read(out.join("partition/partition_meta.json")).unwrap()).unwrap();
    assert_eq!(meta, serde_json::json!({ "version": "1.0.0", "num_parts": 3, "algo_name": "metis" }));
    let metadata: Value = serde_json::from_slice(&fs::read(out.join("metadata.json")).unwrap()).unwrap();
    assert_eq!(metadata["num_nodes_per_chunk"], serde_json::json!([[17, 17, 16]]));
}
