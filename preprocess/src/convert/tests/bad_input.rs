//! Every kind of bad input is one line that names file, line and remedy.

use std::io::Cursor;
use std::os::unix::ffi::OsStrExt;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::*;

fn message(source: &Path, options: &ConvertOptions) -> String {
    let message = match convert_new(source, options) {
        Ok(_) => format!("{} was converted", source.display()),
        Err(error) => error.to_string(),
    };
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

/// The parts that were expected in messages and are not there, of a whole table of cases.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn expect(&mut self, case: impl std::fmt::Display, message: &str, parts: &[&str]) {
        let missing = parts.iter().filter(|part| !message.contains(**part));
        self.0.extend(missing.map(|part| format!("{case}: expected `{part}` in `{message}`")));
    }

    fn check(self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n"));
    }
}

#[test]
fn csv_tables() {
    let table: &[(&str, &str, &[&str])] = &[
        ("raw/num-node-list", "six\n", &["line 1", "expected a number of vertices", "`six`"]),
        ("raw/num-node-list", "-6\n", &["line 1", "`-6`"]),
        ("raw/num-node-list", "99999999999\n", &["line 1", "up to 4294967295"]),
        ("raw/num-node-list", "6\n7\n", &["expected one graph, found the counts of 2"]),
        ("raw/num-node-list", "", &["found the counts of 0"]),
        ("raw/num-node-list", "7\n", &["node-label.csv.gz", "6 labels for the 7 vertices", "download it again"]),
        ("raw/num-node-list", "5\n", &["split/only/test.csv.gz, line 2", "vertex 5: expected ids below 5"]),
        ("raw/node-label", "0\n1\n\n2\n1\n0\n0\n", &["node-label.csv.gz, line 7", "more labels than the 6 vertices"]),
        ("raw/num-edge-list", "11\n", &["line 1", "promises 11 edges, edge.csv.gz has 10", "download both again"]),
        ("raw/edge", "0,1\n0,6\n", &["line 2", "vertex 6: expected ids below 6"]),
        ("raw/edge", "0,1\n0,-1\n", &["line 2", "expected a vertex id, found `-1`"]),
        ("raw/edge", "0,1\n\n7\n", &["line 3", "expected two vertex ids, found `7`"]),
        ("raw/edge", "0,1,2\n", &["line 1", "expected two vertex ids"]),
        ("raw/edge", "0,99999999999999999999\n", &["line 1", "expected a vertex id"]),
        ("raw/node-feat", "1,2,3\n1,2\n", &["line 2", "expected 3 features as in the first row, found 2"]),
        ("raw/node-feat", "1,2\n1,2,3\n", &["line 2", "expected 2 features as in the first row, found 3"]),
        ("raw/node-feat", "1,2\n1,x\n", &["line 2", "expected a number, found `x`"]),
        ("raw/node-feat", "1,2\n1,nan\n", &["line 2", "expected a finite"]),
        ("raw/node-feat", "1,2\n1,1e99\n", &["line 2", "expected a finite"]),
        ("raw/node-feat", "1\n2\n3\n", &["3 feature rows for the 6 vertices", "download it again"]),
        ("raw/node-feat", "1\n2\n3\n4\n5\n6\n\n7\n", &["line 8", "more feature rows than the 6 vertices"]),
        ("raw/node-feat", "", &["line 1", "expected a row of features"]),
        ("raw/node-label", "0\n1\ncat\n1\n1\n1\n", &["line 3", "label `cat`: expected a class number"]),
        ("raw/node-label", "0\n1\n0.5\n1\n1\n1\n", &["line 3", "label 0.5: expected a class number from 0"]),
        ("raw/node-label", "0\n1\n-7\n1\n1\n1\n", &["line 3", "label -7: expected a class number from 0"]),
        ("raw/node-label", "0\n1\n2000000000\n1\n1\n1\n", &["line 3", "label 2000000000", "below 1000000"]),
        ("raw/node-label", "0,1\n1,1\n", &["node-label.csv.gz: 2 labels for the 6 vertices"]),
        ("raw/node-label", "0,1\n1,2\n", &["line 2", "label 2: expected 0 or 1 for each of the 2 classes"]),
        ("raw/node-label", "0\n1,1\n", &["line 2", "expected 1 labels as in the first row, found 2"]),
        ("split/only/train", "0\n6\n", &["line 2", "vertex 6: expected ids below 6"]),
        ("split/only/train", "0\nx\n", &["line 2", "found `x`"]),
        ("split/only/train", "0\n3\n0\n", &["line 3", "vertex 0 is listed twice"]),
        ("split/only/test", "4\n1\n", &["line 2", "vertex 1 is in the valid split too"]),
    ];
    let mut wrong = Wrong::default();
    for (name, text, parts) in table {
        let folder = copy("ogb-csv");
        let path = folder.path().join(format!("{name}.csv.gz"));
        std::fs::write(&path, gz(text)).unwrap();
        let message = message(&ogb(folder.path()), &ConvertOptions::default());
        wrong.expect(format!("{name} {text:?}"), &message, parts);
        let names_raw = message.contains(&folder.path().join("raw").display().to_string());
        assert!(names_raw || message.contains("split"), "{message}");
    }
    wrong.check();
}

