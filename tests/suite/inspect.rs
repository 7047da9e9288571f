//! `gsplit inspect` from outside: known graphs, the command line that made them, damage.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{community, fails, json, ok, root, shared};

/// The figures of the graph at `input`, converted with `options`.
fn figures(folder: &Path, input: &Path, options: &[&str]) -> Value {
    ok(folder, &[&["convert", input.to_str().unwrap(), "--out", "ds"], options].concat());
    let found = json(folder, &["inspect", "ds"]);
    for threads in ["1", "4"] {
        assert_eq!(json(folder, &["inspect", "ds", "--threads", threads]), found, "{threads} threads");
    }
    found["figures"].clone()
}

#[test]
fn the_votes_of_wikipedia_have_the_figures_that_snap_lists() {
    let Some(source) = shared("wiki-Vote/wiki-Vote.txt") else { return };
    let folder = tempfile::tempdir().unwrap();
    let found = figures(folder.path(), &source, &[]);
    assert_eq!(found["edges"]["components"]["largest"], 7066, "{found}");
    assert_eq!((&found["edges"]["isolated"], &found["edges"]["self_loops"]), (&0.into(), &0.into()));
    assert_eq!((&found["classes"], &found["edges"]["homophily"]), (&Value::Null, &Value::Null));
    let counted = |degrees: &Value| -> u64 {
        degrees["histogram"].as_array().unwrap().iter().map(|bar| bar["vertices"].as_u64().unwrap()).sum()
    };
    for degrees in [&found["in_degree"], &found["edges"]["out_degree"]] {
        assert_eq!(counted(degrees), 7115, "{degrees}");
        assert!((degrees["mean"].as_f64().unwrap() - 103_689.0 / 7115.0).abs() < 1e-9, "{degrees}");
    }
}

#[test]
fn the_citations_of_cora_have_the_figures_that_are_published() {
    let Some(source) = shared("ogb-layout-cora") else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let found = figures(folder, &source, &["--symmetrise"]);
    let edges = &found["edges"];
    // Pei et al., Geom-GCN (ICLR 2020): homophily 0.81. The largest component is known from its use as a dataset of its own.
    assert_eq!(
        (&edges["components"]["number"], &edges["components"]["largest"]),
        (&78.into(), &2485.into()),
        "{edges}"
    );
    assert_eq!(edges["reciprocal_share"], 1.0);
    assert_eq!(found["in_degree"], edges["out_degree"]);
    assert!((edges["homophily"]["share"].as_f64().unwrap() - 0.81).abs() < 0.005, "{edges}");
    let sizes: Vec<u64> =
        found["classes"].as_array().unwrap().iter().map(|count| count["vertices"].as_u64().unwrap()).collect();
    assert_eq!((sizes.iter().sum::<u64>(), sizes.iter().max()), (2708, Some(&818)));
    let shown = ok(folder, &["inspect", "ds"]);
    for words in ["degrees", "p99", "components 78 (weak), the largest of 2485", "homophily  0.81", ": 818 (30.2 %)"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[test]
fn the_command_line_makes_the_dataset_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let input = root().join("tests/data/tables/edges.csv");
    let nodes = root().join("tests/data/tables/nodes.tsv");
    let options = ["--edge-columns", "weight", "--features", "random:3", "--feature-dtype", "i8", "--seed", "5"];
    let made = ["convert", input.to_str().unwrap(), "--nodes", nodes.to_str().unwrap(), "--out", "a b"];
    ok(folder, &[&made[..], &options].concat());
    ok(folder, &["generate", "community", "--vertices", "300", "--edges", "900", "--mixing", "0.3", "--out", "ds"]);
    for name in ["a b", "ds"] {
        let line = json(folder, &["inspect", name])["command"].as_str().unwrap().to_string();
        assert!(ok(folder, &["inspect", name]).contains(&line), "{line}");
        let line = line.replacen("gsplit", env!("CARGO_BIN_EXE_gsplit"), 1);
        let run = std::process::Command::new("sh").args(["-ec", &line]).current_dir(folder).output().unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(
            said.contains("already there, made the same way"),
            "{line}: {said}{}",
            String::from_utf8_lossy(&run.stderr)
        );
    }
}

#[test]
fn damaged_edges_and_labels_are_an_error_or_a_number() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 300);
    for (name, is_readable) in [("topology/indices.npy", false), ("nodes/label.npy", true)] {
        let path = folder.join("ds").join(name);
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        let end = bad.len();
        bad[end - 400..].fill(0x7f);
        fs::write(&path, &bad).unwrap();
        assert!(fails(folder, &["inspect", "ds"], 1).contains(name));
        // Unchecked it is no panic.
        match is_readable {
            true => drop(ok(folder, &["--no-check", "inspect", "ds"])),
            false => assert!(fails(folder, &["--no-check", "inspect", "ds"], 1).contains(name)),
        }
        fs::write(&path, &good).unwrap();
    }
    ok(folder, &["inspect", "ds", "--full"]);
}
