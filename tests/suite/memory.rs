//! A budget of memory: runs that fit it, runs that do not, and rows that are read from disk.

use std::fs::OpenOptions;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::support::{command, community, errors, fails, gsplit, json, ok, refused, scratch};

const TRAIN: &str =
    "train ds --parallelism single --layers 2 --fanouts 5,5 --hidden 8 --epochs 2 --batch-size 256";

/// The budget that a refusal names.
fn named(line: &str) -> u64 {
    let rest = line.split("pass --memory ").nth(1).unwrap_or_else(|| panic!("{line}"));
    rest.split("MiB or more").next().unwrap().parse().unwrap()
}

/// [`TRAIN`] with `more` behind it.
fn train(more: &str) -> String {
    format!("{TRAIN} {more}")
}

#[test]
fn a_budget_that_is_too_small_names_one_that_does() {
    let folder = &*scratch();
    community(folder, 1500);
    let line = refused(
        folder,
        train("--memory 64MiB"),
        2,
        "error: --memory: 64 MiB are too few, the graph takes",
    );
    let number = named(&line);
    let losses = |run: &Value| {
        run["summary"]["epochs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|epoch| epoch["loss"].clone())
            .collect::<Vec<_>>()
    };
    let usual = json(folder, train("--load-features mapped"));
    // The memory of a process of the same size, and the rows, which are small.
    let budget = format!("--memory {}MiB", number + 32);
    assert_eq!(losses(&json(folder, train(&budget))), losses(&usual));
    let output = gsplit(folder, train(&format!("--load-features disk {budget}")));
    let [told, notes] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(
        notes.contains("feature rows are read from disk: 1500 of 1500 stay in memory"),
        "{notes}"
    );
    assert!(notes.contains("feature rows are read by "), "{notes}");
    assert!(told.contains("from disk   MB read        kept"), "{told}");
}

#[test]
fn a_feature_file_that_is_cut_while_it_is_read_is_one_line() {
    let folder = &*scratch();
    community(folder, 50_000);
    let endless =
        "--load-features disk --quiet --epochs 100000 --eval-every 0 --log log.jsonl --memory";
    let endless = train(endless).replace(" --epochs 2 ", " ");
    let line = fails(folder, format!("{endless} 64MiB"), 2);
    // So few rows are kept that mini-batches read the others.
    let budget = format!("{}MiB", named(&line) + 8);
    let mut child =
        command(folder, format!("{endless} {budget}")).stderr(Stdio::piped()).spawn().unwrap();
    let log = folder.join("log.jsonl");
    while std::fs::read_to_string(&log).map_or(0, |text| text.lines().count()) == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    let features = OpenOptions::new().write(true).open(folder.join("ds/nodes/feat.arrow")).unwrap();
    features.set_len(100_000).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = errors(&output);
    assert_eq!((output.status.code(), told.lines().count()), (Some(1), 1), "{told}");
    assert!(
        told.starts_with("error: ") && told.contains("feat.arrow: ends at byte 100000"),
        "{told}"
    );
    let first: Value =
        serde_json::from_str(std::fs::read_to_string(&log).unwrap().lines().next().unwrap())
            .unwrap();
    assert!(
        first["rows_from_disk"].as_u64().unwrap() > 0
            && first["bytes_from_disk"].as_u64().unwrap() > 0,
        "{first}"
    );
}

/// Pages that a process has touched for the first time.
fn page_faults(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let behind_name = stat.rsplit_once(") ").unwrap().1;
    behind_name.split(' ').nth(7).unwrap().parse().unwrap()
}

#[test]
fn a_mini_batch_takes_the_memory_of_those_before() {
    let folder = &*scratch();
    community(folder, 6000);
    for (model, heads) in [("sage", ""), ("gat", "--heads 2")] {
        let shape = "--parallelism single --layers 2 --fanouts 10,5 --hidden 64 --batch-size 256 --eval-every 0";
        let line = format!(
            "train ds {shape} --epochs 100000 --quiet --model {model} {heads} --log {model}"
        );
        let mut child = command(folder, line).spawn().unwrap();
        let log = folder.join(model);
        let epochs = || std::fs::read_to_string(&log).map_or(0, |text| text.lines().count() as u64);
        let mut after = |number: u64| {
            while epochs() < number {
                assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
                std::thread::sleep(Duration::from_millis(5));
            }
            (epochs(), page_faults(child.id()))
        };
        let ((first, before), (last, now)) = (after(3), after(6));
        child.kill().unwrap();
        child.wait().unwrap();
        // Of 12 mini-batches, each of which takes over a thousand pages.
        let an_epoch = (now - before) / (last - first);
        assert!(an_epoch < 60, "{model}: {an_epoch} page faults an epoch");
    }
}

#[test]
fn partitions_keep_to_a_budget_or_name_one() {
    let folder = &*scratch();
    ok(folder, "generate rmat --vertices 1300000 --edges 60000 --out ds");
    let partition =
        |more: &str| format!("partition ds --parts 2 --weights unit --quality fast {more}");
    let told = "error: --memory: to partition 1300000 vertices takes";
    let line = refused(folder, partition("--memory 64MiB"), 2, told);
    let number = named(&line);
    let output = gsplit(folder, partition(&format!("--memory {}MiB", number + 8)));
    let [said, notes] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success() && said.contains("2 parts by multilevel"), "{said}{notes}");
    let told = ": --partitioner range has no such option";
    refused(folder, partition("--partitioner range --memory 1GiB"), 2, told);
}