#[test]
fn truncated_and_missing_tables() {
    let everything =
        ["raw/num-node-list", "raw/num-edge-list", "raw/edge", "raw/node-feat", "raw/node-label", "split/only/test"];
    for name in everything {
        let folder = copy("ogb-csv");
        let path = folder.path().join(format!("{name}.csv.gz"));
        let whole = std::fs::read(&path).unwrap();
        for length in [0, 7, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            let message = message(&ogb(folder.path()), &ConvertOptions::default());
            let expected = format!("{}: truncated or damaged gzip stream: download it again", path.display());
            assert_eq!(message, expected);
        }
        std::fs::remove_file(&path).unwrap();
        let optional = ["raw/node-feat", "raw/node-label"].contains(&name);
        let result = convert_new(&ogb(folder.path()), &ConvertOptions::default());
        assert_eq!(result.is_ok(), optional, "{name}");
        if let Err(error) = result {
            let named = if name == "raw/edge" { "expected raw/edge.csv.gz".into() } else { path.display().to_string() };
            assert!(error.to_string().contains(&named), "{error}");
        }
    }
}

#[test]
fn splits_are_chosen_or_listed() {
    let folder = copy("ogb-csv");
    let with = |split: Option<&str>| ConvertOptions {
        read: ReadOptions { split: split.map(str::to_string), ..Default::default() },
        ..Default::default()
    };
    let source = ogb(folder.path());
    assert!(message(&source, &with(Some("time"))).contains("--split time: expected one of only"));
    std::fs::create_dir(folder.path().join("split/another")).unwrap();
    assert!(message(&source, &with(None)).contains("choose one with --split: another, only"));
    assert!(message(&source, &with(Some("another"))).contains("another/train.csv.gz"));
    assert!(convert_new(&source, &with(Some("only"))).is_ok());
    let random = |split| ConvertOptions { random_split: Some("0.5,0.2,0.3".parse().unwrap()), ..with(split) };
    assert!(convert_new(&source, &random(None)).is_ok());
    assert!(message(&source, &random(Some("only"))).contains("exclude each other"));
}

#[test]
fn features_too_large_for_their_type() {
    let folder = copy("ogb-csv");
    std::fs::write(folder.path().join("raw/node-feat.csv.gz"), gz("1\n2\n70000\n3\n4\n5\n")).unwrap();
    let with = |feature_dtype| ConvertOptions { feature_dtype, ..Default::default() };
    let message = message(&ogb(folder.path()), &with(FeatureDtype::F16));
    assert!(message.contains("node-feat.csv.gz, line 3: feature 70000 is too large for f16"), "{message}");
    assert!(convert_new(&ogb(folder.path()), &with(FeatureDtype::Bf16)).is_ok());
}

