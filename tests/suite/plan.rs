//! `plan`, `doctor --profile` and `train --parallelism auto`, as a user calls them.

use std::fs;

use serde_json::Value;

use crate::support::{
    command, community, content, errors, fails, gsplit, json, losses, ok, refused, scratch,
};

const SMALL: &str = "--layers 2 --fanouts 5,5 --hidden 16 --batch-size 256";

/// The plans of `said` with this name.
fn named<'s>(said: &'s Value, name: &str) -> &'s Value {
    let mut plans = said["plans"].as_array().unwrap().iter();
    plans.find(|plan| plan["name"] == name).unwrap_or_else(|| panic!("{name}: {said}"))
}

/// The options of a plan as one text.
fn options(row: &Value) -> String {
    let options: Vec<&str> =
        row["options"].as_array().unwrap().iter().map(|option| option.as_str().unwrap()).collect();
    options.join(" ")
}

/// The seconds of the pieces of a `plan` that are of these `phases`.
fn of_phases(plan: &Value, phases: &[&str]) -> f64 {
    let pieces = plan["cost"]["pieces"].as_array().unwrap().iter();
    let of_these = pieces.filter(|piece| phases.contains(&piece["phase"].as_str().unwrap()));
    of_these.map(|piece| piece["seconds"].as_f64().unwrap()).sum()
}

fn seconds(plan: &Value) -> f64 {
    plan["epoch_s"].as_f64().unwrap()
}

