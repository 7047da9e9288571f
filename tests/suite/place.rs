//! `gsplit place`: its files, its refusals, and whether training loads rows as it predicts.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use gsplit_kernels::schedule::{Fanouts, Step, epoch_seeds};
use gsplit_kernels::{Draw, EdgeIds, Graph, SampledCsc, Sampler};
use gsplit_store::{
    Dataset, EVERY_DEVICE, HOST, PartitionMap, Placement, Readers, RowLoads, Split,
};

use crate::support::{community, fails, gsplit, json, ok, refused, scratch};

const FANOUTS: &str = "6,4";
const BATCH: usize = 128;

/// A dataset `ds` with a presample and a partition into four.
fn prepare(folder: &Path, vertices: u32, epochs: &str) {
    community(folder, vertices);
    ok(folder, format!("presample ds --fanouts {FANOUTS} --batch-size {BATCH} --epochs {epochs}"));
    ok(folder, "partition ds --parts 4 --key four");
}

#[test]
fn a_placement_is_stored_shown_reused_and_verified() {
    let folder = &*scratch();
    prepare(folder, 1500, "3");
    let place = "place ds --cache 20% --alpha 0.2";
    let made = json(folder, place);
    assert_eq!(made["key"], "optimised-split-20pct-a0.2-four");
    assert_eq!((&made["reused"], &made["partition"]), (&false.into(), &"four".into()));
    let curve = made["curve"].as_array().unwrap();
    let asked = curve.iter().find(|point| point["asked"] == true).unwrap();
    assert_eq!(asked["rows_per_device"], 300);
    let (best, gsplit) = (&asked["placements"]["optimised"], &asked["placements"]["partitioned"]);
    assert!(best["cost"].as_f64().unwrap() <= gsplit["cost"].as_f64().unwrap());
    let row_bytes = made["config"]["row_bytes"].as_f64().unwrap();
    let moved = best["host"].as_f64().unwrap() * row_bytes;
    assert!(
        (moved - best["host_bytes"].as_f64().unwrap()).abs() < 1e-6
            && best["milliseconds"].is_null()
    );

    assert_eq!(json(folder, place)["reused"], true);
    let text = ok(folder, place);
    assert!(
        text.contains("already there")
            && text.contains("replicated")
            && text.contains("device-device"),
        "{text}"
    );
    ok(folder, "verify ds");
    let shown = ok(folder, "inspect ds");
    assert!(
        shown
            .contains("placement optimised-split-20pct-a0.2-four: optimised for split parallelism"),
        "{shown}"
    );
    assert_eq!(json(folder, "inspect ds")["placements"][0]["meta"]["config"]["alpha"], 0.2);

    let dataset = Dataset::open(folder.join("ds")).unwrap();
    let stored = Placement::open(&dataset, "optimised-split-20pct-a0.2-four").unwrap();
    assert_eq!((stored.num_devices(), stored.homes().len()), (4, 1500));
    let held: usize = (0..4).map(|device| stored.shared().len() + stored.own(device).len()).sum();
    assert_eq!(held, 4 * 300);
    let config = &stored.meta().config;
    assert_eq!((config.cache_bytes, config.row_bytes), (300 * config.row_bytes, row_bytes as u64));

    // Another cost under the same name is refused, unless it is forced.
    let other = "place ds --cache 20% --alpha 0.9 --key optimised-split-20pct-a0.2-four";
    refused(folder, other, 1, "--force");
    ok(folder, format!("{other} --force"));
    ok(folder, "verify ds");
}

#[test]
fn bandwidths_give_alpha_and_times() {
    let folder = &*scratch();
    prepare(folder, 600, "2");
    let args = "place ds --cache 10% --host-bandwidth 25GB --peer-bandwidth 100GB/s";
    let made = json(folder, format!("{args} --parallelism data --rule song-jiang"));
    assert_eq!(made["config"]["alpha"], 0.25);
    for point in made["curve"].as_array().unwrap() {
        for (rule, loads) in point["placements"].as_object().unwrap() {
            let [host, peer, time, cost] = ["host_bytes", "peer_bytes", "milliseconds", "cost"]
                .map(|key| loads[key].as_f64().unwrap());
            let expected = 1e3 * (host / 25e9 + peer / 100e9) / 4.0;
            assert!(
                (time - expected).abs() <= 1e-9 * expected,
                "{rule}: {time}, expected {expected}"
            );
            let cost_bytes = cost * made["config"]["row_bytes"].as_f64().unwrap();
            assert!((cost_bytes - host - peer / 4.0).abs() <= 1e-6, "{rule}");
        }
    }
}