#[test]
fn snap_lines() {
    let table: &[(&str, &[&str])] = &[
        ("0 1\n2\n", &["line 2", "expected two vertex ids, found less"]),
        ("FromNodeId,ToNodeId\n0,1\n", &["line 1", "found `FromNodeId`; start a line of column names with #"]),
        ("0 1\n0 -1\n", &["line 2", "found `-1`"]),
        ("0 1\n\n# x\n0 1.5\n", &["line 4", "found `1.5`"]),
        ("0 18446744073709551616\n", &["line 1", "from 0 to 2^64-1"]),
        ("# Nodes: 2 Edges: 3\n0 1\n", &["line 1", "promises 3 edges, 1 follow", "--ignore-header"]),
        ("# Nodes: 3\n0 1\n", &["line 1", "promises 3 nodes", "--keep-ids"]),
        ("# nothing\n", &["no edges"]),
        ("", &["no edges"]),
        ("%%MatrixMarket matrix coordinate\n3 3 1\n1 2\n", &["line 1", "Matrix Market"]),
    ];
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("edges.txt");
    let compressed = folder.path().join("edges.txt.gz");
    let options = ConvertOptions { format: Some(Format::Snap), ..Default::default() };
    let mut wrong = Wrong::default();
    for (text, parts) in table {
        std::fs::write(&plain, text).unwrap();
        std::fs::write(&compressed, gz(text)).unwrap();
        for path in [&plain, &compressed] {
            let message = message(&snap(path), &options);
            wrong.expect(format!("{text:?}"), &message, &[&[path.to_str().unwrap()][..], parts].concat());
        }
    }
    wrong.check();
    let gone = message(&snap(folder.path().join("gone.txt")), &ConvertOptions::default());
    assert!(gone.contains("gone.txt") && gone.contains("check the path"), "{gone}");
    let folder_given = message(&snap(data().join("ogb-csv")), &options);
    assert!(folder_given.contains("ogb-csv") && folder_given.contains("leave --format out"), "{folder_given}");
    let foreign = folder.path().join(std::ffi::OsStr::from_bytes(b"edges-\xff.txt"));
    std::fs::write(&foreign, "0 1\n").unwrap();
    let foreign = message(&snap(foreign), &ConvertOptions::default());
    assert!(foreign.contains("edges-") && foreign.contains("rename it"), "{foreign}");
    let gone = message(&ogb(folder.path().join("gone")), &ConvertOptions::default());
    assert!(gone.contains("gone: No such file") && gone.contains("check the path"), "{gone}");
}

#[test]
fn inputs_of_no_known_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edges.txt");
    for (text, parts) in [
        ("FromNodeId,ToNodeId\n0,1\n", ["line 1 holds names", "--format csv"]),
        ("", ["an empty file", "--format"]),
        ("# nothing\n", ["neither a known binary file", "--format"]),
    ] {
        std::fs::write(&path, text).unwrap();
        let message = message(&path, &ConvertOptions::default());
        assert!(message.contains("edges.txt: ") && parts.iter().all(|part| message.contains(part)), "{message}");
    }
    // The remedy works.
    std::fs::write(&path, "FromNodeId,ToNodeId\n0,1\n").unwrap();
    let options = ConvertOptions { format: Some(Format::Csv), ..Default::default() };
    assert_eq!(convert_new(&path, &options).unwrap().1.topology().num_edges(), 1);
}

/// An array of an archive under construction.
struct Array<'a> {
    name: &'a str,
    descr: &'a str,
    shape: &'a str,
    column_major: bool,
    bytes: Vec<u8>,
}

fn array<'a>(name: &'a str, descr: &'a str, shape: &'a str, bytes: Vec<u8>) -> Array<'a> {
    Array { name, descr, shape, column_major: false, bytes }
}

fn npz(arrays: &[Array<'_>], method: CompressionMethod) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for Array { name, descr, shape, column_major, bytes } in arrays {
        let order = if *column_major { "True" } else { "False" };
        let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
        archive.start_file(format!("{name}.npy"), SimpleFileOptions::default().compression_method(method)).unwrap();
        archive.write_all(b"\x93NUMPY\x01\x00").unwrap();
        archive.write_all(&(header.len() as u16).to_le_bytes()).unwrap();
        archive.write_all(header.as_bytes()).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

fn i64s(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The parts of a small binary graph: 3 vertices, 2 edges, 2 features.
fn parts() -> Vec<Array<'static>> {
    vec![
        array("num_nodes_list", "<i8", "(1,)", i64s(&[3])),
        array("num_edges_list", "<i8", "(1,)", i64s(&[2])),
        array("edge_index", "<i8", "(2, 2)", i64s(&[0, 1, 1, 2])),
        array("node_feat", "<f4", "(3, 2)", f32s(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])),
    ]
}

fn npz_folder(data: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("raw")).unwrap();
    std::fs::write(folder.path().join("raw/data.npz"), data).unwrap();
    folder
}

