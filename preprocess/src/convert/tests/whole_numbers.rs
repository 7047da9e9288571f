//! Whole numbers of edges are unchanged by any input and output format.

use gsplit_store::write_npy;

use super::archives::{array, i64s, npz};
use super::bad_input::message;
use super::*;
use crate::export::{ExportFormat, ExportOptions, export};

/// A time stamp that f32 rounds, one that f64 rounds, the ends of the type.
const TIMES: [i64; 5] = [1_217_567_877, (1 << 53) + 1, i64::MIN, i64::MAX, 0];

/// Lines of a cycle, with the time of each edge.
fn lines(separator: &str, first: usize) -> String {
    let line = |(at, time)| {
        format!("{}{separator}{}{separator}{time}\n", at + first, (at + 1) % TIMES.len() + first)
    };
    TIMES.iter().enumerate().map(line).collect()
}

/// The column `name` of the dataset that the file at `path` becomes, in the order of [`TIMES`].
fn times(path: &Path, name: &str) -> Vec<i64> {
    let words = if path.to_string_lossy().contains(".txt") {
        format!("--edge-columns {name}")
    } else {
        String::new()
    };
    in_order(&convert_new(path, &options(&words)).unwrap().1, name)
}

fn in_order(dataset: &Dataset, name: &str) -> Vec<i64> {
    let column = dataset.edge_column(name).unwrap();
    let by_target = column.as_slice::<i64>().unwrap();
    // Vertex 0 is the last edge's target.
    [&by_target[1..], &by_target[..1]].concat()
}

#[test]
fn whole_numbers_come_from_every_reader() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let (sources, targets): (Vec<i64>, Vec<i64>) = (0..5).map(|at| (at, (at + 1) % 5)).unzip();
    let index = i64s(&[sources.as_slice(), &targets].concat());
    let arrays = [
        array("edge_index", "<i8", "(2, 5)", index),
        array("edge_weight", "<i8", "(5,)", i64s(&TIMES)),
    ];
    let header = "%%MatrixMarket matrix coordinate integer general\n5 5 5\n";
    for (path, name) in [
        (write("list.txt", lines("\t", 0).as_bytes()), "time"),
        (write("list.txt.gz", &gz(&lines(" ", 0))), "time"),
        (write("table.csv", format!("u,v,time\n{}", lines(",", 0)).as_bytes()), "time"),
        (write("matrix.mtx", format!("{header}{}", lines(" ", 1)).as_bytes()), "weight"),
        (write("arrays.npz", &npz(&arrays, zip::CompressionMethod::Deflated)), "weight"),
    ] {
        assert_eq!(times(&path, name), TIMES, "{}", path.display());
    }
    let npy = folder.path().join("npy");
    std::fs::create_dir(&npy).unwrap();
    for (name, values) in [("row", &sources[..]), ("col", &targets), ("edge_attr", &TIMES)] {
        write_npy(npy.join(format!("{name}.npy")), values).unwrap();
    }
    assert_eq!(times(&npy, "feat"), TIMES);
}

#[test]
fn whole_numbers_survive_every_export() {
    let header = "%%MatrixMarket matrix coordinate integer general\n5 5 5\n";
    let (folder, path) = file("matrix.mtx", format!("{header}{}", lines(" ", 1)));
    let (_folder, dataset) = convert_new(&path, &ConvertOptions::default()).unwrap();
    for (format, out) in [(ExportFormat::Mtx, "out.mtx"), (ExportFormat::Pyg, "out.pyg")] {
        let out = folder.path().join(out);
        export(&dataset, format, &out, &ExportOptions::default(), &NoProgress).unwrap();
        assert_eq!(times(&out, "weight"), TIMES, "{}", out.display());
    }
    // In a table a weight is f32: this column has another name.
    let list = folder.path().join("list.txt");
    std::fs::write(&list, lines(" ", 0)).unwrap();
    let (_folder, dataset) = convert_new(&list, &options("--edge-columns time")).unwrap();
    let out = folder.path().join("out.parquet");
    export(&dataset, ExportFormat::Parquet, &out, &ExportOptions::default(), &NoProgress).unwrap();
    // Its tables of vertices and edges are taken for a directed graph where the option says so.
    let (_folder, dataset) = convert_new(&out, &options("--directed")).unwrap();
    assert_eq!(in_order(&dataset, "time"), TIMES);
}

#[test]
fn weights_of_lists_are_f32_and_fractions_f64() {
    let (_folder, path) = file("list.txt", "0 1 16777217 1289241911.72836\n1 0 2.5 7\n");
    let (_folder, dataset) = convert_new(&path, &options("--edge-columns weight,time")).unwrap();
    // The edge into vertex 0 is first.
    assert_eq!(
        dataset.edge_column("weight").unwrap().as_slice::<f32>().unwrap(),
        [2.5, 16_777_216.0]
    );
    assert_eq!(
        dataset.edge_column("time").unwrap().as_slice::<f64>().unwrap(),
        [7.0, 1_289_241_911.728_36]
    );
}

#[test]
fn values_that_do_not_fit_are_named_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let matrix = "%%MatrixMarket matrix coordinate integer general\n2 2 1\n";
    for (name, text, column, expected) in [
        (
            "a.txt",
            "0 1 5\n1 2 9223372036854775808\n",
            "t",
            "line 2: column `t`: `9223372036854775808`: expected",
        ),
        (
            "b.txt",
            "0 1 0.5\n1 2 9007199254740993\n",
            "t",
            "line 2: column `t`: `9007199254740993`: expected a number",
        ),
        (
            "c.txt",
            "0 1 0.5\n1 2 1e400\n",
            "t",
            "line 2: column `t`: `1e400`: expected a number of at most 1.8e308",
        ),
        (
            "d.txt",
            "0 1 0.5\n1 2 1e39\n",
            "weight",
            "column `weight`: `1e39`: expected a number of at most 3.4e38",
        ),
        ("e.txt", "0 1 0.5\n1 2 x\n", "t", "line 2: column `t`: `x`: expected a number"),
        ("f.txt", "0 1 0.5\n1 2\n", "t", "line 2: expected a value of t, found none"),
        (
            "g.csv",
            "u,v,t\n0,1,\n1,2,-9007199254740993\n",
            "t",
            "line 3: column `t`: `-9007199254740993`: expected",
        ),
        (
            "h.csv",
            "u,v,weight\n0,1,0.5\n1,2,1e39\n",
            "weight",
            "line 3: column `weight`: `1e39`: expected",
        ),
        (
            "i.mtx",
            &format!("{matrix}2 1 -9223372036854775809\n"),
            "weight",
            "line 3: expected a whole number of 64 bits",
        ),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let message = message(&path, &options(&format!("--edge-columns {column}")));
        assert!(message.contains(name) && message.contains(expected), "{message}");
    }
    // A later part of a list of more than one piece.
    let path = folder.path().join("long.txt");
    let text: String = (0..200_000).map(|at| format!("{at} 0 {at}\n")).collect();
    std::fs::write(&path, text + "1 2 0.5\n").unwrap();
    let message = message(&path, &options("--edge-columns t"));
    assert!(
        message.contains("line 200001: column `t`: `0.5`: expected a whole number"),
        "{message}"
    );
}