#[test]
fn a_graph_beyond_the_budget_is_read_as_it_is_drawn() {
    let folder = &*scratch();
    ok(folder, "generate community --vertices 50000 --edges 1500000 --feature-dim 4 --out ds");
    let trial = train("--trial 3");
    let line = fails(folder, format!("{trial} --memory 64MiB"), 2);
    let budget = format!("{}MiB", named(&line) + 8);
    let usual = json(folder, &trial)["summary"]["epochs"].clone();
    let output = command(folder, format!("{trial} --memory {budget} --json"))
        .env("GSPLIT_PROGRESS", "1")
        .output()
        .unwrap();
    let read =
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["summary"]["epochs"].clone();
    for (usual, read) in usual.as_array().unwrap().iter().zip(read.as_array().unwrap()) {
        assert_eq!([&usual["loss"], &usual["valid"]], [&read["loss"], &read["valid"]]);
    }
    let notes = errors(&output);
    assert!(
        notes.contains("edges are read from disk as they are drawn: the graph takes "),
        "{notes}"
    );
    // Links are learnt from a copy of the graph in memory, which has to fit.
    let told = "--memory: 64 MiB are too few, the edges that links are learnt from take ";
    refused(folder, "train ds --parallelism single --task link --memory 64MiB", 2, told);
    let presample = |more: &str| format!("presample ds --fanouts 5,5 --epochs 1 {more}");
    ok(folder, presample("--key usual"));
    ok(folder, presample("--key within --memory 128MiB"));
    for counters in std::fs::read_dir(folder.join("ds/presample/usual")).unwrap() {
        let (path, name) = counters.map(|file| (file.path(), file.file_name())).unwrap();
        if path.extension().is_some_and(|extension| extension == "npy") {
            let within = folder.join("ds/presample/within").join(name);
            assert!(
                std::fs::read(&path).unwrap() == std::fs::read(within).unwrap(),
                "{}",
                path.display()
            );
        }
    }
}

#[test]
fn a_trial_ends_each_epoch_early() {
    let folder = &*scratch();
    community(folder, 1500);
    let run = json(folder, train("--trial 1"));
    let whole = json(folder, train(""));
    let [first, all] = [&run, &whole].map(|run| run["summary"]["epochs"][0].clone());
    assert!(first["edges"].as_u64().unwrap() < all["edges"].as_u64().unwrap(), "{first:#} {all:#}");
    assert!(
        first["valid"].as_f64().is_some()
            && run["summary"]["epochs"].as_array().unwrap().len() == 2
    );
    refused(folder, train("--trial 1 --checkpoint run"), 2, "--trial");
}

