//! `gsplit bench`: that systems differ in what they are said to differ in, and in nothing else.

use std::path::Path;

use serde_json::Value;

use crate::support::{community, content, fails, json, ok};

const SMALL: &str =
    "--layers 2 --fanouts 5,5 --hidden 16 --batch-size 256 --epochs 1 --warmup 1 --presample-epochs 2 --ranks 2";

/// The command line of a comparison on `ds` with `more`.
fn table3(more: &str) -> Vec<&str> {
    ["bench", "table3", "ds"].into_iter().chain(SMALL.split(' ')).chain(more.split_whitespace()).collect()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"))
}

/// The rows by system.
fn rows(folder: &Path, more: &str) -> Vec<(String, Value)> {
    let table = json(folder, &table3(more));
    let rows = table["systems"].as_array().unwrap().iter();
    rows.map(|row| (row["system"].as_str().unwrap().to_string(), row.clone())).collect()
}

#[test]
fn systems_train_the_same_model_with_their_own_loads() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 1500);
    // What is there is used, whatever its name.
    ok(folder, &["presample", "ds", "--fanouts", "5,5", "--batch-size", "256", "--epochs", "2", "--key", "seen"]);
    ok(folder, &["partition", "ds", "--parts", "2", "--weights", "degree", "--key", "mine"]);
    let found = rows(folder, "--rounds 2");
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["DGL", "P3", "Intel", "Owned", "Rand", "Edge", "Node", "GSplit"]);
    let maps: Vec<Option<&str>> = found.iter().map(|(_, row)| row["partition"].as_str()).collect();
    let made = ["random-k2", "mine", "multilevel-vertex-k2", "multilevel-presampled-k2"].map(Some);
    assert_eq!(maps, [&[None, None, Some("mine"), made[3]], &made[..]].concat());

    let [dgl, _, intel, owned, rand, _, _, gsplit] = [0, 1, 2, 3, 4, 5, 6, 7].map(|at| &found[at].1);
    assert_eq!(number(gsplit, "times_gsplit"), 1.0);
    assert!((number(dgl, "times_gsplit") - number(dgl, "seconds") / number(gsplit, "seconds")).abs() < 1e-9);
    for (name, row) in &found {
        let (loss, expected) = (number(row, "loss"), number(dgl, "loss"));
        assert!((loss - expected).abs() <= 1e-4 * expected, "{name} has loss {loss}, DGL {expected}");
        assert_eq!(row["rounds"].as_array().unwrap().len(), 2);
        let phases = ["sample_s", "load_s", "forward_backward_s"].map(|phase| number(row, phase));
        assert!(phases.iter().all(|&seconds| seconds >= 0.0) && phases.iter().sum::<f64>() > 0.0, "{row}");
        assert!(number(row, "exchange_s") <= phases[2], "{row}");
        let median =
            |key: &str| row["rounds"].as_array().unwrap().iter().map(|round| number(round, key)).sum::<f64>() / 2.0;
        assert!((median("seconds") - number(row, "seconds")).abs() < 1e-12, "{row}");
        assert!(row["cache"].is_null() && number(row, "rows_cached") == 0.0, "{row}");
        // Split, each row is loaded once and each vertex computed once, whatever the map.
        let (loaded, edges) = (number(row, "rows_loaded"), number(row, "edges"));
        let repeats = [loaded > number(gsplit, "rows_loaded"), edges > number(gsplit, "edges")];
        let expected = match name.as_str() {
            "DGL" | "P3" | "Owned" => [true, true],
            "Intel" => [false, true],
            _ => [false, false],
        };
        assert_eq!(repeats, expected, "{name}: {row}");
    }
    assert!([dgl, owned].iter().all(|row| number(row, "rows_exchanged") == 0.0));
    assert!(number(intel, "rows_exchanged") > 0.0);
    assert_eq!((&intel["parallelism"], &intel["split_layers"]), (&"split".into(), &1.into()));
    assert!(number(rand, "rows_exchanged") > number(gsplit, "rows_exchanged"), "random parts exchange more");

    let before = content(&folder.join("ds"));
    let text = ok(folder, &table3("--rounds 1 --systems gsplit,dgl"));
    assert!(text.contains("DGL") && text.contains("GSplit") && !text.contains("Rand"), "{text}");
    assert_eq!(content(&folder.join("ds")), before, "everything was found");
    // Maps for other mini-batches lie beside those.
    let other = SMALL.replace("256", "200");
    let other: Vec<&str> =
        ["bench", "table3", "ds", "--systems", "gsplit"].into_iter().chain(other.split(' ')).collect();
    let other = json(folder, &other);
    let key = other["systems"][0]["partition"].as_str().unwrap();
    assert_eq!(key, "multilevel-presampled-k2-f5-5_b200_e2_s0");
}

#[test]
fn what_cannot_be_compared_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 600);
    for (more, words) in [
        ("--systems dgl,quiver", "Quiver cannot run here"),
        ("--cache 1GiB", "--cache is for --device cuda"),
        ("--systems nothing", "possible values"),
        ("--rounds 0", "--rounds"),
    ] {
        let output = crate::support::gsplit(folder, &table3(more));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && errors.contains(words), "{more}: {errors}");
    }
    let line = fails(folder, &["bench", "table3", "ds", "--layers", "2", "--fanouts", "5"], 2);
    assert!(line.contains("--layers 2 needs 2 fanouts"), "{line}");
    assert!(fails(folder, &["bench", "table3", "ds", "--ranks", "0"], 2).contains("--ranks 0"));
    if json(folder, &["doctor"])["gpus"].as_array().unwrap().is_empty() {
        let line = fails(folder, &table3("--device cuda"), 1);
        assert!(line.contains("--device cpu"), "{line}");
    }
    assert!(!folder.join("ds/partition").exists(), "nothing was made for what is refused");
    let text = ok(folder, &table3("--systems dgl --rounds 1"));
    assert!(!text.contains("Quiver") && !folder.join("ds/presample").exists(), "{text}");
}
