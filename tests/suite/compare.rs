//! `gsplit compare`: systems differ in their documented choices, and in nothing else.

use std::path::Path;

use serde_json::Value;

use crate::support::{command, community, content, ended, errors, json, ok, refused, scratch};

const SMALL: &str = "--layers 2 --fanouts 5,5 --hidden 16 --batch-size 256 --presample-epochs 2";

/// `line` with the options of a small run.
fn small(line: &str) -> String {
    format!("{line} {SMALL}")
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"))
}

/// The rows by system.
fn rows(folder: &Path, more: &str) -> Vec<(String, Value)> {
    let table = json(folder, small(&format!("compare ds --ranks 2 {more}")));
    let rows = table["systems"].as_array().unwrap().iter();
    rows.map(|row| (row["system"].as_str().unwrap().to_string(), row.clone())).collect()
}

#[test]
#[ignore = "takes long: make test-all"]
fn systems_train_the_same_model_with_their_own_loads() {
    let folder = &*scratch();
    community(folder, 1500);
    // Existing artifacts are used, whatever their names.
    ok(folder, "presample ds --fanouts 5,5 --batch-size 256 --epochs 2 --key seen");
    ok(folder, "partition ds --parts 2 --weights degree --key mine");
    let all = rows(folder, "");
    let found: Vec<_> = all.into_iter().filter(|(name, _)| name != "GraNNDis").collect();
    let maps: Vec<Option<&str>> = found.iter().map(|(_, row)| row["partition"].as_str()).collect();
    let made =
        ["tried/random-k2", "mine", "tried/multilevel-vertex-k2", "tried/multilevel-presampled-k2"]
            .map(Some);
    assert_eq!(maps, [&[None, None, Some("mine"), made[3]], &made[..]].concat());

    let [dgl, p3, intel, owned, rand, gsplit] = [0, 1, 2, 3, 4, 7].map(|at| &found[at].1);
    assert_eq!(p3["parallelism"], "push-pull");
    assert_eq!(number(gsplit, "times_gsplit"), 1.0);
    assert!(
        (number(dgl, "times_gsplit") - number(dgl, "seconds") / number(gsplit, "seconds")).abs()
            < 1e-9
    );
    for (name, row) in &found {
        // Split, each row is loaded once and each vertex computed once, whatever the map.
        let repeats = ["rows_loaded", "edges"]
            .map(|what| number(&row["work"], what) > number(&gsplit["work"], what));
        let expected = match name.as_str() {
            "DGL" | "P3" | "Owned" => [true, true],
            "Intel" => [false, true],
            _ => [false, false],
        };
        assert_eq!(repeats, expected, "{name}: {row}");
    }
    let exchanged = |row: &Value| number(&row["work"], "rows_exchanged");
    assert!([dgl, owned].iter().all(|row| exchanged(row) == 0.0) && exchanged(intel) > 0.0);
    assert_eq!((&intel["parallelism"], &intel["split_layers"]), (&"split".into(), &1.into()));
    assert!(exchanged(rand) > exchanged(gsplit), "random parts exchange more");

    let before = content(&folder.join("ds"));
    assert_eq!(rows(folder, "--systems gsplit").len(), 1);
    assert_eq!(content(&folder.join("ds")), before, "everything was found");
    // Maps for other mini-batches are stored next to these.
    let other = json(folder, small("compare ds --ranks 2 --systems gsplit").replace("256", "200"));
    let key = other["systems"][0]["partition"].as_str().unwrap();
    assert_eq!(key, "tried/multilevel-presampled-k2-f5-5_b200_e2_s0");
}

