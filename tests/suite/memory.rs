//! A budget of memory: what fits it, what does not, and rows that are read from disk.

use std::fs::OpenOptions;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::gpus::words;
use crate::support::{command, community, fails, gsplit, json, ok};

const TRAIN: &str = "train ds --parallelism single --layers 2 --fanouts 5,5 --hidden 8 --epochs 2 --batch-size 256";

/// The words of [`TRAIN`] and `more`.
fn train(more: &'static str) -> Vec<&'static str> {
    TRAIN.split(' ').chain(more.split_whitespace()).collect()
}

#[test]
fn a_budget_that_is_too_small_names_one_that_does() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 3000);
    let line = fails(folder, &train("--memory 64MiB"), 2);
    assert!(line.starts_with("error: --memory: 64 MiB are too few, the graph takes"), "{line}");
    let least = line.split("pass --memory ").nth(1).and_then(|rest| rest.split(" or more").next()).unwrap();
    let losses = |run: &Value| {
        run["summary"]["epochs"].as_array().unwrap().iter().map(|epoch| epoch["loss"].clone()).collect::<Vec<_>>()
    };
    let usual = json(folder, &train("--load-features mapped"));
    // As much as a process of the same size holds, and the rows, which are small.
    let number: u64 = least.trim_end_matches("MiB").parse().unwrap();
    for more in ["", "--load-features disk"] {
        let budget = format!("{}MiB", number + 32);
        let arguments = [&train(more)[..], &["--memory", &budget]].concat();
        let run = json(folder, &arguments);
        assert_eq!(losses(&run), losses(&usual));
        let kept = run["summary"]["epochs"][0]["rows_kept"].as_u64().unwrap();
        assert_eq!(kept > 0, !more.is_empty(), "{run:#}");
    }
    let output = gsplit(folder, &train("--load-features disk"));
    let [told, notes] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(notes.contains("feature rows are read from disk: 3000 of 3000 stay in memory"), "{notes}");
    assert!(notes.contains("feature rows are read by "), "{notes}");
    assert!(told.contains("from disk   MB read        kept"), "{told}");
    ok(folder, &train("--checkpoint run --eval-every 0"));
    let infer = |more: &[&str], out: &str| {
        ok(folder, &[&["infer", "ds", "--checkpoint", "run", "--predict", "logits", "--out", out], more].concat());
        std::fs::read(folder.join(out)).unwrap()
    };
    assert_eq!(infer(&["--load-features", "disk"], "a.npy"), infer(&["--load-features", "mapped"], "b.npy"));
}

#[test]
fn a_feature_file_that_is_cut_while_it_is_read_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 100_000);
    let endless = "--load-features disk --quiet --epochs 100000 --eval-every 0 --log log.jsonl --memory";
    let endless: Vec<&str> = TRAIN.replace(" --epochs 2", "").leak().split(' ').chain(endless.split(' ')).collect();
    let line = fails(folder, &[&endless[..], &["64MiB"]].concat(), 2);
    // So few rows are kept that mini-batches read the others.
    let least = line.split("pass --memory ").nth(1).and_then(|rest| rest.split("MiB or more").next()).unwrap();
    let budget = format!("{}MiB", least.parse::<u64>().unwrap() + 8);
    let mut child = command(folder, &[&endless[..], &[&budget]].concat()).stderr(Stdio::piped()).spawn().unwrap();
    let log = folder.join("log.jsonl");
    while std::fs::read_to_string(&log).map_or(0, |text| text.lines().count()) == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    let features = OpenOptions::new().write(true).open(folder.join("ds/nodes/feat.arrow")).unwrap();
    features.set_len(100_000).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), told.lines().count()), (Some(1), 1), "{told}");
    assert!(told.starts_with("error: ") && told.contains("feat.arrow: ends at byte 100000"), "{told}");
    let first: Value = serde_json::from_str(std::fs::read_to_string(&log).unwrap().lines().next().unwrap()).unwrap();
    assert!(first["rows_from_disk"].as_u64().unwrap() > 0 && first["bytes_from_disk"].as_u64().unwrap() > 0, "{first}");
}

#[test]
fn partitions_keep_to_a_budget_or_name_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    ok(folder, &words("generate rmat --vertices 1000000 --edges 60000 --out ds"));
    let partition = |more: &str| format!("partition ds --parts 2 --weights unit --quality fast {more}");
    let line = fails(folder, &words(&partition("--memory 64MiB")), 2);
    assert!(line.starts_with("error: --memory: to partition 1000000 vertices takes"), "{line}");
    let least = line.split("pass --memory ").nth(1).and_then(|rest| rest.split(" or more").next()).unwrap();
    let number: u64 = least.trim_end_matches("MiB").parse().unwrap();
    let output = gsplit(folder, &words(&partition(&format!("--memory {}MiB", number + 8))));
    let [said, notes] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success() && said.contains("2 parts by multilevel"), "{said}{notes}");
    let line = fails(folder, &words(&partition("--partitioner range --memory 1GiB")), 2);
    assert!(line.contains("--memory: --partitioner range takes a few bytes a vertex"), "{line}");
}

#[test]
fn a_trial_ends_each_epoch_early_and_scores_samples() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 3000);
    let run = json(folder, &train("--trial 1 --eval-fanouts 3,3"));
    let whole = json(folder, &train("--eval-fanouts 3,3 --epochs 1"));
    let [first, all] = [&run, &whole].map(|run| run["summary"]["epochs"][0].clone());
    assert!(first["edges"].as_u64().unwrap() < all["edges"].as_u64().unwrap(), "{first:#} {all:#}");
    assert!(first["valid"].as_f64().is_some() && run["summary"]["epochs"].as_array().unwrap().len() == 2);
    let line = fails(folder, &train("--trial 1 --checkpoint run"), 2);
    assert!(line.contains("--trial"), "{line}");
}