#[test]
fn what_is_missing_or_stale_is_one_line_with_its_remedy() {
    let folder = &*scratch();
    let place = "place ds --cache 10%";
    refused(folder, place, 1, "check the path");
    community(folder, 300);
    refused(folder, place, 1, "run `gsplit partition ds --parts K` first");
    ok(folder, "partition ds --parts 2 --weights unit --key two");
    refused(folder, place, 1, "run `gsplit presample ds` first");
    ok(folder, "presample ds --fanouts 5");
    refused(
        folder,
        format!("{place} --partition three"),
        1,
        "has no partition `three`: there are two",
    );
    for (args, words) in [
        ("--cache 3", "--cache 3: a feature row takes"),
        ("--cache 1MiB --host-bandwidth 1GB", "--peer-bandwidth"),
        ("--cache 1MiB --host-bandwidth 1GB --peer-bandwidth 1GB --alpha 1", "cannot be used"),
    ] {
        refused(folder, format!("place ds {args}"), 2, words);
    }

    // A placement of a partition that was made again since.
    ok(folder, format!("{place} --key p"));
    ok(folder, "partition ds --parts 2 --partitioner random --key two --force");
    let shown = ok(folder, "inspect ds");
    assert!(
        shown.contains("placement p: unusable") && shown.contains("made from partition `two`"),
        "{shown}"
    );
    assert_eq!(gsplit(folder, "verify ds").status.code(), Some(1));
    refused(folder, format!("{place} --key p"), 1, "--force");
    ok(folder, format!("{place} --key p --force"));
    ok(folder, "verify ds");

    fs::write(folder.join("edges.txt"), "0 1\n1 2\n2 0\n").unwrap();
    ok(folder, "convert edges.txt --out plain");
    let line = fails(folder, "place plain --cache 10%", 1);
    assert!(line.contains("has no features") && line.contains("--features"), "{line}");
}

/// The vertices whose rows `seeds` load.
fn inputs(graph: &Graph<'_>, seeds: &[u32], seed: u64, epoch: u32, step: u32) -> Vec<u32> {
    let fanouts: Fanouts = FANOUTS.parse().unwrap();
    let mut sampler = Sampler::new(1);
    sampler.start(seeds);
    for (depth, fanout) in (0..).zip(fanouts.iter()) {
        let (draw, key) = (Draw::of(fanout), Step { seed, epoch, step }.layer_key(depth));
        sampler.layer(graph, &draw, &key, EdgeIds::Drop, &mut SampledCsc::default()).unwrap();
    }
    sampler.mixed_frontier().to_vec()
}

/// Row loads of a fresh mini-batch, in the mean, by where `placement` serves them from.
fn measure(dataset: &Dataset, map: &PartitionMap, placement: &Placement) -> RowLoads {
    let topology = dataset.topology();
    let graph = Graph::new(topology.indptr(), topology.indices()).unwrap();
    let train = dataset.split(Split::Train).unwrap();
    let devices = placement.num_devices();
    let own: Vec<HashSet<u32>> =
        (0..devices).map(|device| placement.own(device).iter().copied().collect()).collect();
    let split = placement.meta().config.parallelism == Readers::Split;
    let (mut loads, mut batches) = (RowLoads::default(), 0.0);
    for epoch in 1..=8 {
        for (step, batch) in (0..).zip(epoch_seeds(&train, 77, epoch).unwrap().chunks(BATCH)) {
            batches += 1.0;
            let mut load = |v: u32, device: usize| {
                let home = placement.homes()[v as usize];
                match () {
                    () if home == EVERY_DEVICE || own[device].contains(&v) => loads.local += 1.0,
                    () if home != HOST => loads.peer += 1.0,
                    () => loads.host += 1.0,
                }
            };
            if split {
                let rows = inputs(&graph, batch, 77, epoch, step);
                rows.into_iter().for_each(|v| load(v, usize::from(map.assignment()[v as usize])));
            } else {
                for (device, share) in batch.chunks(batch.len().div_ceil(devices)).enumerate() {
                    inputs(&graph, share, 77, epoch, step)
                        .into_iter()
                        .for_each(|v| load(v, device));
                }
            }
        }
    }
    RowLoads {
        local: loads.local / batches,
        peer: loads.peer / batches,
        host: loads.host / batches,
    }
}

#[test]
fn training_loads_rows_as_predicted() {
    let folder = &*scratch();
    prepare(folder, 6000, "20");
    for (parallelism, rules, tolerance) in [
        ("split", &["partitioned", "replicated", "peer", "optimised"][..], 0.02),
        ("data", &["partitioned", "replicated", "peer", "optimised", "song-jiang"], 0.05),
    ] {
        for rule in rules {
            let key = format!("{rule}-{parallelism}");
            let line = format!(
                "place ds --cache 12% --parallelism {parallelism} --rule {rule} --key {key}"
            );
            let made = json(folder, line);
            let predicted = made["report"]["expected"].as_array().unwrap().iter();
            let total = |part: &str| {
                predicted.clone().map(|loads| loads[part].as_f64().unwrap()).sum::<f64>()
            };
            let dataset = Dataset::open(folder.join("ds")).unwrap();
            let map = PartitionMap::open(&dataset, "four").unwrap();
            let measured = measure(&dataset, &map, &Placement::open(&dataset, &key).unwrap());
            let all = measured.local + measured.peer + measured.host;
            for (part, measured) in
                [("local", measured.local), ("peer", measured.peer), ("host", measured.host)]
            {
                let predicted = total(part);
                println!("{key} {part}: {measured:.1}, predicted {predicted:.1} of {all:.1}");
                assert!(
                    (measured - predicted).abs() < tolerance * all,
                    "{key}: {measured} row loads from {part}, predicted {predicted} of {all}"
                );
            }
        }
    }
}
