//! Partitions through the binary: imports, options that are not for every partitioner, and METIS
//! under a signal.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use gsplit_store::{Dataset, PartitionConfig, PartitionMap};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{command, community, errors, fails, gsplit, json, ok, refused, scratch};

fn partition(folder: &std::path::Path, more: &str) -> Value {
    json(folder, format!("partition ds {more}"))
}

#[test]
fn a_partition_goes_out_as_text_and_comes_back_the_same() {
    let folder = &*scratch();
    community(folder, 400);
    let made = partition(folder, "--parts 4 --partitioner range");
    let stored = folder.join("ds/partition/range-unit-k4/assignment.npy");
    let bytes = fs::read(&stored).unwrap();
    let parts: Vec<u16> =
        bytes[128..].chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    assert_eq!(parts.len(), 400);
    let text: Vec<String> = parts.iter().map(|part| format!("{part}\n")).collect();
    fs::write(folder.join("graph.part.4"), text.concat()).unwrap();

    for (file, more) in
        [("graph.part.4", "--parts 4"), ("ds/partition/range-unit-k4/assignment.npy", "")]
    {
        let imported = partition(folder, &format!("--import {file} --force {more}"));
        for key in ["cut", "weighted_cut", "part_sizes", "balance", "imbalance"] {
            assert_eq!(imported[key], made[key], "{key}");
        }
        assert_eq!(
            (&imported["partitioner"], &imported["key"]),
            (&"import".into(), &"import-k4".into())
        );
        assert_eq!(fs::read(folder.join("ds/partition/import-k4/assignment.npy")).unwrap(), bytes);
        assert_eq!(partition(folder, &format!("--import {file}"))["reused"], true);
    }
    // Another map under the same key is not taken for the stored one.
    let other: Vec<String> = parts.iter().map(|part| format!("{}\n", 3 - part)).collect();
    fs::write(folder.join("graph.part.4"), other.concat()).unwrap();
    refused(folder, "partition ds --import graph.part.4", 1, "already there");
    fs::write(folder.join("graph.part.4"), "0\n1\nx\n").unwrap();
    refused(
        folder,
        "partition ds --import graph.part.4",
        1,
        "graph.part.4: line 3: expected one part",
    );
    ok(folder, "verify ds");
}

#[test]
fn a_refined_partition_is_known_by_what_it_was_made_of() {
    let folder = &*scratch();
    community(folder, 400);
    let random = "--parts 4 --partitioner random --key r";
    partition(folder, random);
    let refine = "--parts 4 --weights unit --refine r --key better";
    assert_eq!(partition(folder, refine)["reused"], false);
    assert_eq!(partition(folder, refine)["reused"], true);
    // It says itself how many parts it has.
    assert_eq!(partition(folder, "--weights unit --refine r --key better")["reused"], true);
    refused(folder, "partition ds --weights unit --refine absent", 1, "absent");
    fails(folder, "partition ds --weights unit", 2);
    partition(folder, &format!("{random} --seed 7 --force"));
    refused(folder, format!("partition ds {refine}"), 1, "already there");
    assert_eq!(partition(folder, &format!("{refine} --force"))["reused"], false);
}

#[test]
fn partitions_of_other_partitioners_are_read() {
    let folder = &*scratch();
    community(folder, 300);
    partition(folder, "--parts 4 --partitioner range");
    let dataset = Dataset::open(folder.join("ds")).unwrap();
    let map = PartitionMap::open(&dataset, "range-unit-k4").unwrap();
    let config = PartitionConfig { partitioner: "ldg_random".into(), ..map.meta().config.clone() };
    let order: Vec<u32> = (0..4).flat_map(|part| map.cache_order(part).to_vec()).collect();
    let report = map.meta().report.clone();
    PartitionMap::save(
        &dataset,
        "ldg_random-unit-k4",
        None,
        config,
        report,
        map.assignment(),
        &order,
        false,
    )
    .unwrap();
    assert!(ok(folder, "inspect ds").contains("ldg_random"));
    let refined = partition(folder, "--weights unit --refine ldg_random-unit-k4");
    assert!(refined["cut"].as_u64() <= Some(map.meta().report.cut), "{refined}");
    ok(folder, "verify ds");
}

#[test]
fn a_terminated_metis_ends_as_interrupted() {
    let folder = &*scratch();
    community(folder, 500_000);
    let run = "partition ds --partitioner metis --weights unit --parts 64 --json";
    for delay_ms in [50, 275, 500] {
        let started = Instant::now();
        let mut child = command(folder, run);
        let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay_ms));
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = errors(&output);
        if delay_ms > 200 {
            assert_eq!(output.status.code(), Some(143), "{errors}");
            let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(
                told["exit"] == 143 && told["error"].as_str().unwrap().starts_with("interrupted: "),
                "{told}"
            );
            // METIS itself may have a word before ours.
            let lines: Vec<&str> = errors.lines().filter(|line| !line.is_empty()).collect();
            assert!(lines.last().is_some_and(|line| line.starts_with("interrupted: ")), "{errors}");
            assert!(!errors.contains("error:") && lines.len() <= 2, "{errors}");
        }
        assert!(started.elapsed() < Duration::from_secs(30));
        assert!(!folder.join("ds/partition/metis-unit-k64").exists());
    }
}

