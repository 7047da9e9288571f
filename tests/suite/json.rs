//! The keys of every command's object and of a training log are the ones that the docs list for
//! scripts.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::documents::section;
use crate::support::{community, json, ok, root, scratch};

/// Backquoted words of the first cells of the rows of a section's table, and of the second ones, in
/// which brackets are comments.
fn rows(page: &str, heading: &str) -> Vec<(Vec<String>, BTreeSet<String>)> {
    let text = fs::read_to_string(root().join("docs").join(page)).unwrap();
    let text = section(&text, heading);
    let quoted =
        |cell: &str| cell.split('`').skip(1).step_by(2).map(String::from).collect::<Vec<_>>();
    let without_comments = |cell: &str| {
        let mut depth = 0;
        cell.chars()
            .filter(|&at| {
                depth += i32::from(at == '(');
                let kept = depth == 0;
                depth -= i32::from(at == ')');
                kept
            })
            .collect::<String>()
    };
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        (quoted(cells[1]), quoted(&without_comments(cells[2])).into_iter().collect())
    })
    .collect()
}

fn keys(object: &serde_json::Value) -> BTreeSet<String> {
    object.as_object().unwrap().keys().filter(|key| *key != "schema").cloned().collect()
}

/// Runs `line` and compares its output with the row of docs/reference.md that has `command`.
fn prints_what_is_documented(folder: &Path, command: &str, line: &str) {
    let rows = rows("reference.md", "JSON");
    let (_, expected) =
        rows.iter().find(|(names, _)| names.iter().any(|name| name == command)).unwrap();
    let found = json(folder, line);
    assert_eq!(found["schema"], 1, "{line}");
    assert_eq!(&keys(&found), expected, "{line}");
}

#[test]
fn commands_that_prepare_print_the_keys_that_are_documented() {
    let folder = &*scratch();
    fs::write(folder.join("edges.txt"), "0 1\n1 2\n2 0\n").unwrap();
    for (command, line) in [
        ("convert --plan", "convert edges.txt --out c --plan"),
        ("convert", "convert edges.txt --out c"),
        ("generate", "generate community --vertices 300 --edges 3000 --out ds"),
        ("presample", "presample ds --fanouts 3,3 --epochs 1"),
        ("partition", "partition ds --parts 2"),
        ("evaluate", "evaluate ds --batches 2"),
        ("place", "place ds --partition multilevel-presampled-k2 --cache 20%"),
        ("shard", "shard ds --partition multilevel-presampled-k2 --out shards"),
        ("export", "export ds --format pyg --out pyg"),
        ("inspect", "inspect ds"),
        ("report", "report ds --out ds.html"),
        ("verify", "verify ds"),
        ("doctor", "doctor"),
    ] {
        prints_what_is_documented(folder, command, line);
    }
}

#[cfg(feature = "train")]
#[test]
fn commands_that_train_print_the_keys_that_are_documented_and_so_do_logs() {
    let folder = &*scratch();
    community(folder, 300);
    let shape = "--layers 2 --fanouts 3,3 --hidden 8";
    for (command, line) in [
        ("train --print-config", format!("train ds {shape} --print-config")),
        (
            "train",
            format!("train ds {shape} --epochs 2 --log log.jsonl --log-every 1 --checkpoint ck"),
        ),
        ("infer", "infer ds --checkpoint ck --out p.npy".to_string()),
        ("compare DATASET", format!("compare ds {shape} --ranks 2 --systems dgl --epochs 1")),
        (
            "compare DATASET --over",
            format!("compare ds {shape} --systems dgl --epochs 1 --over ranks=2,3"),
        ),
        ("compare LOG...", "compare log.jsonl log.jsonl".to_string()),
        ("plan", format!("plan ds {shape} --profile cpu-2")),
        ("run", "run ds --out run --dry-run".to_string()),
        ("run --print-config", "run ds --out run --print-config".to_string()),
    ] {
        prints_what_is_documented(folder, command, &line);
    }
    let names: BTreeSet<String> =
        rows("train.md", "Logs").into_iter().flat_map(|(names, _)| names).collect();
    for line in fs::read_to_string(folder.join("log.jsonl")).unwrap().lines() {
        let undocumented: Vec<String> =
            keys(&serde_json::from_str(line).unwrap()).difference(&names).cloned().collect();
        assert_eq!(undocumented, Vec::<String>::new(), "{line}");
    }
    ok(folder, "verify ds");
}

/// Only the system's loader would report it, in its own words.
#[cfg(feature = "train")]
#[test]
fn a_missing_library_is_told_to_scripts_too() {
    let folder = &*scratch();
    fs::copy(env!("CARGO_BIN_EXE_gsplit"), folder.join("gsplit")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_gsplit-train"), folder.join("gsplit-train")).unwrap();
    let mut program = fs::read(folder.join("gsplit-train")).unwrap();
    let (name, other) = (b"libtorch_cpu.so", b"libtorch_cpX.so");
    let places: Vec<usize> = program
        .windows(name.len())
        .enumerate()
        .filter(|(_, found)| found == name)
        .map(|(at, _)| at)
        .collect();
    places.iter().for_each(|&at| program[at..at + name.len()].copy_from_slice(other));
    fs::write(folder.join("gsplit-train"), program).unwrap();
    let output = std::process::Command::new(folder.join("gsplit"))
        .args(["train", "ds", "--json"])
        .output()
        .unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        told["error"].as_str().unwrap().contains("libtorch_cpX.so not found: run `make setup`"),
        "{told}"
    );
    assert_eq!((output.status.code(), told["exit"].as_i64()), (Some(1), Some(1)));
    // In a Python environment, and in an archive, a clone does not help.
    let bin = folder.join("bin");
    fs::create_dir(&bin).unwrap();
    ["gsplit", "gsplit-train"]
        .into_iter()
        .for_each(|name| fs::rename(folder.join(name), bin.join(name)).unwrap());
    for (sign, remedy) in
        [("bin/python3", "install the wheel again"), ("INSTALL", "unpack the archive again")]
    {
        fs::write(folder.join(sign), "").unwrap();
        for words in ["train ds", "doctor"] {
            let output = std::process::Command::new(bin.join("gsplit"))
                .args(words.split(' '))
                .output()
                .unwrap();
            let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(told.contains(remedy) && !told.contains("make setup"), "{words:?}: {told}");
        }
    }
}
