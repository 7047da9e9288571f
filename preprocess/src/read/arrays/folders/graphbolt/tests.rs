use gsplit_store::NoProgress;

use super::*;
use crate::read::golden::{Part::*, *};

fn read(path: &Path) -> Result<Raw> {
    open(path, WantedColumns::default(), Memory::default(), &NoProgress)
}

#[test]
fn golden_inputs() {
    for name in ["graphbolt", "graphbolt-csv"] {
        for path in [data(name), data(name).join("metadata.yaml")] {
            assert!(recognises(&path, &[]));
            let raw = read(&path).unwrap();
            check(&raw, &[Vertices, Features, Labels, Splits]);
            assert_eq!((raw.columns[0].name(), numbers(&*raw.columns[0])[5]), ("year", 2015.0));
        }
    }
    let raw = read(&data("graphbolt")).unwrap();
    assert_eq!(raw.edges.columns()[0].name, "weight");
    assert_eq!(f32s(&read_edges(&*raw.edges).unwrap().1)[9], 4.5);
}

#[test]
fn bad_documents() {
    let table: &[(&str, &str, &[&str])] = &[
        ("num: 6", "num: six", &["metadata.yaml", "num", "expected GraphBolt"]),
        ("num: 6", "num: 5", &["5 vertices"]),
        ("- num: 6", "- num: 6\n    - num: 7", &["exactly one type of nodes"]),
        ("format: csv", "format: parquet", &["edges/edges.csv: format parquet, expected numpy"]),
        (
            "format: numpy\n    in_memory",
            "format: torch\n    in_memory",
            &["format torch, expected numpy", "numpy.save"],
        ),
        ("edges/edges.csv", "edges/gone.csv", &["gone.csv", "check the path"]),
        ("data/year.npy", "set/train-seeds.npy", &["year has 2 rows for 6 vertices"]),
        ("set/train-labels.npy", "set/valid-labels.npy", &["expected a label for each of 2 seeds"]),
        ("graph:", "grph:", &["missing field `graph`"]),
        ("graph:", "graph: [", &["metadata.yaml"]),
    ];
    for (from, to, parts) in table {
        let folder = copy("graphbolt-csv");
        let path = folder.path().join("metadata.yaml");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let message = problem(read(folder.path()));
        for part in *parts {
            assert!(message.contains(part), "{to}: expected `{part}` in `{message}`");
        }
    }
    let folder = copy("graphbolt-csv");
    for (text, part) in [
        ("0,1\n6,1\n", "line 2: 6: expected ids below"),
        ("src,dst\n0,1\n", "line 1: expected `SOURCE,TARGET`, found `src,dst`"),
        ("0,1,2\n", "line 1: expected `SOURCE,TARGET`"),
    ] {
        std::fs::write(folder.path().join("edges/edges.csv"), text).unwrap();
        assert!(problem(read(folder.path())).contains(part), "{text}");
    }
}

#[test]
fn nested_documents_take_no_time() {
    let folder = copy("graphbolt-csv");
    let path = folder.path().join("metadata.yaml");
    let half = 1 << 19;
    for (text, words) in [
        ("[".repeat(2 * half), "brackets"),
        ("{a: ".repeat(half / 4), "brackets"),
        ("- ".repeat(half), "expected GraphBolt"),
        ("? ".repeat(half), "expected GraphBolt"),
        ("[".repeat(4096), "expected GraphBolt"),
    ] {
        std::fs::write(&path, text).unwrap();
        let began = std::time::Instant::now();
        let message = read(folder.path()).err().unwrap().to_string();
        assert!(message.contains(words), "{message}");
        assert!(began.elapsed().as_secs() < 5, "{:?}: {message}", began.elapsed());
    }
}