#[test]
fn systems_are_compared_on_the_same_mini_batches() {
    let folder = &*scratch();
    community(folder, 1500);
    let table = json(folder, small("compare ds --ranks 2"));
    let rows = table["systems"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["system"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["DGL", "P3", "Intel", "GraNNDis", "Owned", "Rand", "Edge", "Node", "GSplit"]
    );
    let left_out: Vec<&str> = table["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|left| left["system"].as_str().unwrap())
        .collect();
    assert_eq!(left_out, ["Quiver", "Song & Jiang"]);
    for row in rows {
        let (name, work) = (row["system"].as_str().unwrap(), &row["work"]);
        // Exact methods have the loss of the first; GraNNDis trains on other mini-batches.
        assert_eq!(row["loss_is_equal"].as_bool(), (name != "GraNNDis").then_some(true), "{row}");
        let sent =
            work["sent"].as_array().unwrap().iter().map(|sent| number(sent, "bytes")).sum::<f64>();
        let routes =
            ["memory", "peer", "host", "network"].map(|route| number(&row["bytes"], route));
        assert_eq!((routes[0], routes.iter().sum()), (sent, sent), "ranks are threads: {row}");
        assert!(
            sent > 0.0
                && number(row, "peak_rss_mb") > 1.0
                && number(&row["timings"], "compute_s") > 0.0,
            "{row}"
        );
    }
    // The run of a row is that of `gsplit train` with its options, and a map of the dataset's own.
    let presample = "presample ds --fanouts 5,5 --batch-size 256 --epochs 2";
    assert_eq!(json(folder, presample)["reused"], true, "the tried presample is taken over");
    assert_eq!(json(folder, "partition ds --parts 2")["reused"], true);
    let options = "--fanouts 5,5 --layers 2 --hidden 16 --batch-size 256 --epochs 2 --eval-every 0 --preset gsplit --ranks 2";
    let run = json(folder, format!("train ds {options}"));
    let (trained, row) = (&run["summary"]["epochs"][1], rows.last().unwrap());
    assert_eq!(
        (&trained["edges"], &trained["rows_loaded"]),
        (&row["work"]["edges"], &row["work"]["rows_loaded"])
    );
    assert!(number(&run, "peak_rss_mb") > 1.0);
    assert!((number(trained, "loss") - number(row, "loss")).abs() < 1e-6);

    let line = "compare ds --ranks 4 --groups 2 --systems gsplit,granndis --batches-per-epoch 3";
    let text = ok(folder, small(line));
    let expected = ["equal", "not comparable", "4 ranks in 2 groups"];
    assert!(expected.iter().all(|words| text.contains(words)), "{text}");
    assert!(
        folder.join("ds/tried/partition/multilevel-degree-k2x2").exists(),
        "a part for each rank of each server"
    );
}

#[test]
fn a_table_is_made_for_each_value_of_an_option() {
    let folder = &*scratch();
    community(folder, 600);
    let of_systems = |systems: &str, line: &str| {
        let told = json(folder, small(&format!("compare ds --systems {systems} --over {line}")));
        assert!(line.starts_with(told["over"].as_str().unwrap()), "{told}");
        let edges = |table: &Value, row: &Value| {
            (number(table, "value") as u32, number(&row["work"], "edges"))
        };
        let rows = |table: &Value| {
            table["systems"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| edges(table, row))
                .collect::<Vec<_>>()
        };
        told["tables"].as_array().unwrap().iter().flat_map(rows).collect::<Vec<_>>()
    };
    let ranks = of_systems("dgl,gsplit", "ranks=1,3");
    assert_eq!(ranks.iter().map(|line| line.0).collect::<Vec<_>>(), [1, 1, 3, 3]);
    // One rank repeats no work, and neither do several under split parallelism.
    assert!(
        ranks[0].1 == ranks[1].1 && ranks[1].1 == ranks[3].1 && ranks[2].1 > ranks[0].1,
        "{ranks:?}"
    );
    // Smaller mini-batches share less.
    let sizes = of_systems("gsplit", "batch-size=64,512 --ranks 2");
    assert!(sizes[0].1 > sizes[1].1, "{sizes:?}");
}

#[test]
fn what_cannot_be_put_side_by_side_is_said_in_one_line() {
    let folder = &*scratch();
    community(folder, 600);
    for (line, words) in [
        ("compare ds ds", "name one dataset, or only logs"),
        (
            "compare ds --systems p3 --model sage-pool",
            "P3 cannot run here: --parallelism push-pull: --model sage-pool",
        ),
        (
            "compare ds --systems dgl --batches-per-epoch 2",
            "--expansion-hops and --expansion-fanout are GraNNDis's",
        ),
        (
            "compare ds --batches-per-epoch 0 --systems granndis",
            "--batches-per-epoch 0: expected 1 or more",
        ),
        ("compare ds --fanouts 5 --layers 2", "--layers 2 needs 2 fanouts"),
        ("compare ds --over ranks=0", "--over ranks=0: --ranks 0"),
        ("compare ds --over seeds=1", "expected an option and its values, as ranks=1,2,4"),
        ("compare ds --systems dgl,quiver", "Quiver cannot run here"),
        ("compare ds --cache 1GiB", "--cache is for --device cuda"),
        ("compare ds --ranks 0", "--ranks 0"),
    ] {
        refused(folder, line, 2, words);
    }
    refused(folder, "compare .", 1, "not a gsplit dataset");
    assert!(!folder.join("ds/tried").exists(), "nothing was made for a refused command");
}

#[test]
fn an_interrupt_ends_the_system_that_runs() {
    let folder = &*scratch();
    community(folder, 1500);
    let mut program = command(folder, small("compare ds --ranks 2 --systems gsplit --epochs 1000"));
    let mut child = program.stderr(std::process::Stdio::piped()).spawn().unwrap();
    // The run starts when its map is there.
    while !folder.join("ds/tried/partition/multilevel-presampled-k2").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let output = ended(child, 20);
    let errors = errors(&output);
    assert!(output.status.code() == Some(143) && errors.contains("interrupted: "), "{errors}");
}
