//! Partitions side by side, as they are stored.

use anyhow::Result;
use gsplit_store::{Checksum, Dataset, PartitionMap, shell_path};

use super::found::TrainingRun;
use super::page::Page;
use crate::inspect::artifacts;
use crate::inspect::words::percent;

/// Adds the section, with the partitions that runs used first.
pub fn show(page: &mut Page, dataset: &Dataset, runs: &[TrainingRun]) -> Result<()> {
    let mut maps = Vec::new();
    for (key, map) in artifacts(dataset, "partition", PartitionMap::open)? {
        match map {
            Ok(map) => maps.push((users(&map, runs), map)),
            Err(error) => page.leave_out(&format!("Partition {key}"), error.to_string()),
        }
    }
    maps.sort_by_key(|(users, _)| users.is_empty());
    if maps.is_empty() {
        // Runs on one rank need no partition.
        if runs.is_empty() {
            let path = shell_path(dataset.path());
            page.leave_out(
                "Partitions",
                format!("there are none: gsplit partition {path} --parts 4"),
            );
        }
        return Ok(());
    }
    let head = "partition, used by, parts, by, weights, presample, pairs cut, cross edges, imbalance, vertices, edges, targets, work";
    let caption = "As they were made; balance is the heaviest part over the mean";
    let rows: Vec<_> = maps.iter().map(|(users, map)| row(users, map)).collect();
    page.section("Partitions", |page| {
        page.table(caption, &head.split(", ").collect::<Vec<_>>(), &rows)
    });
    Ok(())
}

/// Returns the names of the runs whose checkpoints record this very map.
fn users(map: &PartitionMap, runs: &[TrainingRun]) -> String {
    let is_this = |(key, assignment): &(String, Checksum)| {
        let own = map.meta().files.get("assignment.npy");
        key == map.key() && own.is_some_and(|own| own.checksum == *assignment)
    };
    let used = runs.iter().filter(|run| run.inputs.partition.as_ref().is_some_and(is_this));
    used.map(|run| run.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Returns the cut and the balance that `map` records.
fn row(users: &str, map: &PartitionMap) -> [String; 13] {
    let (config, report) = (&map.meta().config, &map.meta().report);
    let balance = &report.balance;
    let factor =
        |factor: Option<f64>| factor.map_or_else(|| "-".into(), |factor| format!("{factor:.3}"));
    [
        map.key().to_string(),
        if users.is_empty() { "-".into() } else { users.to_string() },
        config.parts.to_string(),
        config.partitioner.clone(),
        config.weights.clone(),
        map.meta().made_from.presample.as_ref().map_or("-", |(key, _)| key).to_string(),
        percent(report.cut as f64 / report.adjacent_pairs.max(1) as f64),
        percent(report.expected_cross_share),
        factor(Some(report.imbalance)),
        factor(Some(balance.vertices)),
        factor(Some(balance.edges)),
        factor(balance.targets),
        factor(balance.work),
    ]
}
