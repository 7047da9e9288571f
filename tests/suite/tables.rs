//! Tables as people have them: one command with no option but the label learns them, and the model
//! is used on new ones.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{errors, fails, gsplit, ok, refused, scratch};

/// Makes the tables of this kind by `tests/tables.py`; returns the name of the label.
fn made(folder: &Path, kind: &str, rows: u32) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tables.py");
    let rows = rows.to_string();
    let output = Command::new("python3")
        .arg(script)
        .args([kind, ".", &rows])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}

/// Score of the test split by `gsplit run` with no option but the label, and that of its baseline;
/// and its metric.
fn learnt(folder: &Path, kind: &str, rows: u32) -> (f64, f64, String) {
    let label = made(folder, kind, rows);
    let line = match kind {
        "ratings" => "run edges.csv --bipartite --out o --json -- --task link".to_string(),
        _ => format!("run edges.csv --nodes nodes.csv --out o --json --label-column {label}"),
    };
    let told: Value = serde_json::from_str(&ok(folder, line)).unwrap();
    let train =
        told["steps"].as_array().unwrap().iter().find(|step| step["step"] == "train").unwrap();
    let summary = &train["result"]["summary"];
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{kind}: {summary}"));
    (
        number(&summary["best"]["test"]),
        number(&summary["baseline"]["test"]),
        summary["metric"].as_str().unwrap().to_string(),
    )
}

#[test]
#[ignore = "takes long: make test-all"]
fn five_tables_are_learnt_with_no_option_but_the_label() {
    // Floors are below the scores that were reached, and above the scores of scikit-learn's
    // gradient boosting with the means of the neighbours' columns. README's own commands, which
    // documents.rs runs, learn another one in `make test`.
    for (kind, rows, metric, floor) in [
        ("customers", 700, "accuracy", 0.95),
        ("fraud", 1200, "roc-auc", 0.97),
        ("interests", 700, "micro-f1", 0.9),
    ] {
        let (score, baseline, by) = learnt(&scratch(), kind, rows);
        assert_eq!(by, metric, "{kind}");
        assert!(
            score >= floor && score > baseline,
            "{kind}: {metric} {score}, baseline {baseline}"
        );
    }
    let (score, baseline, metric) = learnt(&scratch(), "prices", 700);
    assert!(
        metric == "rmse" && score < 0.35 * baseline,
        "{metric} {score}, of the mean {baseline}"
    );
    let (score, baseline, metric) = learnt(&scratch(), "ratings", 300);
    assert!(
        metric == "mrr" && score > 1.2 * baseline,
        "{metric} {score}, of popularity {baseline}"
    );
}

#[test]
fn a_model_is_used_on_new_tables_by_the_names_of_their_columns() {
    let folder = &*scratch();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/customers");
    let [nodes, edges] =
        ["nodes.csv", "edges.csv"].map(|name| fs::read_to_string(shipped.join(name)).unwrap());
    fs::write(folder.join("nodes.csv"), &nodes).unwrap();
    fs::write(folder.join("edges.csv"), edges).unwrap();
    let shape = "--random-split 0.6,0.2,0.2 --out o -- --epochs 3 --fanouts 5,5";
    ok(folder, format!("run edges.csv --nodes nodes.csv --label-column segment {shape}"));
    // Vertices as before, with the columns in another order and without the label.
    let cells: Vec<Vec<&str>> = nodes.lines().map(|line| line.split(',').collect()).collect();
    let table = |change: &dyn Fn(&[&str]) -> String| {
        cells.iter().map(|row| change(row) + "\n").collect::<String>()
    };
    let write = |name: &str, text: String| fs::write(folder.join(name), text).unwrap();
    write("moved.csv", table(&|row| [row[6], row[4], row[0], row[5], row[3]].join(",")));
    write("renamed.csv", table(&|row| row.join(",").replace("Rome", "Roma")));
    write("short.csv", table(&|row| [row[0], row[3], row[5], row[6]].join(",")));
    let by = "infer --checkpoint o/checkpoint --edges edges.csv --out new.npy --force --nodes";
    ok(folder, "infer o/dataset --checkpoint o/checkpoint --predict logits --out old.npy");
    ok(folder, format!("{by} moved.csv --predict logits"));
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    assert_eq!(read("new.npy"), read("old.npy"), "to the last bit");
    let left: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{left:?}");
    let unseen = "column `city`: `Roma`: not a category that training saw: pass --schema \
                  unseen=other";
    refused(folder, format!("{by} renamed.csv"), 1, unseen);
    ok(folder, format!("{by} renamed.csv --schema unseen=other"));
    let of_structure = "--label-column segment --features fastrp:4 --random-split auto --out rp";
    ok(folder, format!("convert edges.csv --nodes nodes.csv {of_structure}"));
    ok(folder, "train rp --epochs 1 --layers 2 --fanouts 3,3 --checkpoint rpc");
    let line = "infer --nodes nodes.csv --edges edges.csv --checkpoint rpc --out q.npy";
    refused(folder, line, 2, "the features of its training were no columns of a table");
    let lacking = "short.csv: has no column `income`, which is a feature of the recipe";
    refused(folder, format!("{by} short.csv"), 1, lacking);
    ok(folder, "convert edges.csv --nodes moved.csv --out other --label-column none");
    let line = "infer other --checkpoint o/checkpoint --out q.npy";
    refused(folder, line, 2, "other: the columns are in another order: `city` is in the place of");
    ok(folder, "convert edges.csv --nodes moved.csv --out same --recipe o/dataset");
    ok(folder, "infer same --checkpoint o/checkpoint --predict logits --out again.npy");
    assert_eq!(read("again.npy"), read("old.npy"));
}