#[test]
fn arrays_of_other_types_and_orders() {
    let table = [
        array("edge_index", "<i4", "(2, 2)", [0i32, 1, 1, 2].iter().flat_map(|id| id.to_le_bytes()).collect()),
        array("edge_index", "<u8", "(2, 2)", i64s(&[0, 1, 1, 2])),
        Array { column_major: true, ..array("edge_index", "<i8", "(2, 2)", i64s(&[0, 1, 1, 2])) },
        array("node_feat", "<f8", "(3, 2)", (0..6).flat_map(|x| f64::from(x).to_le_bytes()).collect()),
        array("node_feat", "<f2", "(3, 2)", (0..6).flat_map(|x| half::f16::from_f32(x as f32).to_le_bytes()).collect()),
        array("node_feat", "|u1", "(3, 2)", vec![0, 1, 2, 3, 4, 5]),
    ];
    for replaced in table {
        let mut arrays = parts();
        let at = arrays.iter().position(|array| array.name == replaced.name).unwrap();
        arrays[at] = replaced;
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            let folder = npz_folder(&npz(&arrays, method));
            let (_folder, dataset) = convert_new(&ogb(folder.path()), &ConvertOptions::default()).unwrap();
            assert_eq!(dataset.topology().indices(), [0, 1]);
            assert_eq!(dataset.topology().indptr(), [0, 0, 1, 2]);
            assert_eq!(dataset.features().unwrap().row::<f32>(2), [4.0, 5.0]);
        }
    }
}

#[test]
fn archives() {
    let table: &[(Array<'_>, &[&str])] = &[
        (
            array("num_nodes_list", "<i8", "(1,)", i64s(&[-3])),
            &["num_nodes_list: entry 0: -3: expected an id or count from 0"],
        ),
        (array("num_nodes_list", "<i8", "(2,)", i64s(&[3, 3])), &["expected one graph, found counts of shape [2]"]),
        (
            array("num_nodes_list", "<f8", "(1,)", i64s(&[3])),
            &["num_nodes_list: entry 0: type <f8: expected integer ids"],
        ),
        (array("num_nodes_list", "<i8", "(1,)", i64s(&[4])), &["node_feat: 3 rows for 4 vertices"]),
        (array("num_edges_list", "<i8", "(1,)", i64s(&[3])), &["edge_index: expected shape [2, 3]", "found [2, 2]"]),
        (
            array("edge_index", "<i8", "(2, 2)", i64s(&[0, 1, 1, 3])),
            &["edge_index: edge 1, target 3: expected ids below the number of vertices, 3"],
        ),
        (
            array("edge_index", "<i8", "(2, 2)", i64s(&[0, -1, 1, 2])),
            &["edge_index: edge 1, source -1: expected an id"],
        ),
        (
            array("edge_index", "<i8", "(2, 2)", i64s(&[0, 1, 1])),
            &["promises shape [2, 2] of <i8, 24 bytes follow", "fetch or write it again"],
        ),
        (
            array("edge_index", "<i8", "(2, 2)", i64s(&[0, 1, 1, 2, 0])),
            &["promises shape [2, 2] of <i8, 40 bytes follow"],
        ),
        (array("edge_index", "<i8", "(2, 99999999999999)", i64s(&[0])), &["promises shape [2, 99999999999999]"]),
        (
            array("edge_index", "<i8", "(99999999999999, 99999999999999)", i64s(&[0])),
            &["promises shape [99999999999999, 99999999999999]"],
        ),
        (array("edge_index", ">i8", "(2, 2)", i64s(&[0])), &["type >i8: expected little-endian"]),
        (array("edge_index", "|O", "(2, 2)", i64s(&[0])), &["type |O"]),
        (array("edge_index", "<f8", "(2, 2)", i64s(&[0, 1, 1, 2])), &["edge_index: type <f8: expected integer ids"]),
        (array("node_feat", "<f4", "(3, 2)", f32s(&[0.0; 5])), &["node_feat: its header promises", "20 bytes follow"]),
        (array("node_feat", "<f4", "(3, 1, 2)", f32s(&[0.0; 6])), &["shape [3, 1, 2]: expected one or two dimensions"]),
        (array("node_feat", "<f4", "(3, 0)", vec![]), &["data.npz: node_feat: rows of 0 numbers: expected 1 to"]),
        (array("node_feat", "<f4", "(3, 3000000000)", f32s(&[0.0; 5])), &["data.npz: node_feat: its header promises"]),
        (
            array("node_feat", "<f4", "(3, 2)", f32s(&[0.0, 0.0, 0.0, f32::NAN, 0.0, 0.0])),
            &["node_feat, row 1, column 1: feature NaN"],
        ),
        (
            array("node_feat", "<f4", "(3, 2000000000)", f32s(&[0.0; 5])),
            &["node_feat: its header promises", "20 bytes follow"],
        ),
        (
            Array { column_major: true, ..array("node_feat", "<f4", "(3, 2)", f32s(&[0.0; 6])) },
            &["node_feat: shape (3, 2) stored column by column", "np.ascontiguousarray"],
        ),
    ];
    let mut wrong = Wrong::default();
    for (replaced, expected) in table {
        let Array { name, descr, shape, column_major, bytes } = replaced;
        let mut arrays: Vec<_> = parts().into_iter().filter(|array| array.name != *name).collect();
        arrays.push(Array { column_major: *column_major, ..array(name, descr, shape, bytes.clone()) });
        let folder = npz_folder(&npz(&arrays, CompressionMethod::Deflated));
        let message = message(&ogb(folder.path()), &ConvertOptions::default());
        wrong.expect(format!("{name} {descr} {shape}"), &message, expected);
    }
    wrong.check();
    let folder = npz_folder(&npz(&parts()[1..], CompressionMethod::Stored));
    assert!(message(&ogb(folder.path()), &ConvertOptions::default()).contains("has no member num_nodes_list"));
}

#[test]
fn damaged_archives() {
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let good = npz(&parts(), method);
        for length in [0, 10, good.len() / 2, good.len() - 1] {
            let folder = npz_folder(&good[..length]);
            let message = message(&ogb(folder.path()), &ConvertOptions::default());
            assert!(message.contains("data.npz: ") && message.contains("download it again"), "{message}");
        }
        // A flipped bit is found by the archive's checksum, by a check of ours, or lies where it does no harm.
        for byte in (0..good.len()).step_by(5) {
            let mut flipped = good.clone();
            flipped[byte] ^= 1;
            let folder = npz_folder(&flipped);
            if let Err(error) = convert_new(&ogb(folder.path()), &ConvertOptions::default()) {
                assert!(error.to_string().contains("data.npz"), "byte {byte}: {error}");
            }
        }
    }
}

