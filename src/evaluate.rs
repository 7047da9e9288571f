//! `gsplit evaluate`: stored partitions side by side, on fresh mini-batches.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use gsplit_partition::evaluate::{
    Evaluation, LayerEvaluation, MapEvaluation, Options, Work, evaluate,
};
use gsplit_store::{
    Dataset, PartitionMap, Presample, Progress, artifact_key, shell_path, stored_key,
};
use serde_json::json;

use crate::inspect::words::percent;
use crate::partition::{named_or_best, on_servers};
use crate::ui::Ui;

/// Measure how good partitions are, on fresh mini-batches
///
/// Draws mini-batches as training does, with a seed that the presample did not use. For every
/// partition it counts the sampled edges between parts, how evenly the ranks share the work, and
/// the rows that ranks exchange. Rows loaded and edges computed are compared with fewer split
/// layers (`train --split-layers`), with none (`--parallelism owned`) and with data parallelism;
/// cross edges and balance are compared with the presample's expectation. A random partition with
/// as many parts is measured too.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit evaluate products
  gsplit evaluate products --partition multilevel-presampled-k4 --batches 50
  gsplit evaluate products --partition multilevel-presampled-k4 --partition multilevel-degree-k4
  gsplit evaluate products --fanouts 10,5 --batch-size 512 --seed 7 --json")]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
    /// A partition to measure; repeat it for several [default: all partitions of the dataset]
    #[arg(long = "partition", value_name = "KEY", value_parser = stored_key)]
    partitions: Vec<String>,
    #[command(flatten)]
    options: Options,
    /// Presample that gives fanouts, batch size and expectations [default: the presample that fits
    /// the mini-batches of the options, or the one that most of the partitions were made with]
    #[arg(long, value_name = "KEY", value_parser = artifact_key)]
    presample: Option<String>,
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> Result<()> {
    let started = Instant::now();
    let dataset = Dataset::open(&args.dataset)?;
    let maps = choose_maps(&args, &dataset)?;
    let complete = args.options.fanouts.is_some() && args.options.batch_size.is_some();
    let without = complete.then_some("nothing is expected, without a presample");
    let fit = |presample: &Presample| {
        let drawn = &presample.meta().config;
        let options = &args.options;
        let draw_by = options.draw_by.is_none() || options.draw_by == drawn.draw_by;
        let fanouts =
            options.fanouts.as_ref().is_none_or(|fanouts| fanouts.to_string() == drawn.fanouts);
        let batch_size = options.batch_size.is_none_or(|size| size == drawn.batch_size);
        let made_with = |map: &&PartitionMap| {
            map.meta()
                .made_from
                .presample
                .as_ref()
                .is_some_and(|(_, checksum)| checksum == presample.checksum())
        };
        Some((draw_by, fanouts, batch_size, maps.iter().filter(made_with).count()))
    };
    let presample = named_or_best(&dataset, args.presample.as_deref(), fit, without, ui)?;
    let setting = args.options.setting(presample.as_ref())?;
    if let Some(presample) = presample.as_ref().filter(|presample| !setting.is_of(presample)) {
        let config = &presample.meta().config;
        ui.note(&format!(
            "note: nothing is expected, for presample {} is of other mini-batches (fanouts {}, \
             batch size {}{})",
            presample.key(),
            config.fanouts,
            config.batch_size,
            config
                .draw_by
                .as_ref()
                .map(|column| format!(", drawn by {column}"))
                .unwrap_or_default()
        ));
    }
    let evaluation = evaluate(&dataset, &maps, presample.as_ref(), &setting, ui)?;

    let mut all = serde_json::to_value(&evaluation)?;
    if let Some(object) = all.as_object_mut() {
        object.insert("path".into(), json!(args.dataset.display().to_string()));
        object.insert("seconds".into(), json!(started.elapsed().as_secs_f64()));
    }
    ui.json(&all);
    say(&evaluation, &dataset, ui);
    Ok(())
}