#[test]
fn new_tables_are_read_as_those_of_the_training_were() {
    let folder = &*scratch();
    let write = |name: &str, rows: &dyn Fn(u32) -> String, header: &str| {
        let rows: String = (0..60).map(|v| rows(v) + "\n").collect();
        fs::write(folder.join(name), format!("{header}\n{rows}")).unwrap();
    };
    let team = |v: u32| ["red", "blue", "green"][v as usize % 3];
    let part = |v: u32| ["train", "valid", "test"][v as usize % 5 / 2];
    write("nodes.csv", &|v| format!("{v},{}.5,{},{}", v % 7, team(v), part(v)), "id,age,team,part");
    write(
        "edges.csv",
        &|v| format!("{v},{},{},{}.5", (v + 1) % 60, (v * 7) % 60, 1 + v % 4),
        "who,whom,other,amount",
    );
    write("bare.csv", &|v| format!("{v},{},{}", (v + 1) % 60, (v * 7) % 60), "who,whom,other");
    let ends = "--source-column who --target-column whom --schema edge-weights=amount \
                --bipartite=no";
    let nodes = "--nodes nodes.csv --label-column team --split-column part --out ds";
    ok(folder, format!("convert edges.csv {ends} {nodes}"));
    let train =
        "train ds --layers 1 --fanouts 4 --hidden 4 --epochs 2 --draw-by weight --checkpoint run";
    ok(folder, train);

    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    let logits = "--checkpoint run --predict logits --force --out";
    let told = ok(folder, format!("infer ds {logits} old.npy"));
    assert!(told.contains("classes by number: 0 blue, 1 green, 2 red"), "{told}");
    let of = |edges: &str, more: &str| {
        format!("infer --nodes nodes.csv --edges {edges} {logits} {more}")
    };
    let again = ok(folder, of("edges.csv", "new.npy"));
    assert!(read("new.npy") == read("old.npy"), "ends and weights are the training's");
    let scores = |told: &str| {
        told.lines()
            .filter(|line| line.contains("accuracy"))
            .map(str::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(scores(&again)[..3], scores(&told), "splits too");
    assert!(scores(&again)[3].starts_with("  all    accuracy "), "and all rows: {again}");

    refused(folder, of("bare.csv", "q.npy"), 1, "error: bare.csv: has no column `amount`");
    refused(
        folder,
        "infer --checkpoint run",
        2,
        "name what to infer on: DATASET, or --nodes TABLE",
    );
    let line = fails(folder, "infer ds --checkpoint run --epoch 7", 2);
    assert!(line.ends_with("choose last, or one of 1, 2"), "{line}");

    // Classes are compared by their names.
    let number = |v: u32| format!("{v},{}.5,{}", v % 7, v % 3);
    write("numbers.csv", &number, "id,age,team");
    let nodes =
        "--nodes numbers.csv --label-column team --random-split 0.5,0.3,0.2 --out by-number";
    ok(folder, format!("convert edges.csv {ends} {nodes}"));
    let output = gsplit(folder, "infer by-number --checkpoint run");
    assert!(errors(&output).contains("not scored: the dataset's labels"));
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(!told.contains("accuracy"), "{told}");
}

#[test]
fn vertices_of_a_metis_file_keep_their_numbers_to_the_predictions() {
    let folder = &*scratch();
    // A ring: vertex v, from 1, is next to the ones before and after it.
    let n = 24;
    let lines: String =
        (0..n).map(|v| format!("{} {}\n", (v + n - 1) % n + 1, (v + 1) % n + 1)).collect();
    fs::write(folder.join("g.graph"), format!("{n} {n}\n{lines}")).unwrap();
    let rows: String =
        (1..=n).rev().map(|id| format!("{id},{},{}\n", f64::from(id) / 2.0, id % 2)).collect();
    fs::write(folder.join("nodes.csv"), format!("id,f,class\n{rows}")).unwrap();
    ok(folder, "convert g.graph --nodes nodes.csv --random-split 0.5,0.25,0.25 --out ds");
    let shown = ok(folder, "inspect ds");
    assert!(shown.contains("ids       count from 1, as in the input"), "{shown}");
    ok(folder, "export ds --format snap --original-ids --out out.txt");
    let edges = fs::read_to_string(folder.join("out.txt")).unwrap();
    assert!(edges.contains("\n24\t1\n") && !edges.contains("\n0\t"), "{edges}");
    ok(folder, "train ds --epochs 1 --fanouts 2,2 --checkpoint c");
    ok(folder, "infer ds --checkpoint c --out p.npy");
    let ids = fs::read(folder.join("p.ids.npy")).unwrap();
    let expected: Vec<u8> = (1..=24u64).flat_map(u64::to_le_bytes).collect();
    assert!(ids.ends_with(&expected), "predictions have the ids of the file");
    fs::write(folder.join("nodes.csv"), format!("id,f,class\n0,1,1\n{rows}")).unwrap();
    let told = "nodes.csv: line 2: 0 (ids count from 1 to 24) is not a vertex of the graph";
    refused(folder, "convert g.graph --nodes nodes.csv --out other", 1, told);
}
