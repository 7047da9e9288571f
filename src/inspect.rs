//! `gsplit inspect`: what is there, how large, how it was made.

use std::path::PathBuf;

use gsplit_store::{Dataset, PartitionMap, Presample};
use serde_json::json;

use crate::ui::{Ui, bytes};

/// Show what a dataset directory holds and how it was made
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gsplit inspect products")]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
}

/// Prints the dataset, its pre-samplings and its partitions.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    let dataset = Dataset::open(&args.dataset)?;
    let manifest = dataset.manifest();
    let (n, m) = (manifest.num_vertices, manifest.num_edges);
    ui.say(format_args!("{} ({})", manifest.name, args.dataset.display()));
    ui.say(format_args!("  {n} vertices, {m} edges, mean in-degree {:.2}", m as f64 / (n as f64).max(1.0)));
    match &manifest.features {
        Some(features) => {
            let origin = features.generated.as_deref().map_or(String::new(), |how| format!(", generated: {how}"));
            ui.say(format_args!("  features: {} x {}{origin}", features.dim, features.dtype));
        }
        None => ui.say("  no features"),
    }
    match manifest.num_classes {
        Some(classes) => ui.say(format_args!("  labels: {classes} classes")),
        None => ui.say("  no labels"),
    }
    let mut splits = Vec::new();
    for split in manifest.splits() {
        splits.push((split.name(), dataset.split(split)?.len()));
    }
    let words: Vec<String> = splits.iter().map(|(name, count)| format!("{name} {count}")).collect();
    ui.say(format_args!("  splits: {}", if words.is_empty() { "none".into() } else { words.join(", ") }));
    let provenance = &manifest.provenance;
    ui.say(format_args!("  made by gsplit {} {} {}", provenance.tool_version, provenance.command, provenance.options));
    for (fact, count) in &provenance.facts {
        ui.say(format_args!("    {fact}: {count}"));
    }
    let total: u64 = manifest.files.values().map(|record| record.bytes).sum();
    ui.say(format_args!("  files: {}", bytes(total)));
    for (name, record) in &manifest.files {
        ui.say(format_args!("    {:>10}  {name}", bytes(record.bytes)));
    }
    let (mut presamples, mut partitions) = (Vec::new(), Vec::new());
    for key in dataset.keys("presample")? {
        let presample = Presample::open(&dataset, &key)?;
        let config = &presample.meta().config;
        ui.say(format_args!(
            "  presample {key}: fanouts {}, batch size {}, {} epochs, seed {}: {} mini-batches",
            config.fanouts,
            config.batch_size,
            config.epochs,
            config.seed,
            presample.meta().num_batches
        ));
        presamples.push(json!({ "key": key, "meta": presample.meta() }));
    }
    for key in dataset.keys("partition")? {
        let map = PartitionMap::open(&dataset, &key)?;
        let report = &map.meta().report;
        ui.say(format_args!(
            "  partition {key}: {} parts, cut {} of {}, expected cross edges {:.1} %, imbalance {:.3}",
            map.num_parts(),
            report.cut,
            report.adjacent_pairs,
            100.0 * report.expected_cross_share,
            report.imbalance
        ));
        partitions.push(json!({ "key": key, "meta": map.meta() }));
    }
    ui.json(&json!({
        "path": args.dataset, "dataset": manifest, "splits": splits.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "presamples": presamples, "partitions": partitions,
    }));
    Ok(())
}