/// An epoch reads the rows and bytes that `plan` predicted.
#[test]
#[ignore = "takes long: make test-all"]
fn reads_from_disk_are_foretold() {
    let folder = &*scratch();
    ok(folder, "generate community --vertices 60000 --edges 300000 --feature-dim 128 --out ds");
    let shape = "--layers 2 --fanouts 5,5 --hidden 8 --batch-size 256";
    let shipped =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/profiles/cpu-2.toml"))
            .unwrap();
    let plan = |name: &str, memory: f64, disk: f64| {
        let disk = format!(
            "\n[disk]\nby = \"a test\"\nrandom = [{disk}, {disk}, {disk}, {disk}]\nstream = 1e12\n"
        );
        let profile = shipped.replace("memory = 2.53e+10", &format!("memory = {memory:.0}"));
        std::fs::write(folder.join("p.toml"), profile + &disk).unwrap();
        let said =
            json(folder, format!("plan ds {shape} --profile p.toml --systems dgl --ranks 2"));
        let plans = said["plans"].as_array().unwrap().iter();
        plans.clone().find(|plan| plan["name"] == name).unwrap().clone()
    };
    for (name, how) in
        [("one rank", "--parallelism single"), ("DGL", "--parallelism data --ranks 2")]
    {
        assert!(plan(name, 1e10, 1e9)["disk"].is_null(), "all rows fit");
        let train =
            format!("train ds {how} {shape} --epochs 1 --eval-every 0 --threads 2 --memory");
        let line = fails(folder, format!("{train} 64MiB"), 2);
        let budget = named(&line) + 14;
        let output = gsplit(folder, format!("{train} {budget}MiB --json"));
        let notes = errors(&gsplit(folder, format!("{train} {budget}MiB")));
        let run: Value = serde_json::from_slice(&output.stdout).unwrap();
        let epoch = &run["summary"]["epochs"][0];
        // Memory for the rows that the run kept.
        let notes =
            notes.split(" of 60000 stay in memory").next().and_then(|text| text.rsplit(' ').next());
        let kept: f64 = notes.unwrap().parse().unwrap();
        assert!(kept > 0.0 && kept < 60_000.0);
        let memory = 40e6;
        let more = kept - plan(name, memory, 1e9)["disk"]["rows_kept"].as_f64().unwrap();
        let memory = memory + more * 512.0 / 0.8;
        let planned = plan(name, memory, 1e9);
        assert!(
            (planned["disk"]["rows_kept"].as_f64().unwrap() - kept).abs() < 100.0,
            "{kept}: {planned}"
        );
        for count in ["rows_from_disk", "bytes_from_disk"] {
            let read = epoch[count].as_f64().unwrap();
            let times = planned["disk"][count].as_f64().unwrap() / read;
            assert!((0.75..1.25).contains(&times), "{name}: {count}: {planned}, read {read}");
        }
        let slow = plan(name, memory, 100.0);
        assert_eq!(slow["bound"], "feature rows from disk");
        assert_ne!(planned["bound"], slow["bound"]);
        let reads = planned["disk"]["rows_from_disk"].as_f64().unwrap();
        assert!(slow["epoch_s"].as_f64().unwrap() > reads / 200.0, "{slow}");
    }
    let line = format!("plan ds {shape} --profile p.toml --systems dgl --ranks 2");
    let text = ok(folder, &line);
    assert!(
        text.contains("feature rows do not fit in memory: ") && text.contains(" s, bound by "),
        "{text}"
    );
    let text = ok(folder, format!("{line} --memory 300MiB"));
    assert!(!text.contains("from disk") && text.contains("--memory 300MiB"), "they fit: {text}");
    std::fs::write(folder.join("p.toml"), shipped.replace("memory = 2.53e+10", "memory = 4e7"))
        .unwrap();
    let text = ok(folder, &line);
    assert!(
        text.contains("feature rows do not fit in memory: ")
            && text.contains("a profile with [disk]"),
        "{text}"
    );
    // Without a profile the disk is measured where the dataset is.
    let text = ok(folder, format!("plan ds {shape} --systems dgl --ranks 2 --memory 150MiB"));
    assert!(text.contains(" s, bound by "), "{text}");
}

#[test]
fn a_profile_that_is_measured_has_the_disk() {
    let folder = &*scratch();
    community(folder, 900);
    let before = std::fs::read_dir(folder.join("ds")).unwrap().count();
    let said = json(folder, "doctor --profile here.toml --disk ds");
    assert_eq!(std::fs::read_dir(folder.join("ds")).unwrap().count(), before);
    let profile = std::fs::read_to_string(folder.join("here.toml")).unwrap();
    assert!(profile.starts_with("# Measured by") && profile.contains("[peer]"), "{profile}");
    assert!(profile.contains("[disk]") && profile.contains("random = ["), "{profile}");
    assert_eq!(said["disk"]["random"].as_array().unwrap().len(), 4);
    let plan = "plan ds --layers 2 --fanouts 5,5 --batch-size 256 --ranks 2 --systems dgl --profile here.toml";
    let said = json(folder, plan);
    assert!(said["profile"]["disk"]["stream"].as_f64().unwrap() > 0.0);
    fails(folder, "doctor --disk ds", 2);
}
