//! `gsplit report` from outside: well-formed, self-contained and escaped pages, what is left out, bad input.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::markup::elements;
use crate::support::{community, fails, json, ok};

/// A page of `folder`, checked; and what was printed about it.
fn page(folder: &Path, args: &[&str]) -> (String, Value) {
    let printed = json(folder, &[&["report"][..], args, &["--out", "page.html"]].concat());
    let page = fs::read_to_string(folder.join("page.html")).unwrap();
    assert_eq!(printed["bytes"], page.len());
    check(&page);
    (page, printed)
}

/// Fails unless the page is well-formed, needs nothing else, and can be read without seeing it.
fn check(page: &str) {
    assert!(page.starts_with("<!doctype html><!--gsplit report-->\n<html lang=\"en\">"), "{}", &page[..80]);
    let found = elements(page);
    for foreign in ["://", "url(", "@import", "<script", "javascript:", "NaN", " inf "] {
        assert!(
            !page.contains(foreign),
            "{foreign}: {}",
            &page[page.find(foreign).unwrap().saturating_sub(200)..][..300]
        );
    }
    let (mut ids, mut links) = (BTreeSet::new(), BTreeSet::new());
    for element in &found {
        let (name, attributes) = (&*element.name, &element.attributes);
        assert!(!["script", "img", "iframe", "object", "embed", "base", "form"].contains(&name), "{name}");
        let values: Vec<&str> = attributes.split('"').collect();
        for pair in values.chunks_exact(2) {
            let (key, value) = (pair[0].trim().trim_end_matches('='), pair[1]);
            assert!(!key.starts_with("on") && key != "src", "{name} {attributes}");
            match key {
                "id" => assert!(ids.insert(value.to_string()), "two of {value}"),
                "href" if name == "link" => assert_eq!(value, "data:,"),
                "href" => drop(links.insert(value.strip_prefix('#').unwrap().to_string())),
                _ => {}
            }
        }
        if name == "svg" {
            assert!(attributes.contains("role=\"img\" aria-label=\"") && !attributes.contains("aria-label=\"\""));
        }
    }
    assert!(links.is_subset(&ids), "{links:?} {ids:?}");
    let count = |name: &str| found.iter().filter(|element| element.name == name).count();
    assert_eq!((count("h1"), count("main"), count("style")), (1, 1, 1));
    // Each chart has its numbers beside it.
    assert_eq!((count("svg"), count("svg")), (count("figure"), count("details")));
    assert!(count("table") >= count("figure") && count("caption") == count("table"));
}

fn titles(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry.get("title").unwrap_or(entry).as_str().unwrap()).collect()
}

/// The line that `train` logs after an epoch.
fn logged(epoch: u32, valid: Option<f64>) -> Value {
    json!({
        "epoch": epoch, "loss": 2.0 / f64::from(epoch), "gradient_norm": 1.0, "learning_rate": 0.01, "train": 0.5, "valid": valid,
        "test": valid, "sample_s": 0.1, "load_s": 0.2, "compute_s": 0.3, "exchange_s": 0.2, "wait_s": 0.1, "seconds": 0.9,
        "evaluate_s": 0.1, "edges": 1000, "rows_loaded": 500, "rows_cached": 100, "rows_from_peers": 50, "rows_exchanged": 20,
        "exchanged": [], "bytes_sent": 4096,
        "sent": [{"phase": "load", "route": "memory", "bytes": 4096, "messages": 2}],
    })
}

fn log(epochs: u32) -> String {
    (1..=epochs).map(|epoch| logged(epoch, Some(0.5)).to_string() + "\n").collect()
}

#[test]
fn a_page_shows_all_that_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 1500);
    ok(folder, &["presample", "ds", "--fanouts", "5,3", "--batch-size", "64", "--epochs", "2"]);
    ok(folder, &["partition", "ds", "--parts", "4"]);
    ok(folder, &["partition", "ds", "--parts", "2", "--partitioner", "hash"]);
    fs::create_dir_all(folder.join("runs/old")).unwrap();
    fs::write(folder.join("runs/split.jsonl"), log(3)).unwrap();
    fs::write(folder.join("runs/old/long.jsonl"), log(200)).unwrap();
    fs::write(folder.join("runs/other.jsonl"), "{\"name\": \"of someone else\"}\n").unwrap();
    let (text, printed) = page(folder, &["."]);
    let sections = titles(&printed["sections"]);
    assert_eq!(
        sections,
        [
            "Graph",
            "Partitions",
            "Cross edges and balance by layer",
            "Cache",
            "Training",
            "Phases",
            "Rows and bytes",
            "Versions and environment"
        ]
    );
    assert_eq!(titles(&printed["left_out"]), ["Scores of the classes", "Configuration"]);
    assert_eq!(printed["runs"], json!(["runs/old/long", "runs/split"]));
    for words in [
        "multilevel-presampled-k4",
        "hash-k2",
        "f5-3_b64_e2_s0",
        "gsplit generate community",
        "layer 2 (input)",
        "Loads served by the hottest rows",
        "Phases of runs/split",
        "memory",
    ] {
        assert!(text.contains(words), "{words}");
    }
    // As evaluate measures.
    let evaluation = json(folder, &["evaluate", "ds", "--batches", "50"]);
    let share = 100.0 * evaluation["maps"][0]["all"]["cross_share"]["mean"].as_f64().unwrap();
    assert!(text.contains(&format!("{share:.1} % ±")), "{share}");
    assert_eq!(printed["figures"], json(folder, &["inspect", "ds"])["figures"]);
    assert!(text == page(folder, &[".", "--threads", "1"]).0, "the page depends on the threads");
}

