//! The main job through the binary: generated and real graphs, every parallelism, reuse, resume, interruption.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::support::{command, community, fails, json, ok, shared};

fn prepare(folder: &Path) {
    ok(folder, &["presample", "ds", "--fanouts", "5,5", "--batch-size", "256", "--epochs", "3"]);
    ok(folder, &["partition", "ds", "--parts", "4"]);
}

const TRAIN: &str = "train ds --layers 2 --fanouts 5,5 --hidden 32 --batch-size 256 --lr 0.01 --dropout 0.2";

/// The words of [`TRAIN`] and `more`.
fn train(more: &str) -> Vec<&str> {
    TRAIN.split(' ').chain(more.split(' ')).collect()
}

fn last_epoch(run: &Value) -> &Value {
    run["summary"]["epochs"].as_array().unwrap().last().unwrap()
}

#[test]
fn every_parallelism_learns_the_same_from_a_generated_graph() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 2000);
    prepare(folder);
    let runs = ["single", "data", "split", "owned"]
        .map(|how| json(folder, &train(&format!("--epochs 2 --parallelism {how} --log {how}.jsonl"))));
    let [a, b, c, d] = runs.each_ref().map(last_epoch);
    let loss = |epoch: &Value| epoch["loss"].as_f64().unwrap();
    assert!([b, c, d].iter().all(|other| (loss(a) - loss(other)).abs() < 2e-3), "{a} {b} {c} {d}");
    let count = |epoch: &Value, key: &str| epoch[key].as_u64().unwrap();
    assert_eq!(count(a, "edges"), count(c, "edges"));
    assert_eq!(count(a, "rows_loaded"), count(c, "rows_loaded"));
    assert!(count(b, "rows_loaded") > count(a, "rows_loaded") && count(c, "rows_exchanged") > 0);
    // Ranks that take the seeds of their own parts repeat less.
    for key in ["edges", "rows_loaded"] {
        assert!(count(d, key) > count(a, key) && count(d, key) < count(b, key), "{key}: {a} {b} {d}");
    }
    assert_eq!(count(d, "rows_exchanged"), 0);

    let line = fs::read_to_string(folder.join("split.jsonl")).unwrap();
    let line: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    let keys = "epoch loss valid test sample_s load_s compute_s exchange_s wait_s edges rows_loaded rows_exchanged";
    assert!(keys.split(' ').all(|key| line.get(key).is_some()), "{line}");
    let table = ok(folder, &["compare", "single.jsonl", "data.jsonl", "split.jsonl"]);
    assert_eq!(table.lines().count(), 4, "{table}");
    ok(folder, &["verify", "ds"]);
    assert!(ok(folder, &["inspect", "ds"]).contains("partition multilevel-presampled-k4"));
}

#[test]
fn finished_stages_are_reused_and_stale_ones_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 1500);
    prepare(folder);
    let stamp = |file: &str| fs::metadata(folder.join(file)).unwrap().modified().unwrap();
    let files = [
        "ds/dataset.json",
        "ds/presample/f5-5_b256_e3_s0/presample.json",
        "ds/partition/multilevel-presampled-k4/partition.json",
    ];
    let before = files.map(stamp);
    community(folder, 1500);
    prepare(folder);
    assert_eq!(files.map(stamp), before, "nothing was made again");
    let other = ["generate", "community", "--vertices", "1501", "--edges", "9000", "--out", "ds"];
    assert!(fails(folder, &other, 1).contains("--force"));
    ok(folder, &[&other[..], &["--force"]].concat());
    // The presample went with the graph it was made from; put back by hand it is refused by name.
    assert!(!folder.join("ds/presample").exists());
}

#[test]
fn interrupted_training_resumes_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 2000);
    prepare(folder);
    let losses = |log: &str| -> Vec<String> {
        let text = fs::read_to_string(folder.join(log)).unwrap();
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].to_string()).collect()
    };
    let whole = train("--epochs 8");
    ok(folder, &[&whole[..], &["--log", "straight.jsonl"]].concat());
    // One command line, before the first checkpoint and after it.
    let interrupted = [&whole[..], &["--log", "resumed.jsonl", "--checkpoint", "run", "--resume"]].concat();
    let mut child = command(folder, &interrupted).stdout(std::process::Stdio::null()).spawn().unwrap();
    while !folder.join("run/epoch-00002").exists() {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it could be killed");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    ok(folder, &interrupted);
    assert_eq!(losses("resumed.jsonl"), losses("straight.jsonl"));
}

#[test]
#[ignore = "takes long: make test-all"]
fn real_graph_amazon_computers_reaches_its_accuracy() {
    let Some(source) = shared("ogb-binary-amazon-computers") else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    ok(folder, &["convert", source.to_str().unwrap(), "--out", "ds", "--symmetrise"]);
    prepare(folder);
    let options = "train ds --layers 2 --fanouts 10,5 --hidden 64 --norm layer --batch-size 128 --lr 0.005 --dropout 0.3 \
                   --epochs 4 --eval-every 4";
    let run = json(folder, &options.split_whitespace().collect::<Vec<_>>());
    let test = last_epoch(&run)["test"].as_f64().unwrap();
    assert!((0.87..0.93).contains(&test), "test accuracy {test}");
    ok(folder, &["verify", "ds"]);
}

#[test]
fn real_graph_tolokers_is_scored_by_roc_auc() {
    let Some(source) = shared("ogb-layout-tolokers") else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    ok(folder, &["convert", source.to_str().unwrap(), "--out", "ds", "--symmetrise"]);
    let options = ["train", "ds", "--parallelism", "single", "--layers", "2", "--fanouts", "15,15", "--hidden", "64"];
    let options =
        [&options[..], &["--lr", "0.01", "--dropout", "0.2", "--epochs", "15", "--eval-every", "15"]].concat();
    let run = json(folder, &options);
    assert_eq!(run["summary"]["metric"], "roc-auc");
    let test = last_epoch(&run)["test"].as_f64().unwrap();
    assert!((0.70..0.85).contains(&test), "ROC-AUC {test}");
}

#[test]
#[ignore = "takes long: make test-all"]
fn real_graph_cora_predicts_links() {
    let Some(source) = shared("ogb-layout-cora") else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    ok(folder, &["convert", source.to_str().unwrap(), "--out", "ds", "--symmetrise"]);
    let link = ["train", "ds", "--task", "link", "--parallelism", "single", "--layers", "2", "--fanouts", "10,10"];
    let options = ["--hidden", "64", "--lr", "0.003", "--epochs", "6", "--eval-every", "6", "--dropout", "0"];
    let run = json(folder, &[&link[..], &options, &["--batch-size", "512"]].concat());
    assert_eq!(run["summary"]["metric"], "mrr");
    // Random scores have 0.05 among 101.
    let test = last_epoch(&run)["test"].as_f64().unwrap();
    assert!(test > 0.25, "MRR {test}");
}