#[test]
fn labels_in_archives() {
    let table: &[(Array<'_>, Result<&[i32], &str>)] = &[
        (array("node_label", "<f4", "(3, 1)", f32s(&[2.0, f32::NAN, 0.0])), Ok(&[2, -1, 0])),
        (array("node_label", "<i8", "(3,)", i64s(&[2, 1, 0])), Ok(&[2, 1, 0])),
        (
            array("node_label", "<f4", "(3, 1)", f32s(&[2.0, 0.5, 0.0])),
            Err("node_label, row 1: label 0.5: expected a class"),
        ),
        (array("node_label", "<i8", "(3,)", i64s(&[2, -5, 0])), Err("node_label, row 1: label -5")),
        (array("node_label", "<i8", "(3,)", i64s(&[2, 2_000_000_000, 0])), Err("node_label, row 1: label 2000000000")),
        (array("node_label", "<f4", "(2, 1)", f32s(&[2.0, 0.5])), Err("node_label: 2 rows for 3 vertices")),
        (
            array("node_label", "<f4", "(3, 2)", f32s(&[2.0; 6])),
            Err("label 2: expected 0 or 1 for each of the 2 classes"),
        ),
        (array("label", "<f4", "(3, 2)", f32s(&[0.0; 6])), Err("node-label.npz: has no member node_label")),
    ];
    let mut wrong = Wrong::default();
    for (labels, expected) in table {
        let folder = npz_folder(&npz(&parts(), CompressionMethod::Stored));
        let bytes = npz(std::slice::from_ref(labels), CompressionMethod::Deflated);
        std::fs::write(folder.path().join("raw/node-label.npz"), bytes).unwrap();
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
            array("num_nodes_list", "<i8", "(1,)", i64s(&[4_000_000_000])),
            array("num_edges_list", "<i8", "(1,)", i64s(&[2])),
            array("edge_index", "<i8", "(2, 2)", i64s(&[0, 1, 1, 2])),
        ],
        CompressionMethod::Stored,
    ));
    let message = message(&ogb(folder.path()), &ConvertOptions::default());
    assert!(message.contains("4000000000 vertices and only 2 edges"), "{message}");

    let folder = copy("ogb-csv");
    std::fs::write(folder.path().join("raw/num-node-list.csv.gz"), gz("4000000000\n")).unwrap();
    let message = self::message(&ogb(folder.path()), &ConvertOptions::default());
    assert!(message.contains("num-node-list.csv.gz: 4000000000 vertices and only 10 edges"), "{message}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edges.txt");
    std::fs::write(&path, "0 4000000000\n").unwrap();
    let options = ConvertOptions { read: ReadOptions { keep_ids: true, ..Default::default() }, ..Default::default() };
    let message = self::message(&path, &options);
    assert!(message.contains("edges.txt: 4000000001 vertices and only 1 edges"), "{message}");
}