/// The maps that are named, each once, or all maps of the dataset.
fn choose_maps(args: &Args, dataset: &Dataset) -> Result<Vec<PartitionMap>> {
    let mut keys: Vec<String> = Vec::new();
    for key in &args.partitions {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    if keys.is_empty() {
        keys = dataset.keys("partition")?;
    }
    if keys.is_empty() {
        let (path, word) = (args.dataset.display(), shell_path(&args.dataset));
        bail!(
            "{path}: has no partition to evaluate: run `gsplit partition {word} --parts K` first"
        );
    }
    Ok(keys.iter().map(|key| PartitionMap::open(dataset, key)).collect::<Result<_, _>>()?)
}

/// Prints the table, with one column per map.
fn say(evaluation: &Evaluation, dataset: &Dataset, ui: &Ui) {
    let (setting, batch) = (&evaluation.setting, &evaluation.batch);
    ui.say(format_args!("{}: {setting}", dataset.name()));
    ui.say(format_args!(
        "  {:.0} sampled edges and {:.0} input rows a mini-batch; all numbers are means over \
         mini-batches",
        batch.edges, batch.input_rows
    ));
    let maps = &evaluation.maps;
    let names = maps.iter().map(|map| map.key.as_deref().unwrap_or("random"));
    let heads: Vec<&str> = [""].into_iter().chain(names).collect();
    ui.columns(&heads.join(", "), table(maps));
}

/// A row: a label, and one cell for each of `items`.
fn row<T>(label: impl Into<String>, items: &[T], cell: impl Fn(&T) -> String) -> Vec<String> {
    [label.into()].into_iter().chain(items.iter().map(cell)).collect()
}

/// The rows of [`say`]'s table below the names of the maps.
fn table(maps: &[MapEvaluation]) -> Vec<Vec<String>> {
    let parts = |map: &MapEvaluation| format!("{}{}", map.parts, on_servers(map.servers));
    let mut rows = vec![row("parts", maps, parts)];
    rows.extend(by_layer("cross edges", maps, &|layer| percent(layer.cross_share)));
    if maps.iter().any(|map| map.servers > 1) {
        let share =
            |layer: &LayerEvaluation| layer.cross_server_share.map_or_else(|| "-".into(), percent);
        rows.extend(by_layer("between servers", maps, &share));
    }
    rows.extend(by_layer("edges, heaviest / mean", maps, &|layer| factor(layer.edge_imbalance)));
    rows.extend(by_layer("vertices, heaviest / mean", maps, &|layer| {
        factor(layer.vertex_imbalance)
    }));
    rows.push(row("  input rows", maps, |map| factor(map.input_imbalance)));
    rows.extend(by_layer("rows exchanged", maps, &|layer| count(layer.rows_exchanged)));
    let layers = maps.first().map_or(0, |map| map.layers.len());
    rows.extend((1..layers).rev().map(|split| {
        let label = format!("  of {layers} layers {split} split");
        row(label, maps, |map| count(map.split_layers[split].rows_exchanged()))
    }));
    rows.extend(by_sharing("rows loaded", maps, &|work| work.rows_loaded));
    rows.extend(by_sharing("edges computed", maps, &Work::edges));
    rows.extend(expectations(maps));
    rows
}

/// One row for all layers together and, where there are several, one for each.
fn by_layer(
    label: &str,
    maps: &[MapEvaluation],
    cell: &dyn Fn(&LayerEvaluation) -> String,
) -> Vec<Vec<String>> {
    let mut rows = vec![row(label, maps, |map| cell(&map.all))];
    let layers = maps.first().map_or(0, |map| map.layers.len());
    for layer in (0..layers).filter(|_| layers > 1) {
        let which = match layer {
            0 => " (seeds)",
            _ if layer + 1 == layers => " (input)",
            _ => "",
        };
        let label = format!("  layer {}{which}", layer + 1);
        rows.push(row(label, maps, |map| cell(&map.layers[layer])));
    }
    rows
}

/// Rows of a sum over all ranks: under split parallelism, with fewer layers split down to none, and
/// under data parallelism; each with its ratio to split parallelism.
fn by_sharing(label: &str, maps: &[MapEvaluation], of: &dyn Fn(&Work) -> f64) -> Vec<Vec<String>> {
    let times = |work: &Work, map: &MapEvaluation| {
        let (found, split) = (of(work), of(map.split()));
        format!("{found:.0} ({:.2}x)", if split > 0.0 { found / split } else { 1.0 })
    };
    let layers = maps.first().map_or(0, |map| map.layers.len());
    let mut rows = vec![row(format!("{label}, split"), maps, |map| count(of(map.split())))];
    rows.extend((0..layers).rev().map(|split| {
        let sharing = if split == 0 { "owned".to_string() } else { format!("{split} split") };
        row(format!("{label}, {sharing}"), maps, |map| times(&map.split_layers[split], map))
    }));
    rows.push(row(format!("{label}, data"), maps, |map| times(&map.data, map)));
    rows
}

/// The expectation and the measurement; no rows without a presample.
fn expectations(maps: &[MapEvaluation]) -> Vec<Vec<String>> {
    let found: Vec<_> = maps.iter().filter_map(|map| map.expectation.as_ref()).collect();
    if found.is_empty() {
        return Vec::new();
    }
    let share = |share: f64| format!("{:.2} %", 100.0 * share);
    vec![
        row("expected cross edges", &found, |e| count(e.expected_cross_edges)),
        row("measured cross edges", &found, |e| count(e.measured_cross_edges)),
        row("expected share", &found, |e| share(e.expected_cross_share)),
        row("measured share", &found, |e| share(e.measured_cross_share)),
        row("expected work balance", &found, |e| factor(e.expected_work_balance)),
        row("measured work balance", &found, |e| factor(e.measured_work_balance)),
    ]
}

fn factor(value: f64) -> String {
    format!("{value:.3}")
}

fn count(value: f64) -> String {
    format!("{value:.0}")
}