#[test]
fn lines_that_metis_prints_do_not_mix_with_results() {
    let folder = &*scratch();
    let star: String = (1..60).map(|leaf| format!("0 {leaf}\n")).collect();
    fs::write(folder.join("star.txt"), star).unwrap();
    ok(folder, "convert star.txt --out ds --symmetrise");
    // METIS runs out of vertices for the small parts, says so on its standard output, and goes on.
    let made =
        gsplit(folder, "partition ds --targets 100,1,1 --partitioner metis --weights unit --json");
    assert!(made.status.success() && errors(&made).contains("Cannot bisect"), "{}", errors(&made));
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(made["parts"], 3);
}

#[test]
fn parts_lie_on_servers_and_the_cut_between_them_is_told() {
    let folder = &*scratch();
    community(folder, 1200);
    let unit = "--weights unit --parts";
    let made = partition(folder, &format!("{unit} 6 --servers 2"));
    assert_eq!((&made["key"], &made["servers"]), (&"multilevel-unit-k2x3".into(), &2.into()));
    let between = &made["between_servers"];
    assert!(
        between["cut"].as_u64().unwrap() > 0 && between["cut"].as_u64() < made["cut"].as_u64(),
        "{made}"
    );
    assert!(
        between["expected_cross_share"].as_f64() < made["expected_cross_share"].as_f64(),
        "{made}"
    );
    assert_eq!(partition(folder, &format!("{unit} 6 --servers 2"))["reused"], true);
    let table = ok(folder, format!("partition ds {unit} 6 --servers 2 --force"));
    assert!(
        table.contains("6 parts on 2 servers") && table.contains("cut between servers"),
        "{table}"
    );

    // One server is what there was before: nothing of servers is stored.
    let flat = partition(folder, &format!("{unit} 6 --servers 1"));
    assert_eq!((&flat["key"], flat.get("servers")), (&"multilevel-unit-k6".into(), None));
    let stored =
        fs::read_to_string(folder.join("ds/partition/multilevel-unit-k6/partition.json")).unwrap();
    assert!(!stored.contains("server"), "{stored}");

    let shown = ok(folder, "inspect ds");
    assert!(shown.contains("6 parts on 2 servers") && shown.contains("between servers"), "{shown}");
    ok(folder, "verify ds");
    let measure = "evaluate ds --fanouts 4,4 --batch-size 50 --batches 20";
    let measured = ok(folder, measure);
    assert!(measured.contains("between servers"), "{measured}");
    for map in json(folder, measure)["maps"].as_array().unwrap() {
        let (across, cross) = (&map["all"]["cross_server_share"], &map["all"]["cross_share"]);
        match map["servers"].as_u64() {
            Some(2) => {
                assert!(across.as_f64() > Some(0.0) && across.as_f64() < cross.as_f64(), "{map}")
            }
            _ => assert!(across.is_null(), "{map}"),
        }
    }
}

#[test]
fn parts_carry_what_their_targets_say() {
    let folder = &*scratch();
    community(folder, 1200);
    let over = |made: &Value, targets: &[f64]| {
        let sizes =
            made["part_sizes"].as_array().unwrap().iter().map(|size| size.as_f64().unwrap());
        let sum: f64 = targets.iter().sum();
        sizes.zip(targets).map(|(size, target)| size / (1200.0 * target / sum)).fold(0.0, f64::max)
    };
    for (method, most) in
        [("multilevel", 1.03), ("metis", 1.03), ("range", 1.01), ("random", 1.01), ("hash", 1.2)]
    {
        let weights = if most == 1.03 { "--weights unit" } else { "" };
        let made = partition(folder, &format!("--targets 2,1,1 --partitioner {method} {weights}"));
        let found = over(&made, &[2.0, 1.0, 1.0]);
        assert!(found <= most + 1e-9, "{method}: {made}");
        assert_eq!(
            (&made["parts"], made["targets"].to_string().as_str()),
            (&3.into(), "[2.0,1.0,1.0]")
        );
        assert!((made["imbalance"].as_f64().unwrap() - found).abs() < 1e-9, "{made}");
        assert!((made["balance"]["vertices"].as_f64().unwrap() - found).abs() < 1e-9, "{made}");
        assert_eq!(made["of_target"].as_array().unwrap().len(), 3);
    }
    let asked = "--targets 3,1,2,2 --parts 4 --servers 2 --weights unit";
    let made = partition(folder, asked);
    assert_eq!(
        (&made["key"], &made["reused"]),
        (&"multilevel-unit-k2x2_t3-1-2-2".into(), &false.into())
    );
    assert!(over(&made, &[3.0, 1.0, 2.0, 2.0]) <= 1.03 + 1e-9, "{made}");
    assert_eq!(partition(folder, asked)["reused"], true);
    let text = ok(folder, format!("partition ds --force {asked}"));
    assert!(text.contains("part / target"), "{text}");
    // Equal targets give the same parts as no targets, under another name.
    let [equal, none] = ["--targets 1,1,1", "--parts 3"].map(|more| {
        let made = partition(folder, &format!("{more} --weights unit"));
        (made["cut"].clone(), made["part_sizes"].clone())
    });
    assert_eq!(equal, none);
    // Others are refined from a partition with as many parts.
    let refined = partition(folder, "--refine multilevel-unit-k3 --targets 1,2,2 --weights unit");
    assert!(over(&refined, &[1.0, 2.0, 2.0]) <= 1.03 + 1e-9, "{refined}");
    fails(folder, "partition ds --targets 1,x", 2);
    fails(folder, "partition ds --import x --targets 1,2", 2);
    ok(folder, "verify ds");
}
