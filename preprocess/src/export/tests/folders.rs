//! PyG's arrays.

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
    // NaN does not equal itself.
    let bits = |numbers: &[f64]| {
        numbers.iter().map(|&number| (number as f32).to_bits()).collect::<Vec<u32>>()
    };
    let expected = |vertices: &[u32]| {
        vertices
            .iter()
            .map(|&v| number_of(example.labels[v as usize]).to_bits())
            .collect::<Vec<u32>>()
    };
    let check = |found: StoredArray, vertices: &[u32]| {
        assert_eq!((&*found.descr, &found.shape[..]), ("<f4", &[vertices.len()][..]));
        assert_eq!(bits(&found.values), expected(vertices));
    };
    let all: Vec<u32> = (0..90).collect();
    assert!(example.labels.contains(&-1));
    check(npy(&example.write(ExportFormat::Pyg, "pyg").join("y.npy")), &all);
}

#[test]
fn a_graph_without_edges_has_arrays_of_that_shape() {
    let example = example(Kind::Bare, 7, 0, 1);
    assert_eq!(npy(&example.write(ExportFormat::Pyg, "pyg").join("edge_index.npy")).shape, [2, 0]);
}
