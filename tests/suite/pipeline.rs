//! The main job through the binary: generated and real graphs, every parallelism, reuse, resume,
//! interruption.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::support::{command, community, json, ok, scratch, shared};

fn prepare(folder: &Path) {
    ok(folder, "presample ds --fanouts 5,5 --batch-size 256 --epochs 3");
    ok(folder, "partition ds --parts 4");
}

const TRAIN: &str =
    "train ds --layers 2 --fanouts 5,5 --hidden 32 --batch-size 256 --lr 0.01 --dropout 0.2";

/// [`TRAIN`] with `more` behind it.
fn train(more: &str) -> String {
    format!("{TRAIN} {more}")
}

fn last_epoch(run: &Value) -> &Value {
    run["summary"]["epochs"].as_array().unwrap().last().unwrap()
}

#[test]
fn interrupted_training_resumes_exactly() {
    let folder = &*scratch();
    community(folder, 2000);
    prepare(folder);
    let losses = |log: &str| -> Vec<String> {
        let text = fs::read_to_string(folder.join(log)).unwrap();
        text.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].to_string())
            .collect()
    };
    let whole = train("--epochs 8");
    ok(folder, format!("{whole} --log straight.jsonl"));
    // One command line, before the first checkpoint and after it.
    let interrupted = format!("{whole} --log resumed.jsonl --checkpoint run --resume");
    let mut child =
        command(folder, &interrupted).stdout(std::process::Stdio::null()).spawn().unwrap();
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
    let folder = &*scratch();
    ok(folder, format!("convert {} --out ds --symmetrise", source.display()));
    prepare(folder);
    let options = "train ds --layers 2 --fanouts 10,5 --hidden 64 --norm layer --batch-size 128 --lr 0.005 --dropout 0.3 \
                   --epochs 4 --eval-every 4";
    let run = json(folder, options);
    let test = last_epoch(&run)["test"].as_f64().unwrap();
    assert!((0.87..0.93).contains(&test), "test accuracy {test}");
    ok(folder, "verify ds");
}

#[test]
fn real_graph_tolokers_is_scored_by_roc_auc() {
    let Some(source) = shared("ogb-layout-tolokers") else { return };
    let folder = &*scratch();
    ok(folder, format!("convert {} --out ds --symmetrise", source.display()));
    let options = "train ds --parallelism single --layers 2 --fanouts 15,15 --hidden 64";
    let options = format!("{options} --lr 0.01 --dropout 0.2 --epochs 15 --eval-every 15");
    let run = json(folder, &options);
    assert_eq!(run["summary"]["metric"], "roc-auc");
    let test = last_epoch(&run)["test"].as_f64().unwrap();
    assert!((0.70..0.85).contains(&test), "ROC-AUC {test}");
}

#[test]
#[ignore = "takes long: make test-all"]
fn real_graph_cora_predicts_links() {
    let Some(source) = shared("ogb-layout-cora") else { return };
    let folder = &*scratch();
    ok(folder, format!("convert {} --out ds --symmetrise", source.display()));
    let link = "train ds --task link --parallelism single --layers 2 --fanouts 10,10";
    let options = "--hidden 64 --lr 0.003 --epochs 6 --eval-every 6 --dropout 0";
    let run = json(folder, format!("{link} {options} --batch-size 512"));
    assert_eq!(run["summary"]["metric"], "mrr");
    // Random scores have 0.05 among 101.
    let test = last_epoch(&run)["test"].as_f64().unwrap();
    assert!(test > 0.25, "MRR {test}");
}
