//! Configurations, versions, and the machine that makes the page.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use gsplit_kernels::CudaSurvey;
use gsplit_store::{Dataset, PartitionMap, Presample};
use serde_json::Value;

use super::found::Found;
use super::page::Page;
use crate::doctor::Host;

/// Adds the sections.
pub fn show(page: &mut Page, dataset: Option<&Dataset>, found: &Found) -> Result<()> {
    let checkpoints = || found.runs.iter().filter_map(|run| Some((&run.name, run.checkpoint.as_ref()?)));
    if checkpoints().next().is_none() {
        page.leave_out("Configuration", "no checkpoint is here, which has it: gsplit train with --checkpoint runs/run");
    } else {
        let runs: Vec<(&String, Options)> =
            checkpoints().map(|(name, checkpoint)| (name, options(&checkpoint.config))).collect();
        let head: Vec<&str> = ["option"].into_iter().chain(runs.iter().map(|(name, _)| name.as_str())).collect();
        let names: BTreeSet<&String> = runs.iter().flat_map(|(_, options)| options.keys()).collect();
        let changed: BTreeSet<&String> = checkpoints().flat_map(|(_, of)| of.changed.iter()).collect();
        let row = |name: &&&String| {
            let values = runs.iter().map(|(_, options)| options.get(**name).cloned().unwrap_or_default());
            [(**name).clone()].into_iter().chain(values).collect::<Vec<_>>()
        };
        let rows = |of: &dyn Fn(&&&String) -> bool| names.iter().filter(of).map(|name| row(&name)).collect::<Vec<_>>();
        let [others, rest] = [rows(&|name| changed.contains(**name)), rows(&|name| !changed.contains(**name))];
        page.section("Configuration", |page| {
            match others.is_empty() {
                true => page.text("All options have their defaults."),
                false => page.table("Options that are not at their defaults", &head, &others),
            }
            page.fold(&format!("{} other options", rest.len()), |page| {
                page.table("Options at their defaults", &head, &rest);
            });
        });
    }
    let mut made = Vec::new();
    if let Some(dataset) = dataset {
        made.push(row(
            "dataset",
            dataset.name(),
            &dataset.manifest().provenance.tool_version,
            dataset.fingerprint().to_string(),
        ));
        for key in dataset.keys("presample")? {
            if let Ok(presample) = Presample::open(dataset, &key) {
                let meta = presample.meta();
                let config = &meta.config;
                let (fanouts, size, epochs) = (&config.fanouts, config.batch_size, config.epochs);
                let what = format!("fanouts {fanouts}, batch size {size}, {epochs} epochs, seed {}", config.seed);
                made.push(row("presample", &key, &meta.tool_version, what));
            }
        }
        for key in dataset.keys("partition")? {
            if let Ok(map) = PartitionMap::open(dataset, &key) {
                let config = &map.meta().config;
                let what = format!("epsilon {}, seed {}", config.epsilon, config.seed);
                made.push(row("partition", &key, &map.meta().tool_version, what));
            }
        }
    }
    for (name, checkpoint) in checkpoints() {
        let partition = checkpoint.inputs.partition.as_ref().map_or("none", |(key, _)| key);
        let (of, threads) = (&checkpoint.made_from, checkpoint.inputs.threads_per_rank);
        let is_other = dataset.is_some_and(|dataset| dataset.topology_checksum() != of.topology);
        let other = if is_other { ", another graph than that of this page" } else { "" };
        let what = format!("on {}{other}, partition {partition}, {threads} threads a rank", of.dataset);
        made.push(row("run", name, &checkpoint.tool_version, what));
    }
    page.section("Versions and environment", |page| {
        if !made.is_empty() {
            page.table("What made what is shown", &["what", "name", "gsplit", "of"], &made);
        }
        page.facts(&machine());
    });
    Ok(())
}

fn row(what: &str, name: &str, version: &str, of: String) -> [String; 4] {
    [what.into(), name.into(), version.into(), of]
}

/// Values by their names.
type Options = BTreeMap<String, String>;

/// The options of a configuration, those of groups by names joined with points; what was left open is left out.
fn options(config: &Value) -> Options {
    let mut options = Options::new();
    flatten("", config, &mut options);
    options
}

fn flatten(name: &str, value: &Value, options: &mut Options) {
    match value {
        Value::Null => {}
        Value::Object(fields) => fields.iter().for_each(|(field, value)| {
            let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
            flatten(&name, value, options);
        }),
        Value::String(text) => drop(options.insert(name.into(), text.clone())),
        other => drop(options.insert(name.into(), other.to_string())),
    }
}

/// This machine.
fn machine() -> Vec<(&'static str, String)> {
    let host = Host::look();
    let system = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let survey = CudaSurvey::new();
    let gpus: Vec<&str> = survey.gpus.iter().flatten().map(|gpu| gpu.name.as_str()).collect();
    vec![
        ("page made by", format!("gsplit {}", env!("CARGO_PKG_VERSION"))),
        ("processor", format!("{}, {} threads", host.processor, host.threads)),
        ("memory", gsplit::ui::bytes(host.memory_bytes)),
        ("system", format!("{} {}", std::env::consts::OS, system.trim()).trim().to_string()),
        ("GPUs", if gpus.is_empty() { "none".into() } else { gpus.join(", ") }),
    ]
}