#[test]
fn systems_are_ranked_by_what_they_do_and_what_the_hardware_can() {
    let folder = &*scratch();
    community(folder, 1500);
    let plan = format!("plan ds {SMALL} --profile v100-4-pcie");
    let said = json(folder, &plan);
    let plans = said["plans"].as_array().unwrap();
    for name in [
        "one rank",
        "DGL",
        "Quiver",
        "Owned",
        "Intel",
        "GSplit",
        "Edge",
        "Node",
        "Rand",
        "split 1 of 2",
    ] {
        let plan = named(&said, name);
        let expected =
            of_phases(plan, &["sample", "load"]).max(of_phases(plan, &["compute", "exchange"]));
        let expected = expected * said["steps"].as_f64().unwrap();
        assert!((seconds(plan) - expected).abs() < 1e-9 * expected, "{plan}");
    }
    assert!(
        plans.windows(2).all(|pair| seconds(&pair[0]) <= seconds(&pair[1])),
        "the fastest first"
    );
    let left_out: Vec<&str> = said["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["system"].as_str().unwrap())
        .collect();
    let systems = ["Song & Jiang", "P3", "GraNNDis", "GraNNDis, 4 batches", "GraNNDis, 16 batches"];
    assert_eq!(left_out, systems, "none of which GPUs run");
    for row in &said["left_out"].as_array().unwrap()[1..] {
        let why = row["why"].as_str().unwrap();
        assert!(
            seconds(&row["plan"]) > 0.0 && (why.contains("CPUs") || why.contains("GPUs")),
            "{row}"
        );
    }
    assert_eq!(said["apart"], serde_json::json!([]));
    let before = content(&folder.join("ds"));
    assert_eq!(json(folder, &plan)["plans"], said["plans"], "the same, and nothing is made again");
    assert_eq!(content(&folder.join("ds")), before);

    // Other hardware.
    let shipped =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/profiles/v100-4-pcie.toml"))
            .unwrap();
    fs::write(folder.join("slow.toml"), shipped.replace("bytes = 1e10", "bytes = 1e6")).unwrap();
    fs::write(folder.join("tiny.toml"), shipped.replace("memory = 16e9", "memory = 2e5")).unwrap();
    let slow = json(folder, plan.replace("v100-4-pcie", "slow.toml"));
    assert!(
        seconds(named(&slow, "Rand")) > 2.0 * seconds(named(&said, "Rand")),
        "its rows cross slow links"
    );
    assert_eq!(seconds(named(&slow, "one rank")), seconds(named(&said, "one rank")));
    // Little more memory than a mini-batch takes: the graph stays in the host's memory, and is
    // drawn from over the bus.
    let need = named(&said, "DGL")["cost"]["memory"].as_f64().unwrap();
    fs::write(
        folder.join("small.toml"),
        shipped.replace("16e9", &format!("{:e}", 1.05 * need / 0.9)),
    )
    .unwrap();
    let small =
        json(folder, format!("{} --systems dgl", plan.replace("v100-4-pcie", "small.toml")));
    let [near, far] = [&said, &small].map(|said| of_phases(named(said, "DGL"), &["sample"]));
    assert!(far > 2.0 * near, "{far} {near}");
    let line = refused(folder, plan.replace("v100-4-pcie", "tiny.toml"), 1, "no system fits");
    assert!(line.contains("needs"), "{line}");
    let text = ok(folder, &plan);
    assert!(
        text.contains("bound by")
            && text.contains("to train with it: gsplit train ds --parallelism"),
        "{text}"
    );
}

/// Planning leaves the dataset's own artifacts, and the defaults of other commands, as they were.
#[test]
fn questions_change_nothing() {
    let folder = &*scratch();
    community(folder, 900);
    ok(folder, "presample ds --fanouts 5,5 --batch-size 256 --key mine");
    let own = || {
        let mut found = content(&folder.join("ds"));
        found.retain(|name, _| !name.starts_with("tried/"));
        found
    };
    let (before, shown) = (own(), json(folder, "inspect ds"));
    // Other mini-batches, and the ones of the stored presample.
    let asked = format!("plan ds {SMALL} --profile a100-4");
    let other = asked.replace("5,5", "4,3");
    let compare = "compare ds --layers 2 --fanouts 4,4 --hidden 8 --ranks 2 --systems intel,gsplit --epochs 1";
    for question in [&asked, &other, compare] {
        ok(folder, question);
    }
    assert!(own() == before, "nothing but the cache was written");
    let found = json(folder, "inspect ds");
    for kind in ["presamples", "partitions", "placements"] {
        assert_eq!(found[kind], shown[kind]);
    }
    assert!(
        found["cache"]["artifacts"].as_u64() > Some(8) && shown["cache"]["artifacts"] == 0,
        "{found}"
    );
    assert!(ok(folder, "inspect ds").contains("cache of plan and compare: "));
    ok(folder, "verify ds");
    ok(folder, "report ds --out page.html");
    assert!(!fs::read_to_string(folder.join("page.html")).unwrap().contains("multilevel"));
    // The second time everything is found.
    let with_cache = content(&folder.join("ds"));
    for question in [&asked, &other, compare] {
        ok(folder, question);
    }
    assert!(content(&folder.join("ds")) == with_cache);

    // No default takes a tried artifact, which is made the dataset's own instead of being made
    // again.
    let none = "has no partition into 4 parts (there are: none)";
    refused(folder, format!("train ds {SMALL} --ranks 4 --epochs 1"), 1, none);
    let by_preset = "train ds --preset gsplit --ranks 4 --layers 2 --fanouts 5,5";
    refused(folder, by_preset, 1, "has no partition `multilevel-presampled-k4`");
    let cut = json(folder, "partition ds --parts 4");
    assert_eq!((&cut["presample"], &cut["reused"]), (&"mine".into(), &true.into()));
    let stored = |of: &str| {
        fs::read(folder.join(of).join("multilevel-presampled-k4/partition.json")).unwrap()
    };
    assert_eq!(stored("ds/partition"), stored("ds/tried/partition"));
    refused(folder, "partition ds --parts 4 --key tried/mine", 2, "--help");

    // The commands of a plan run in this order, and go on without the cache.
    let said = json(folder, &other);
    let commands: Vec<&str> =
        said["commands"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    let (train, made) = commands.split_last().unwrap();
    assert!(!train.contains("tried/"), "{commands:?}");
    for command in made {
        let key = command.split_once("--key ").unwrap().1;
        let made = json(folder, command.replace("gsplit ", ""));
        assert_eq!((&made["reused"], &made["key"]), (&true.into(), &key.into()), "{command}");
    }
    let cleaned = json(folder, "clean ds");
    assert!(
        cleaned["bytes"].as_u64() > Some(0) && cleaned["left"] == serde_json::json!([]),
        "{cleaned}"
    );
    assert!(!folder.join("ds/tried").exists());
    let train = train.replace("--device cuda", "").replace("gsplit ", "");
    let placement = train.split_once("--placement ").unwrap().1.split(' ').next().unwrap();
    let on_cpu = train.replace(&format!("--placement {placement}"), "");
    ok(folder, format!("{on_cpu} --epochs 1"));
    ok(folder, "verify ds");
    assert_eq!(json(folder, "clean ds")["removed"], serde_json::json!([]));
    let cleaned = "train ds --ranks 4 --partition tried/multilevel-presampled-k4 --epochs 1";
    refused(folder, cleaned, 1, "it is no longer in the cache");
}

/// Of several presamples the one of the mini-batches that are asked for is taken, and told; of
/// equals none.
#[test]
fn the_presample_that_fits_is_taken() {
    let folder = &*scratch();
    community(folder, 300);
    for (fanouts, key) in [("3,3", "three"), ("4,4", "four")] {
        ok(
            folder,
            format!("presample ds --fanouts {fanouts} --batch-size 64 --epochs 1 --key {key}"),
        );
    }
    let line = fails(folder, "partition ds --parts 2", 1);
    assert_eq!(line, "error: choose a presample with --presample: four, three");
    ok(folder, "partition ds --parts 2 --presample three");
    let notes = |line: &str| {
        let output = gsplit(folder, line);
        let notes = errors(&output);
        assert!(output.status.success(), "{line}: {notes}");
        notes
    };
    let evaluate = "evaluate ds --batches 2";
    assert!(
        notes(evaluate).contains("note: presample three; --presample names another"),
        "its map was made with it"
    );
    let fits = format!("{evaluate} --fanouts 4,4 --batch-size 64");
    assert!(notes(&fits).contains("note: presample four; --presample names another"));
    assert!(!notes(&format!("{fits} --presample four")).contains("note: presample"));
    // Training ranks rows by the one that it draws as, or by the one that is named.
    let shape = "--layers 2 --fanouts 4,4 --batch-size 64 --hidden 4 --epochs 1";
    let train = format!("train ds {shape} --parallelism data --ranks 2 --cache 20%");
    let ranked_by = |more: &str| {
        json(folder, format!("{train} {more}"))["summary"]["cache"]["ranked_by"].clone()
    };
    assert_eq!(
        (ranked_by(""), ranked_by("--presample three")),
        ("presample four".into(), "presample three".into())
    );
    refused(folder, format!("{train} --presample two"), 1, "has no presample `two`");
}

#[test]
fn plans_count_what_training_moves() {
    assert_counts_are_planned(&[("hosts.toml", 4, "--systems gsplit")], &["one rank", "GSplit"]);
}

#[test]
#[ignore = "takes long: make test-all"]
fn plans_count_what_training_of_every_system_moves() {
    let systems = ["DGL", "Owned", "P3", "GSplit", "split 1 of 2", "GraNNDis, 16 batches"];
    assert_counts_are_planned(&[("cpu-2", 3, ""), ("hosts.toml", 4, "")], &systems);
}

/// A plan by each profile, for this number of ranks and with these options, counts the same as
/// training; `systems` are among them.
fn assert_counts_are_planned(plans: &[(&str, u32, &str)], systems: &[&str]) {
    let folder = &*scratch();
    community(folder, 1500);
    ok(folder, "partition ds --parts 4 --servers 2 --weights degree --key two-hosts");
    let batches =
        json(folder, format!("plan ds {SMALL} --profile cpu-2 --systems dgl"))["steps"].clone();
    let cluster =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/profiles/cpu-cluster-4.toml"))
            .unwrap();
    assert!(cluster.contains("hosts = 4"));
    fs::write(folder.join("hosts.toml"), cluster.replace("hosts = 4", "hosts = 2")).unwrap();
    let mut compared = Vec::new();
    for &(profile, ranks, more) in plans {
        let plan = format!(
            "plan ds {SMALL} --profile {profile} --ranks {ranks} --batches {batches} {more}"
        );
        let said = json(folder, &plan);
        for row in said["plans"].as_array().unwrap().iter().chain(said["apart"].as_array().unwrap())
        {
            let name = row["name"].as_str().unwrap();
            if compared.contains(&(ranks, name.to_string())) {
                continue;
            }
            compared.push((ranks, name.to_string()));
            let line = format!("train ds {} --epochs 1 --eval-every 0 --threads 2", options(row));
            let epoch = json(folder, &line)["summary"]["epochs"][0].clone();
            let (work, steps) = (&row["work"], row["steps"].as_f64().unwrap());
            let of_epoch = |count: &Value| (count.as_f64().unwrap() * steps).round() as u64;
            let layers = work["layers"].as_array().unwrap();
            let edges: f64 = layers.iter().map(|layer| layer["edges"].as_f64().unwrap()).sum();
            let what = format!("{name} on {ranks} ranks: {line}");
            assert_eq!((edges * steps).round() as u64, epoch["edges"], "{what}");
            assert_eq!(of_epoch(&work["rows_loaded"]), epoch["rows_loaded"], "{what}");
            for (layer, moved) in layers.iter().zip(epoch["exchanged"].as_array().unwrap()) {
                assert_eq!(of_epoch(&layer["rows_exchanged"]), moved["rows"], "{what}");
            }
        }
    }
    for name in systems {
        assert!(compared.iter().any(|(_, found)| found == name), "{name}: {compared:?}");
    }
}

#[test]
fn plans_hold_the_matrices_that_training_holds() {
    assert_matrices_are_planned(&["sage"]);
}

#[test]
#[ignore = "takes long: make test-all"]
fn plans_hold_the_matrices_of_further_models() {
    assert_matrices_are_planned(&["gat", "gcn", "gatv2"]);
}

/// A plan predicts the memory of matrices that training took, for a mini-batch that is the whole
/// epoch.
fn assert_matrices_are_planned(models: &[&str]) {
    let folder = &*scratch();
    community(folder, 6000);
    let mut compared = Vec::new();
    for model in models {
        let shape =
            format!("--model {model} --layers 2 --fanouts 8,8 --hidden 64 --batch-size 3000");
        let said = json(folder, format!("plan ds {shape} --profile cpu-2 --ranks 2 --batches 1"));
        assert_eq!(said["steps"], 1);
        for row in said["plans"].as_array().unwrap().iter().chain(said["apart"].as_array().unwrap())
        {
            let name = row["name"].as_str().unwrap();
            if !["one rank", "DGL", "Owned", "GSplit", "P3", "GraNNDis"].contains(&name) {
                continue;
            }
            let line = format!("train ds {} --epochs 1 --eval-every 0 --threads 2", options(row));
            let took = json(folder, &line)["matrices_mb"].as_f64().unwrap();
            let planned = row["cost"]["matrices"].as_f64().unwrap() / 1e6;
            compared.push(format!("{model} {name}: {planned} MB planned, {took} taken"));
            assert!(took < 1.12 * planned, "{compared:#?}");
            // Ranks that exchange rows reach their largest moments together, others perhaps one
            // after another.
            assert!(planned < 1.15 * took || ["DGL", "Owned"].contains(&name), "{compared:#?}");
        }
    }
    assert_eq!(compared.len(), models.len() * 6, "{compared:#?}");
}

#[test]
fn some_systems_are_planned_with_rows_that_are_not_there() {
    let folder = &*scratch();
    ok(folder, "generate rmat --vertices 1000 --edges 8000 --out ds");
    let plan = format!("plan ds {SMALL} --profile v100-4-pcie --systems dgl,p3");
    refused(folder, &plan, 1, "features");
    let load = |dim: u32| {
        let said = json(folder, format!("{plan} --feature-dim {dim}"));
        let names: Vec<&str> = said["plans"]
            .as_array()
            .unwrap()
            .iter()
            .map(|plan| plan["name"].as_str().unwrap())
            .collect();
        let expected = ["DGL", "DGL, replicated", "one rank"];
        assert!(names.len() == 3 && expected.iter().all(|name| names.contains(name)), "{names:?}");
        assert_eq!(
            (said["left_out"].as_array().unwrap().len(), &said["left_out"][0]["system"]),
            (1, &"P3".into())
        );
        of_phases(named(&said, "DGL"), &["load"])
    };
    let (narrow, wide) = (load(64), load(128));
    assert!((wide - 2.0 * narrow).abs() < 1e-9 * wide, "{wide} {narrow}");
    fails(folder, format!("{plan} --feature-dim 0"), 2);
}

#[test]
fn what_cannot_be_planned_is_one_line() {
    let folder = &*scratch();
    community(folder, 300);
    fs::write(folder.join("bad.toml"), "about = \"x\"\ndevice = 3\n").unwrap();
    fs::write(folder.join("mine.toml"), "about = \"mine\"\n").unwrap();
    ok(folder, "partition ds --parts 3 --weights unit --key three");
    let before = content(folder);
    for (line, code, told) in [
        (
            "plan ds --profile none",
            1,
            "--profile none: No such file or directory (os error 2); give a file that",
        ),
        ("plan ds --profile bad.toml", 1, "bad.toml: line 2"),
        ("plan ds --profile a100-4 --partition three", 2, "--partition three: has 3 parts"),
        ("doctor --profile mine.toml", 1, "mine.toml: is there already"),
        ("train ds --parallelism auto --task link", 2, "--parallelism auto is for vertices"),
        ("train ds --parallelism auto --device cuda", 2, "--parallelism auto measures the CPU"),
    ] {
        refused(folder, line, code, told);
    }
    assert!(content(folder) == before, "nothing was made");
}

#[test]
fn a_run_chooses_by_what_it_measures_of_the_machine() {
    let folder = &*scratch();
    community(folder, 900);
    let train = format!("train ds {SMALL} --eval-every 0 --threads 2 --checkpoint run");
    let auto = format!("{train} --parallelism auto --ranks 2 --epochs 1 --json");
    let first = command(folder, &auto).env("GSPLIT_PROGRESS", "1").output().unwrap();
    let notes = String::from_utf8_lossy(&first.stderr).into_owned();
    assert!(first.status.success() && notes.contains("auto: trains by --parallelism"), "{notes}");
    assert_eq!(notes.matches("s an epoch predicted").count(), 3, "{notes}");
    let told: Value = serde_json::from_slice(&first.stdout).unwrap();
    let tried = told["auto"].as_array().unwrap();
    assert_eq!(tried.len(), 3, "{told}");
    assert!(
        tried
            .windows(2)
            .all(|pair| pair[0]["measured_s"].as_f64() <= pair[1]["measured_s"].as_f64()),
        "{told}"
    );
    let flag =
        format!("--parallelism {}", told["config"]["system"]["parallelism"].as_str().unwrap());
    assert_eq!(tried[0]["options"][0], flag.as_str(), "what was fastest trains");
    assert!(
        told["summary"].is_object()
            && tried.iter().all(|one| one["predicted_s"].as_f64().unwrap() > 0.0)
    );
    let kept = fs::read_to_string(folder.join("run/epoch-00001/checkpoint.json")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    let config = &kept["content"]["config"]["system"];
    let chosen = config["parallelism"].as_str().unwrap().to_string();
    assert_ne!(chosen, "auto");
    let second = json(folder, format!("{train} --parallelism auto --epochs 2 --resume"));
    assert_eq!(
        second["config"]["system"]["parallelism"],
        chosen.as_str(),
        "a run goes on as it began"
    );
    assert_eq!(second["auto"], serde_json::json!([]), "and tries nothing");
    // The losses are the chosen parallelism's.
    let mut named = format!(
        "train ds {SMALL} --eval-every 0 --threads 2 --parallelism {chosen} --ranks {}",
        config["ranks"]
    );
    for (option, value) in
        [("split-layers", &config["split_layers"]), ("partition", &config["partition"])]
    {
        if !value.is_null() {
            named.push_str(&format!(" --{option} {}", value.to_string().trim_matches('"')));
        }
    }
    let named = json(folder, format!("{named} --epochs 2"));
    assert_eq!(losses(&named)[1], losses(&second)[0]);

    // Its artifacts are in the cache: no default chooses from there, and a run goes on without
    // them.
    for kind in ["presample", "partition"] {
        assert!(!folder.join("ds").join(kind).exists(), "auto made a {kind} of the dataset's own");
    }
    ok(folder, "clean ds");
    let fourth = json(folder, format!("{train} --parallelism auto --epochs 3 --resume"));
    assert_eq!(fourth["config"]["system"]["partition"], config["partition"], "{fourth}");
}
