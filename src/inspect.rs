//! `gsplit inspect`: the contents of a dataset, figures of its graph, and how it was made.

use std::path::PathBuf;

use gsplit_store::{
    Dataset, Error, PartitionMap, Placement, Presample, RowLoads, check, shell_path,
};
use serde_json::{Value, json};

use crate::describe::{say_content, split_sizes, splits_json};
use crate::figures::Figures;
use crate::partition::on_servers;
use crate::ui::{Ui, bytes};

mod origin;
pub mod words;

/// Show the contents of a dataset directory, figures of its graph and how it was made
///
/// Figures of the graph: quantiles of the in-degrees, edges from a vertex to itself, the share of
/// edges whose reverse is an edge too, edge homophily (the share of one class among edges between
/// labelled vertices) and the ten most frequent classes (all with --json). Figures that read all
/// edges are left out above 200 million edges.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit inspect products
  gsplit inspect products --json")]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
}

/// Prints the dataset, its presamples, partitions and placements. An artifact of another graph is
/// shown with the reason.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    let dataset = Dataset::open(&args.dataset)?;
    let splits = split_sizes(&dataset)?;
    let figures = Figures::of(&dataset, ui)?;
    let presamples = artifacts(&dataset, "presample", Presample::open)?;
    let partitions = artifacts(&dataset, "partition", PartitionMap::open)?;
    let placements = artifacts(&dataset, "placement", Placement::open)?;
    // Long files are checked in the background: print nothing about a damaged one.
    check::settled()?;
    say_content(&dataset, &splits, ui);
    for (name, fact) in words::facts(&figures) {
        ui.say(format_args!("  {name:<10} {fact}"));
    }
    say_origin(&dataset, ui);
    say_artifacts("presample", &presamples, describe_presample, ui);
    say_artifacts("partition", &partitions, describe_partition, ui);
    say_artifacts("placement", &placements, describe_placement, ui);
    let (artifacts, size) = dataset.tried_size()?;
    if size > 0 {
        let path = shell_path(dataset.path());
        ui.say(format_args!(
            "  cache of plan and compare: {artifacts} artifacts, {} (gsplit clean {path})",
            bytes(size)
        ));
    }
    let presamples = as_json(presamples, |presample| json!(presample.meta()));
    let partitions = as_json(partitions, |map| json!(map.meta()));
    let placements = as_json(placements, |placement| json!(placement.meta()));
    ui.json(&json!({
        "path": args.dataset.display().to_string(), "dataset": dataset.manifest(), "splits": splits_json(&splits),
        "figures": figures, "command": origin::command_line(&dataset),
        "presamples": presamples, "partitions": partitions, "placements": placements,
        "cache": { "artifacts": artifacts, "bytes": size },
    }));
    Ok(())
}

/// Artifacts of a kind by their keys; each is opened, or has the reason why it cannot be.
pub type Artifacts<T> = Vec<(String, gsplit_store::Result<T>)>;

/// Opens all artifacts of a kind; a damaged file is an error.
pub fn artifacts<T>(
    dataset: &Dataset,
    kind: &str,
    open: impl Fn(&Dataset, &str) -> gsplit_store::Result<T>,
) -> gsplit_store::Result<Artifacts<T>> {
    let opened = dataset.keys(kind)?.into_iter().map(|key| match open(dataset, &key) {
        Err(damage @ Error::Corrupt { .. }) => Err(damage),
        artifact => Ok((key, artifact)),
    });
    opened.collect()
}

fn say_artifacts<T>(kind: &str, artifacts: &Artifacts<T>, describe: fn(&T) -> String, ui: &Ui) {
    for (key, artifact) in artifacts {
        let shown = artifact.as_ref().map_or_else(|error| format!("unusable: {error}"), describe);
        ui.say(format_args!("  {kind} {key}: {shown}"));
    }
}

fn say_origin(dataset: &Dataset, ui: &Ui) {
    let manifest = dataset.manifest();
    let provenance = &manifest.provenance;
    ui.say(format_args!(
        "  made by gsplit {}: {}",
        provenance.tool_version,
        origin::command_line(dataset)
    ));
    for (fact, count) in &provenance.facts {
        ui.say(format_args!("    {fact}: {count}"));
    }
    for decision in &provenance.decisions {
        ui.say(format_args!("    {decision}"));
    }
    if !provenance.schema.is_empty() {
        let keys = provenance.schema.iter().map(|(key, value)| format!("{key} = {value}"));
        ui.say(format_args!("    schema: {}", keys.collect::<Vec<_>>().join(", ")));
    }
    let total: u64 = manifest.files.values().map(|record| record.bytes).sum();
    ui.say(format_args!("  files: {}", bytes(total)));
    for (name, record) in &manifest.files {
        ui.say(format_args!("    {:>10}  {name}", bytes(record.bytes)));
    }
}

fn describe_presample(presample: &Presample) -> String {
    let meta = presample.meta();
    let config = &meta.config;
    format!(
        "fanouts {}, batch size {}, {} epochs, seed {}: {} mini-batches",
        config.fanouts, config.batch_size, config.epochs, config.seed, meta.num_batches
    )
}

fn describe_partition(map: &PartitionMap) -> String {
    let (config, report) = (&map.meta().config, &map.meta().report);
    let presample =
        map.meta().made_from.presample.as_ref().map(|(key, _)| format!(", presample {key}"));
    let between =
        report.between_servers.as_ref().map(|between| format!(", {} between servers", between.cut));
    format!(
        "{} parts{} by {}, weights {}, epsilon {}, seed {}{}: cut {} of {} pairs{}, cross edges \
         {:.1} %, imbalance {:.3}",
        config.parts,
        on_servers(config.servers),
        config.partitioner,
        config.weights,
        config.epsilon,
        config.seed,
        presample.unwrap_or_default(),
        report.cut,
        report.adjacent_pairs,
        between.unwrap_or_default(),
        100.0 * report.expected_cross_share,
        report.imbalance
    )
}

fn describe_placement(placement: &Placement) -> String {
    let meta = placement.meta();
    let (config, made_from) = (&meta.config, &meta.made_from);
    let named = |artifact: &Option<(String, _)>| {
        artifact.as_ref().map(|(key, _)| key.clone()).unwrap_or_default()
    };
    let sum = |of: fn(&RowLoads) -> f64| meta.report.expected.iter().map(of).sum::<f64>();
    let (hits, host) = (sum(|loads| loads.local + loads.peer), sum(|loads| loads.host));
    let share = 100.0 * hits / (hits + host).max(f64::MIN_POSITIVE);
    format!(
        "{} for {} parallelism on {} devices, {} a device, alpha {}, partition {}, presample {}: \
         {share:.1} % of the row loads",
        config.placement,
        config.parallelism,
        config.devices,
        bytes(config.cache_bytes),
        config.alpha,
        named(&made_from.partition),
        named(&made_from.presample)
    )
}

fn as_json<T>(artifacts: Artifacts<T>, meta: fn(&T) -> Value) -> Vec<Value> {
    let shown = artifacts.into_iter().map(|(key, artifact)| match artifact {
        Ok(artifact) => json!({ "key": key, "meta": meta(&artifact) }),
        Err(error) => json!({ "key": key, "unusable": error.to_string() }),
    });
    shown.collect()
}
