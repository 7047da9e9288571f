//! Partitions side by side, as they are stored and as fresh mini-batches find them.

use anyhow::Result;
use gsplit::ui::Ui;
use gsplit_partition::evaluate::{self as measure, Evaluation, Options};
use gsplit_store::{Checksum, Dataset, PartitionMap, Presample, shell_path};

use super::found::{Found, TrainingRun};
use super::page::Page;
use crate::evaluate::table;
use crate::inspect::artifacts;
use crate::inspect::words::percent;

/// Adds the sections, the partitions that runs used first. Measures them on `batches` mini-batches, unless the graph is too large for that.
pub fn show(
    page: &mut Page,
    (dataset, found): (&Dataset, &Found),
    (batches, affordable): (u32, bool),
    ui: &Ui,
) -> Result<()> {
    let path = shell_path(dataset.path());
    let presamples = artifacts(dataset, "presample", Presample::open)?;
    let presamples: Vec<Presample> = presamples.into_iter().filter_map(|(_, presample)| presample.ok()).collect();
    let mut maps = Vec::new();
    for (key, map) in artifacts(dataset, "partition", PartitionMap::open)? {
        match map {
            Ok(map) => maps.push(map),
            Err(error) => page.leave_out(&format!("Partition {key}"), error.to_string()),
        }
    }
    maps.sort_by_key(|map| users(map, found).is_empty());
    if maps.is_empty() {
        // Runs on one rank need no partition.
        if found.runs.is_empty() || found.runs.iter().any(|run| run.option("/system/parallelism") != Some("single")) {
            page.leave_out("Partitions", format!("there are none: gsplit partition {path} --parts 4"));
        }
        return Ok(());
    }
    page.section("Partitions", |page| stored(page, &maps, found));
    let measured = "Cross edges and balance by layer";
    let Some(presample) = presample_of(&maps, &presamples) else {
        let fanouts = found.runs.iter().find_map(|run| run.option("/data/fanouts")).unwrap_or("15,10,5");
        let why = format!("no presample tells which mini-batches: gsplit presample {path} --fanouts {fanouts}");
        page.leave_out(measured, why);
        return Ok(());
    };
    if !affordable {
        page.leave_out(measured, "all edges would be read: gsplit report with --full");
        return Ok(());
    }
    let setting = Options { batches, ..Options::default() }.setting(Some(presample));
    match setting.and_then(|setting| measure::evaluate(dataset, &maps, Some(presample), &setting, ui)) {
        Ok(found) => page.section(measured, |page| by_layer(page, &found, presample)),
        Err(error) => page.leave_out(measured, error.to_string()),
    }
    Ok(())
}

/// Returns the presample that the first of the maps with one was made with, or the first presample.
fn presample_of<'a>(maps: &[PartitionMap], presamples: &'a [Presample]) -> Option<&'a Presample> {
    let mut used = maps.iter().filter_map(|map| Some(&map.meta().made_from.presample.as_ref()?.0));
    let found = used.find_map(|key| presamples.iter().find(|presample| presample.key() == key));
    found.or(presamples.first())
}

/// Returns the names of the runs whose checkpoints record this very map.
fn users<'a>(map: &PartitionMap, found: &'a Found) -> Vec<&'a str> {
    let is_this = |(key, assignment): &(String, Checksum)| {
        let own = map.meta().files.get("assignment.npy");
        key == map.key() && own.is_some_and(|own| own.checksum == *assignment)
    };
    let used = |run: &&TrainingRun| Some(is_this(run.checkpoint.as_ref()?.inputs.partition.as_ref()?));
    found.runs.iter().filter(|run| used(run) == Some(true)).map(|run| run.name.as_str()).collect()
}

/// Adds the cut and the balance that `maps` record.
fn stored(page: &mut Page, maps: &[PartitionMap], found: &Found) {
    let head = "partition, used by, parts, by, weights, presample, pairs cut, cross edges, imbalance, vertices, edges, targets, work";
    let row = |map: &PartitionMap| {
        let (config, report) = (&map.meta().config, &map.meta().report);
        let factor = |factor: f64| format!("{factor:.3}");
        let maybe = |balance: Option<f64>| balance.map_or_else(|| "-".into(), factor);
        let users = users(map, found);
        [
            map.key().to_string(),
            if users.is_empty() { "-".into() } else { users.join(", ") },
            config.parts.to_string(),
            config.partitioner.clone(),
            config.weights.clone(),
            map.meta().made_from.presample.as_ref().map_or("-", |(key, _)| key).to_string(),
            percent(report.cut as f64 / report.adjacent_pairs.max(1) as f64),
            percent(report.expected_cross_share),
            factor(report.imbalance),
            factor(report.balance.vertices),
            factor(report.balance.edges),
            maybe(report.balance.targets),
            maybe(report.balance.work),
        ]
    };
    let caption = "As they were made; balance is the heaviest part over the mean";
    page.table(caption, &head.split(", ").collect::<Vec<_>>(), &maps.iter().map(row).collect::<Vec<_>>());
}

/// Adds the table of `gsplit evaluate`.
fn by_layer(page: &mut Page, found: &Evaluation, presample: &Presample) {
    let names = found.maps.iter().map(|map| map.key.clone().unwrap_or_else(|| "random".into()));
    let head: Vec<String> = ["a mini-batch".to_string()].into_iter().chain(names).collect();
    let rows =
        table(&found.maps).into_iter().map(|(label, cells)| [vec![label.replacen("  ", "– ", 1)], cells].concat());
    let caption =
        format!("Means over mini-batches, measured on {}, as of presample {}", found.setting, presample.key());
    page.table(&caption, &head, &rows.collect::<Vec<_>>());
}
