//! OGB's binary layout: arrays of many types, and every way in which an archive can be wrong.

use std::io::Cursor;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::bad_input::{Wrong, message};
use super::*;

/// An array of an archive under construction.
pub(super) struct ArchivedArray<'a> {
    name: &'a str,
    descr: &'a str,
    shape: &'a str,
    column_major: bool,
    bytes: Vec<u8>,
}

pub(super) fn array<'a>(
    name: &'a str,
    descr: &'a str,
    shape: &'a str,
    bytes: Vec<u8>,
) -> ArchivedArray<'a> {
    ArchivedArray { name, descr, shape, column_major: false, bytes }
}

pub(super) fn npz(arrays: &[ArchivedArray<'_>], method: CompressionMethod) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for ArchivedArray { name, descr, shape, column_major, bytes } in arrays {
        let order = if *column_major { "True" } else { "False" };
        let header =
            format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
        archive
            .start_file(
                format!("{name}.npy"),
                SimpleFileOptions::default().compression_method(method),
            )
            .unwrap();
        archive.write_all(b"\x93NUMPY\x01\x00").unwrap();
        archive.write_all(&(header.len() as u16).to_le_bytes()).unwrap();
        archive.write_all(header.as_bytes()).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

pub(super) fn i64s(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn ids<'a>(name: &'a str, shape: &'a str, values: &[i64]) -> ArchivedArray<'a> {
    array(name, "<i8", shape, i64s(values))
}

fn floats<'a>(name: &'a str, shape: &'a str, values: &[f32]) -> ArchivedArray<'a> {
    array(name, "<f4", shape, f32s(values))
}

/// The parts of a small binary graph: 3 vertices, 2 edges, 2 features.
fn parts() -> Vec<ArchivedArray<'static>> {
    vec![
        ids("num_nodes_list", "(1,)", &[3]),
        ids("num_edges_list", "(1,)", &[2]),
        ids("edge_index", "(2, 2)", &[0, 1, 1, 2]),
        floats("node_feat", "(3, 2)", &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
    ]
}

fn npz_folder(data: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("raw")).unwrap();
    fs::write(folder.path().join("raw/data.npz"), data).unwrap();
    folder
}

#[test]
fn arrays_of_other_types_and_orders() {
    let table = [
        array(
            "edge_index",
            "<i4",
            "(2, 2)",
            [0i32, 1, 1, 2].iter().flat_map(|id| id.to_le_bytes()).collect(),
        ),
        array("edge_index", "<u8", "(2, 2)", i64s(&[0, 1, 1, 2])),
        ArchivedArray { column_major: true, ..ids("edge_index", "(2, 2)", &[0, 1, 1, 2]) },
        array(
            "node_feat",
            "<f8",
            "(3, 2)",
            (0..6).flat_map(|x| f64::from(x).to_le_bytes()).collect(),
        ),
        array(
            "node_feat",
            "<f2",
            "(3, 2)",
            (0..6).flat_map(|x| half::f16::from_f32(x as f32).to_le_bytes()).collect(),
        ),
        array("node_feat", "|u1", "(3, 2)", vec![0, 1, 2, 3, 4, 5]),
    ];
    for replaced in table {
        let mut arrays = parts();
        let at = arrays.iter().position(|array| array.name == replaced.name).unwrap();
        arrays[at] = replaced;
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            let folder = npz_folder(&npz(&arrays, method));
            let (_folder, dataset) =
                convert_new(&ogb(folder.path()), &ConvertOptions::default()).unwrap();
            assert_eq!(dataset.topology().indices(), [0, 1]);
            assert_eq!(dataset.topology().indptr(), [0, 0, 1, 2]);
            assert_eq!(dataset.features().unwrap().row::<f32>(2), [4.0, 5.0]);
        }
    }
}

#[test]
fn numbers_of_vertices_and_edges_become_columns() {
    let mut arrays = parts();
    arrays.push(floats("edge_weight", "(2, 1)", &[0.5, 2.5]));
    arrays.push(ids("edge_year", "(2,)", &[2010, 2011]));
    arrays.push(ids("node_species", "(3, 1)", &[7, 8, 9]));
    let folder = npz_folder(&npz(&arrays, CompressionMethod::Stored));
    let (_out, dataset) = convert_new(folder.path(), &options("")).unwrap();
    assert_eq!(dataset.edge_column("weight").unwrap().as_slice::<f32>().unwrap(), [0.5, 2.5]);
    assert_eq!(dataset.edge_column("year").unwrap().as_slice::<i64>().unwrap(), [2010, 2011]);
    assert_eq!(dataset.node_column("species").unwrap().as_slice::<i64>().unwrap(), [7, 8, 9]);
    let (_out, dataset) = convert_new(folder.path(), &options("--edge-columns none")).unwrap();
    assert!(dataset.manifest().edge_columns.is_empty());
}

#[test]
fn splits_of_reddit_are_numbers() {
    let (folder, edges) = file("edges.txt", "0 1\n1 2\n2 0\n");
    let nodes = folder.path().join("reddit_data.npz");
    let arrays = |kinds: &[i64]| {
        [
            floats("feature", "(3, 1)", &[0.0, 1.0, 2.0]),
            ids("label", "(3,)", &[0, 1, 0]),
            ids("node_types", "(3,)", kinds),
        ]
    };
    let words = format!("--nodes {} --keep-ids", nodes.display());
    fs::write(&nodes, npz(&arrays(&[3, 1, 2]), CompressionMethod::Deflated)).unwrap();
    let (_out, dataset) = convert_new(&edges, &options(&words)).unwrap();
    assert_eq!(rows(&dataset), [[0.0], [1.0], [2.0]]);
    assert_eq!(Split::ALL.map(|split| dataset.split(split).unwrap().to_vec()), [[1], [2], [0]]);
    fs::write(&nodes, npz(&arrays(&[0, 1, 2]), CompressionMethod::Deflated)).unwrap();
    let found = message(&edges, &options(&words));
    assert!(found.contains("node_types: 0: expected 1, 2 or 3"), "{found}");
}

#[test]
fn archives() {
    let table: &[(ArchivedArray<'_>, &[&str])] = &[
        (
            ids("num_nodes_list", "(1,)", &[-3]),
            &["num_nodes_list: entry 0: -3: expected an id or count from 0"],
        ),
        (
            ids("num_nodes_list", "(2,)", &[3, 3]),
            &["expected one graph, found counts of shape [2]"],
        ),
        (
            array("num_nodes_list", "<f8", "(1,)", i64s(&[3])),
            &["num_nodes_list: entry 0: type <f8: expected integer ids"],
        ),
        (ids("num_nodes_list", "(1,)", &[4]), &["node_feat: 3 rows for 4 vertices"]),
        (
            ids("num_edges_list", "(1,)", &[3]),
            &["edge_index: expected shape [2, 3]", "found [2, 2]"],
        ),
        (
            ids("edge_index", "(2, 2)", &[0, 1, 1, 3]),
            &["edge_index: edge 1, target 3: expected ids below the number"],
        ),
        (
            ids("edge_index", "(2, 2)", &[0, -1, 1, 2]),
            &["edge_index: edge 1, source -1: expected an id"],
        ),
        (
            ids("edge_index", "(2, 2)", &[0, 1, 1]),
            &["[2, 2] of <i8, 24 bytes follow", "fetch or write it again"],
        ),
        (
            ids("edge_index", "(2, 2)", &[0, 1, 1, 2, 0]),
            &["promises shape [2, 2] of <i8, 40 bytes follow"],
        ),
        (ids("edge_index", "(2, 99999999999999)", &[0]), &["promises shape [2, 99999999999999]"]),
        (
            ids("edge_index", "(99999999999999, 99999999999999)", &[0]),
            &["promises shape [99999999999999, 99999999999999]"],
        ),
        (array("edge_index", ">i8", "(2, 2)", i64s(&[0])), &["type >i8: expected little-endian"]),
        (array("edge_index", "|O", "(2, 2)", i64s(&[0])), &["type |O"]),
        (
            array("edge_index", "<f8", "(2, 2)", i64s(&[0, 1, 1, 2])),
            &["edge_index: type <f8: expected integer ids"],
        ),
        (
            floats("node_feat", "(3, 2)", &[0.0; 5]),
            &["node_feat: its header promises", "20 bytes follow"],
        ),
        (
            floats("node_feat", "(3, 1, 2)", &[0.0; 6]),
            &["shape [3, 1, 2]: expected one or two dimensions"],
        ),
        (
            array("node_feat", "<f4", "(3, 0)", vec![]),
            &["data.npz: node_feat: rows of 0 numbers: expected 1 to"],
        ),
        (
            floats("node_feat", "(3, 3000000000)", &[0.0; 5]),
            &["data.npz: node_feat: its header promises"],
        ),
        (
            floats("node_feat", "(3, 2)", &[0.0, 0.0, 0.0, f32::NAN, 0.0, 0.0]),
            &["node_feat, row 1, column 1: feature NaN"],
        ),
        (
            floats("node_feat", "(3, 2000000000)", &[0.0; 5]),
            &["node_feat: its header promises", "20 bytes follow"],
        ),
        (
            ArchivedArray { column_major: true, ..floats("node_feat", "(3, 2)", &[0.0; 6]) },
            &["node_feat: shape (3, 2) stored column by column", "np.ascontiguousarray"],
        ),
    ];
    let mut wrong = Wrong::default();
    for (replaced, expected) in table {
        let ArchivedArray { name, descr, shape, column_major, bytes } = replaced;
        let mut arrays: Vec<_> = parts().into_iter().filter(|array| array.name != *name).collect();
        arrays.push(ArchivedArray {
            column_major: *column_major,
            ..array(name, descr, shape, bytes.clone())
        });
        let folder = npz_folder(&npz(&arrays, CompressionMethod::Deflated));
        let message = message(&ogb(folder.path()), &ConvertOptions::default());
        wrong.expect(format!("{name} {descr} {shape}"), &message, expected);
    }
    wrong.check();
    let folder = npz_folder(&npz(&parts()[1..], CompressionMethod::Stored));
    assert!(
        message(&ogb(folder.path()), &ConvertOptions::default())
            .contains("has no member num_nodes_list")
    );
}

#[test]
fn damaged_archives() {
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let good = npz(&parts(), method);
        for length in [0, 10, good.len() / 2, good.len() - 1] {
            let folder = npz_folder(&good[..length]);
            let message = message(&ogb(folder.path()), &ConvertOptions::default());
            assert!(
                message.contains("data.npz: ") && message.contains("download it again"),
                "{message}"
            );
        }
    }
}

#[test]
fn labels_in_archives() {
    let table: &[(ArchivedArray<'_>, Result<&[i32], &str>)] = &[
        (floats("node_label", "(3, 1)", &[2.0, f32::NAN, 0.0]), Ok(&[2, -1, 0])),
        (ids("node_label", "(3,)", &[2, 1, 0]), Ok(&[2, 1, 0])),
        (
            floats("node_label", "(3, 1)", &[2.0, 0.5, 0.0]),
            Err("node_label, row 1: label 0.5: expected a class"),
        ),
        (ids("node_label", "(3,)", &[2, -5, 0]), Err("node_label, row 1: label -5")),
        (
            ids("node_label", "(3,)", &[2, 2_000_000_000, 0]),
            Err("node_label, row 1: label 2000000000"),
        ),
        (floats("node_label", "(2, 1)", &[2.0, 0.5]), Err("node_label: 2 rows for 3 vertices")),
        (
            floats("node_label", "(3, 2)", &[2.0; 6]),
            Err("label 2: expected 0 or 1 for each of the 2 classes"),
        ),
        (floats("label", "(3, 2)", &[0.0; 6]), Err("node-label.npz: has no member node_label")),
    ];
    let mut wrong = Wrong::default();
    for (labels, expected) in table {
        let folder = npz_folder(&npz(&parts(), CompressionMethod::Stored));
        let bytes = npz(std::slice::from_ref(labels), CompressionMethod::Deflated);
        fs::write(folder.path().join("raw/node-label.npz"), bytes).unwrap();
        let source = ogb(folder.path());
        match expected {
            Ok(expected) => {
                let (_folder, dataset) = convert_new(&source, &ConvertOptions::default()).unwrap();
                assert_eq!(dataset.labels().unwrap()[..], **expected);
            }
            Err(part) => wrong.expect(part, &message(&source, &ConvertOptions::default()), &[part]),
        }
    }
    wrong.check();
}

#[test]
fn counts_that_would_exhaust_memory() {
    let folder = npz_folder(&npz(
        &[
            ids("num_nodes_list", "(1,)", &[4_000_000_000]),
            ids("num_edges_list", "(1,)", &[2]),
            ids("edge_index", "(2, 2)", &[0, 1, 1, 2]),
        ],
        CompressionMethod::Stored,
    ));
    let told = |source: &Path, words: &str, expected: &str| {
        let message = message(source, &options(words));
        assert!(message.contains(expected), "{message}");
    };
    told(folder.path(), "", "4000000000 vertices and only 2 edges");

    let folder = copy("ogb-csv");
    fs::write(folder.path().join("raw/num-node-list.csv.gz"), gz("4000000000\n")).unwrap();
    told(folder.path(), "", "num-node-list.csv.gz: 4000000000 vertices and only 10 edges");

    let (_folder, path) = file("edges.txt", "0 4000000000\n");
    told(&path, "--keep-ids", "edges.txt: 4000000001 vertices and only 1 edge:");
}

/// The form in which Shchur et al. (2018) store their benchmark: 3 vertices, 3 edges, 4 features,
/// most of them zero.
fn benchmark() -> Vec<ArchivedArray<'static>> {
    vec![
        ids("adj_indptr", "(4,)", &[0, 2, 3, 3]),
        ids("adj_indices", "(3,)", &[1, 2, 0]),
        floats("adj_data", "(3,)", &[1.0, 1.0, 1.0]),
        ids("adj_shape", "(2,)", &[3, 3]),
        ids("attr_indptr", "(4,)", &[0, 1, 1, 3]),
        ids("attr_indices", "(3,)", &[2, 3, 0]),
        floats("attr_data", "(3,)", &[0.5, 2.0, -1.0]),
        ids("attr_shape", "(2,)", &[3, 4]),
        ids("labels", "(3,)", &[1, 0, 1]),
    ]
}

#[test]
fn sparse_features_of_a_benchmark() {
    let (_folder, path) = file("cora.npz", npz(&benchmark(), CompressionMethod::Deflated));
    let (_out, dataset) = convert_new(&path, &ConvertOptions::default()).unwrap();
    let features = dataset.features().unwrap();
    let rows = [0, 1, 2].map(|v| features.row::<f32>(v).to_vec());
    assert_eq!(rows, [[0.0, 0.0, 0.5, 0.0], [0.0; 4], [-1.0, 0.0, 0.0, 2.0]]);
    assert_eq!(dataset.labels().unwrap()[..], [1, 0, 1]);
    assert_eq!((dataset.manifest().num_edges, dataset.manifest().edge_columns.len()), (3, 0));
    let mut weighted = benchmark();
    weighted[2].bytes = f32s(&[1.0, 2.0, 1.0]);
    let (_folder, path) = file("cora.npz", npz(&weighted, CompressionMethod::Deflated));
    let (_out, dataset) = convert_new(&path, &ConvertOptions::default()).unwrap();
    assert_eq!(dataset.manifest().edge_columns.keys().collect::<Vec<_>>(), ["weight"]);
}

#[test]
fn sparse_features_that_are_damaged() {
    let mut wrong = Wrong::default();
    for (name, shape, bytes, parts) in [
        ("attr_shape", "(2,)", i64s(&[4, 4]), &["attr_indptr", "4 numbers, expected 5"][..]),
        (
            "attr_shape",
            "(2,)",
            i64s(&[3, 0]),
            &["attr_indptr", "a shape of [3, 0]: expected rows, and columns up to"],
        ),
        (
            "attr_shape",
            "(2,)",
            i64s(&[3, 3]),
            &["attr_indices", "row 2: column 3, expected columns below 3"],
        ),
        (
            "attr_indptr",
            "(4,)",
            i64s(&[0, 2, 1, 3]),
            &["attr_indptr", "row 1: entries 2 to 1 of 3"],
        ),
        (
            "attr_indptr",
            "(4,)",
            i64s(&[0, 1, 1, 9]),
            &["attr_indptr", "row 2: entries 1 to 9 of 3"],
        ),
        ("attr_indptr", "(4,)", i64s(&[0, 1, 1, 2]), &["attr_indptr", "of 3 entries: damaged"]),
        ("attr_indices", "(2,)", i64s(&[0, 1]), &["attr_data", "3 numbers, expected 2"]),
        ("attr_indices", "(3,)", i64s(&[0, -1, 1]), &["attr_indices", "-1"]),
        ("attr_data", "(3,)", f32s(&[1.0, f32::NAN, 1.0]), &["expected a finite"]),
        ("labels", "(2,)", i64s(&[0, 1]), &["2 rows for 3 vertices"]),
    ] {
        let mut arrays = benchmark();
        let at = arrays.iter().position(|array| array.name == name).unwrap();
        (arrays[at].shape, arrays[at].bytes) = (shape, bytes);
        let (_folder, path) = file("cora.npz", npz(&arrays, CompressionMethod::Deflated));
        wrong.expect(format!("{name} {shape}"), &message(&path, &ConvertOptions::default()), parts);
    }
    wrong.check();
}