#[test]
fn what_is_not_there_is_named_with_the_command_that_makes_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 300);
    let (text, printed) = page(folder, &["ds"]);
    assert_eq!(titles(&printed["sections"]), ["Graph", "Versions and environment"]);
    assert_eq!(
        titles(&printed["left_out"]),
        ["Partitions", "Cache", "Training", "Phases", "Rows and bytes", "Scores of the classes", "Configuration"]
    );
    for command in ["gsplit partition ds --parts 4", "gsplit presample ds --fanouts", "gsplit train ds --log"] {
        assert!(text.contains(command), "{command}");
    }
    // Nothing but a log, and nothing but an edge list.
    fs::write(folder.join("alone.jsonl"), log(1)).unwrap();
    fs::rename(folder.join("ds"), folder.join(".hidden")).unwrap();
    let (_, printed) = page(folder, &["."]);
    assert_eq!(titles(&printed["sections"]), ["Training", "Phases", "Rows and bytes", "Versions and environment"]);
    fs::write(folder.join("edges.txt"), "0 1\n1 2\n").unwrap();
    fs::remove_file(folder.join("alone.jsonl")).unwrap();
    ok(folder, &["convert", "edges.txt", "--out", "bare"]);
    let (_, printed) = page(folder, &["bare"]);
    assert_eq!(titles(&printed["sections"]), ["Graph", "Versions and environment"]);
}

#[test]
fn names_are_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let name = "a<b>&\"c'\u{7}<script>";
    community(folder, 300);
    ok(folder, &["partition", "ds", "--parts", "2", "--partitioner", "hash"]);
    fs::create_dir(folder.join(name)).unwrap();
    fs::rename(folder.join("ds"), folder.join(name).join("ds")).unwrap();
    fs::write(folder.join(name).join("x<y>.jsonl"), log(2)).unwrap();
    let (text, printed) = page(folder, &[name]);
    assert!(text.contains("x&lt;y&gt;") && text.contains("a&lt;b&gt;&amp;&quot;c"), "{}", printed["left_out"]);
}

#[test]
fn bad_input_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let says = |args: &[&str], code, words: &str| {
        let line = fails(folder, &[&["report"][..], args].concat(), code);
        assert!(line.contains(words), "{args:?}: {line}");
    };
    says(&["nowhere"], 1, "nowhere");
    fs::create_dir(folder.join("empty")).unwrap();
    says(&["empty"], 1, "nothing to report on: expected a dataset directory");
    community(folder, 300);
    says(&["ds", "--out", "ds/page.html"], 2, "lies in");
    fails(folder, &["report", "ds", "--batches", "0"], 2);
    fs::write(folder.join("thesis.html"), "<p>three years of work</p>").unwrap();
    says(&["ds", "--out", "thesis.html"], 1, "--force");
    ok(folder, &["report", "ds", "--out", "thesis.html", "--force"]);
    ok(folder, &["report", "ds", "--out", "thesis.html"]);
    ok(folder, &["generate", "community", "--vertices", "300", "--edges", "900", "--out", "other"]);
    says(&["."], 1, "has several datasets");
    fs::create_dir(folder.join("runs")).unwrap();
    for (bad, line) in [("{\"epoch\": 1", 2), ("{\"epoch\": 1, \"loss\": null}", 2)] {
        fs::write(folder.join("runs/torn.jsonl"), log(1) + bad).unwrap();
        says(&["runs"], 1, &format!("torn.jsonl, line {line}: expected a line of `gsplit train --log`"));
    }
    fs::remove_file(folder.join("runs/torn.jsonl")).unwrap();
    fs::create_dir_all(folder.join("runs/run/epoch-00001")).unwrap();
    fs::write(folder.join("runs/run/epoch-00001/checkpoint.json"), "{}").unwrap();
    says(&["runs"], 1, "checkpoint.json");
}

#[cfg(feature = "train")]
#[test]
fn a_run_is_known_by_its_log_and_its_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 600);
    let train = "train ds --parallelism single --layers 2 --fanouts 3,3 --hidden 8 --batch-size 64 --epochs 3 --log runs/a.jsonl \
                 --log-every 2 --checkpoint runs/a";
    ok(folder, &train.split_whitespace().collect::<Vec<_>>());
    let (text, printed) = page(folder, &["."]);
    assert_eq!(printed["runs"], json!(["runs/a"]), "the log and the checkpoints are of one run");
    assert!(titles(&printed["sections"]).contains(&"Configuration"), "{printed}");
    assert!(text.contains("confusion in the valid split") && text.contains("majority: "), "{printed}");
    assert!(text.contains(">seed</th><td>0</td>") && text.contains(">model.hidden</th><td>8</td>"));
    fs::remove_file(folder.join("runs/a.jsonl")).unwrap();
    let (_, printed) = page(folder, &["runs"]);
    assert_eq!(printed["runs"], json!(["a"]));
}
