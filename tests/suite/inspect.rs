//! `gsplit inspect` from outside: known graphs, the command line that made them, damage.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{community, errors, json, ok, refused, root, scratch, shared};

/// The figures of the graph at `input`, converted with `options`.
fn figures(folder: &Path, input: &Path, options: &str) -> Value {
    ok(folder, format!("convert {} --out ds {options}", input.display()));
    let found = json(folder, "inspect ds");
    for threads in ["1", "4"] {
        assert_eq!(
            json(folder, format!("inspect ds --threads {threads}")),
            found,
            "{threads} threads"
        );
    }
    found["figures"].clone()
}

#[test]
fn the_votes_of_wikipedia_have_the_figures_that_snap_lists() {
    let Some(source) = shared("wiki-Vote/wiki-Vote.txt") else { return };
    let folder = &*scratch();
    let found = figures(folder, &source, "");
    assert_eq!(
        (&found["edges"]["self_loops"], &found["edges"]["homophily"]),
        (&0.into(), &Value::Null)
    );
    assert_eq!(found["classes"], Value::Null);
    assert!(
        (found["in_degree"]["mean"].as_f64().unwrap() - 103_689.0 / 7115.0).abs() < 1e-9,
        "{found}"
    );
}

#[test]
fn the_citations_of_cora_have_the_figures_that_are_published() {
    let Some(source) = shared("ogb-layout-cora") else { return };
    let folder = &*scratch();
    let found = figures(folder, &source, "--symmetrise");
    let edges = &found["edges"];
    // Pei et al., Geom-GCN (ICLR 2020): homophily 0.81.
    assert_eq!(edges["reciprocal_share"], 1.0);
    assert!((edges["homophily"]["share"].as_f64().unwrap() - 0.81).abs() < 0.005, "{edges}");
    let sizes: Vec<u64> = found["classes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|count| count["vertices"].as_u64().unwrap())
        .collect();
    assert_eq!((sizes.iter().sum::<u64>(), sizes.iter().max()), (2708, Some(&818)));
    let shown = ok(folder, "inspect ds");
    for words in ["in-degrees", "p99", "homophily  0.81", ": 818 (30.2 %)"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[test]
fn the_command_line_makes_the_dataset_again() {
    let folder = &*scratch();
    let [edges, nodes] =
        ["edges.csv", "nodes.tsv"].map(|name| root().join("tests/data/tables").join(name));
    let options = "--edge-columns weight --features random:3 --feature-dtype i8 --seed 5";
    let line = format!("convert {} --nodes {} {options} --out", edges.display(), nodes.display());
    ok(folder, [line.split(' ').collect(), vec!["a b"]].concat());
    ok(folder, "generate community --vertices 300 --edges 900 --mixing 0.3 --out ds");
    for name in ["a b", "ds"] {
        let line = json(folder, ["inspect", name])["command"].as_str().unwrap().to_string();
        assert!(ok(folder, ["inspect", name]).contains(&line), "{line}");
        let line = line.replacen("gsplit", env!("CARGO_BIN_EXE_gsplit"), 1);
        let run = std::process::Command::new("sh")
            .args(["-ec", &line])
            .current_dir(folder)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(
            said.contains("already there, made the same way"),
            "{line}: {said}{}",
            errors(&run)
        );
    }
}

#[test]
fn damaged_edges_and_labels_are_an_error_or_a_number() {
    let folder = &*scratch();
    community(folder, 300);
    for (name, is_readable) in [("topology/indices.npy", false), ("nodes/label.npy", true)] {
        let path = folder.join("ds").join(name);
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        let end = bad.len();
        bad[end - 400..].fill(0x7f);
        fs::write(&path, &bad).unwrap();
        refused(folder, "inspect ds", 1, name);
        // Without the check it does not panic.
        match is_readable {
            true => drop(ok(folder, "--no-check inspect ds")),
            false => drop(refused(folder, "--no-check inspect ds", 1, name)),
        }
        fs::write(&path, &good).unwrap();
    }
    ok(folder, "inspect ds");
}
