//! Options of the runs that are not at their defaults, and the versions of gsplit that made the contents of the page.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use gsplit_store::{Dataset, PartitionMap, Presample};
use serde_json::Value;

use super::found::{Checkpoint, Found};
use super::page::Page;

fn checkpoints(found: &Found) -> impl Iterator<Item = (&str, &Checkpoint)> {
    found.runs.iter().filter_map(|run| Some((run.name.as_str(), run.checkpoint.as_ref()?)))
}

/// Adds the section.
pub fn show(page: &mut Page, found: &Found) {
    let changed: BTreeSet<&String> = checkpoints(found).flat_map(|(_, checkpoint)| &checkpoint.changed).collect();
    if checkpoints(found).next().is_none() {
        let why = "no checkpoint is here, which has it: gsplit train with --checkpoint runs/run";
        return page.leave_out("Configuration", why);
    }
    let head: Vec<&str> = ["option"].into_iter().chain(checkpoints(found).map(|(name, _)| name)).collect();
    let row = |name: &&String| {
        let pointer = format!("/{}", name.replace('.', "/"));
        let values = checkpoints(found).map(|(_, checkpoint)| match checkpoint.config.pointer(&pointer) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        });
        [(*name).clone()].into_iter().chain(values).collect::<Vec<_>>()
    };
    page.section("Configuration", |page| match changed.is_empty() {
        true => page.text("All options have their defaults."),
        false => {
            page.table("Options that are not at their defaults", &head, &changed.iter().map(row).collect::<Vec<_>>())
        }
    });
}

/// Returns a line of which gsplit made what.
pub fn makers(dataset: Option<&Dataset>, found: &Found) -> Result<String> {
    let mut made: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add = |version: &str, what: String| made.entry(version.into()).or_default().push(what);
    if let Some(dataset) = dataset {
        add(&dataset.manifest().provenance.tool_version, format!("dataset {}", dataset.name()));
        for key in dataset.keys("presample")? {
            if let Ok(presample) = Presample::open(dataset, &key) {
                add(&presample.meta().tool_version, format!("presample {key}"));
            }
        }
        for key in dataset.keys("partition")? {
            if let Ok(map) = PartitionMap::open(dataset, &key) {
                add(&map.meta().tool_version, format!("partition {key}"));
            }
        }
    }
    for (name, checkpoint) in checkpoints(found) {
        let of = &checkpoint.made_from;
        let is_other = dataset.is_some_and(|dataset| dataset.topology_checksum() != of.topology);
        let other =
            if is_other { format!(" (on {}, another graph than this page's)", of.dataset) } else { String::new() };
        add(&checkpoint.tool_version, format!("run {name}{other}"));
    }
    add(env!("CARGO_PKG_VERSION"), "this page".into());
    let made = made.iter().map(|(version, made)| format!("gsplit {version} made {}", made.join(", ")));
    Ok(made.collect::<Vec<_>>().join("; ") + ".")
}
