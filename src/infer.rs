//! `gsplit infer`: predictions of a trained model for the vertices of a graph.

mod tables;

use std::path::{Path, PathBuf};
use std::time::Instant;

use gsplit_preprocess::memory::Memory;
use gsplit_store::staging::{Target, recover};
use gsplit_store::{Checksum, Dataset, Progress, checksum_file};
use gsplit_trainer::{InferConfig, Recommended, Trained, ids_beside, infer};
use serde_json::json;

use crate::train::as_usage;
use gsplit::describe::{numbered_classes, score};
use gsplit::outputs::Outputs;
use gsplit::ui::{Ui, peak_rss_mb, stop_gently, usage};
use tables::NewTables;

/// Predict with a trained model, for every vertex of a graph of any size
///
/// Uses full neighbourhoods, layer after layer, which gives the result of a forward pass over the
/// whole graph. Predictions have the original ids, in the dataset's order. NAME.csv and
/// NAME.parquet have the columns `id`, `class` and the probability of each class, e.g.
/// `probability_NAME`; with several classes per vertex, a 0/1 column and a probability for each
/// class; for numbers `prediction`. NAME.npy has the class numbers, and NAME.ids.npy the ids
/// (NAME.ids.arrow if they were strings). Embeddings are .npy or .parquet.
///
/// The dataset need not be the one the model was trained on, as long as its features mean the same.
/// New tables are given with --nodes and --edges, and are read like the tables of the training.
/// With --with DATASET the new vertices are joined to that graph, and the predictions equal the
/// predictions on the old and new tables together. Scores are printed if the table has labels.
///
/// The bytes written do not depend on the number of threads or on --memory. Finished layers that do
/// not fit into memory are on disk until the next one is done. With --device cuda one or more GPUs
/// compute, with the same results up to rounding; --memory then limits the host's memory, and
/// finished layers stay on the GPUs if they fit into half of their free memory.
///
/// A model of links recommends: --top 10 writes the columns source, rank, target and score.
/// Candidates are the targets, if sources and targets are of two kinds (gsplit convert
/// --bipartite), else all vertices; targets that the source already has a link to are left out.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit infer products --checkpoint runs/split --out classes.parquet
  gsplit infer products --checkpoint runs/split --split test --predict probabilities --out test.npy
  gsplit infer --nodes new.csv --edges new_edges.csv --with run --checkpoint run/checkpoint --out scores.csv
  gsplit infer --nodes others.csv --edges other_edges.csv --checkpoint run/checkpoint --out scores.parquet
  gsplit infer products --checkpoint runs/split --epoch last --split valid
  gsplit infer papers --checkpoint runs/papers --embeddings hidden.npy --memory 4GiB --scratch /ssd/tmp
  gsplit infer products --checkpoint runs/split --device cuda --gpus 0,1 --out classes.parquet
  gsplit infer ratings --checkpoint runs/links --top 10 --out recommendations.parquet
  gsplit infer ratings --checkpoint runs/links --top 10 --sources users.txt --out recommendations.csv

Ctrl-C leaves nothing behind: files appear when they are whole.")]
pub struct Args {
    /// Dataset directory
    #[arg(conflicts_with = "nodes")]
    dataset: Option<PathBuf>,
    /// Tables of new vertices instead of a dataset.
    #[command(flatten)]
    tables: NewTables,
    #[command(flatten)]
    config: InferConfig,
    /// Memory limit without mapped files, e.g. 4GiB or 50% of the machine's [default: half of it]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Memory>,
}

/// Infers and prints the scores.
pub fn run(mut args: Args, ui: &Ui) -> anyhow::Result<()> {
    let started = Instant::now();
    args.config.check_names().map_err(as_usage)?;
    let converted = match &args.dataset {
        Some(_) => None,
        None => args.tables.convert(&args.config, args.memory, ui)?,
    };
    args.config.rows = converted.as_ref().map(|converted| converted.rows.clone());
    let opened = args.dataset.as_ref().map(Dataset::open).transpose()?;
    let Some(dataset) = opened.as_ref().or(converted.as_ref().map(|converted| &converted.dataset))
    else {
        return Err(usage("name what to infer on: DATASET, or --nodes TABLE"));
    };
    let targets = targets(&args.config, dataset);
    recover(&targets)?;
    let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let (out, embeddings) = (shown(&args.config.out), shown(&args.config.embeddings));
    let said = |reused: bool| {
        json!({
            "dataset": dataset.name(), "out": out, "embeddings": embeddings, "reused": reused,
            "seconds": started.elapsed().as_secs_f64(), "peak_rss_mb": peak_rss_mb(),
        })
    };
    args.config.made_by = Some(made_by(&args.config, dataset)?);
    if is_made(&targets, &args.config)? {
        let places: Vec<&str> =
            [&out, &embeddings].into_iter().flatten().map(String::as_str).collect();
        ui.say(format_args!("{}: already there, made the same way", places.join(", ")));
        ui.json(&said(true));
        return Ok(());
    }
    check_outputs(&args, dataset)?;
    let memory = args.memory.unwrap_or_default().total();
    let stop = stop_gently(|| "nothing was written".into());
    let summary = infer(dataset, &args.config, memory, Some(stop), ui);
    let summary = summary.map_err(|error| args.tables.named(as_usage(error), dataset))?;
    let seconds = started.elapsed().as_secs_f64();
    ui.say(format_args!(
        "{}: {} vertices by {} after epoch {}{} ({seconds:.2} s{})",
        dataset.name(),
        summary.vertices,
        summary.checkpoint.display(),
        summary.epochs,
        if summary.best { ", the best so far on the valid split" } else { "" },
        if summary.spilled { ", layers on disk" } else { "" },
    ));
    let splits = summary.scores.iter().map(|(split, score)| (split.name(), *score));
    for (name, found) in splits.chain(summary.all.map(|score| ("all", Some(score)))) {
        let metric = summary.metric.map(|metric| metric.to_string()).unwrap_or_default();
        ui.say(format_args!("  {name:<6} {metric} {}", score(found)));
    }
    if let Some(Recommended { sources, without, rows }) = summary.recommendations {
        ui.say(format_args!("  {rows} recommendations for {} sources", sources - without));
    }
    let of_out = if summary.recommendations.is_some() { "recommendations" } else { "predictions" };
    for (what, file) in [(of_out, &args.config.out), ("embeddings", &args.config.embeddings)] {
        if let Some(file) = file {
            ui.say(format_args!("{what}: {}", file.display()));
        }
    }
    let is_array =
        args.config.out.as_ref().is_some_and(|out| out.extension().is_some_and(|end| end == "npy"));
    if let Some(names) = summary.class_names.as_ref().filter(|_| is_array) {
        ui.say(format_args!("  classes by number: {}", numbered_classes(names)));
    }
    if summary.scores.iter().any(|(_, score)| score.is_some_and(f64::is_nan)) {
        ui.note("warning: a score is NaN: features or the model contain NaN");
    }
    let mut said = said(false);
    said["summary"] = json!(summary);
    ui.json(&said);
    Ok(())
}

/// The files to write, in the order in which they appear.
fn targets(config: &InferConfig, dataset: &Dataset) -> Vec<Target> {
    let ids_beside = |out: &Path| ids_beside(out, dataset.manifest().string_ids);
    let files = [&config.out, &config.embeddings].into_iter().flatten();
    files.flat_map(|out| [Some(out.clone()), ids_beside(out)]).flatten().map(Target::file).collect()
}

/// Whether all `targets` exist and `config` would make the same files again.
fn is_made(targets: &[Target], config: &InferConfig) -> gsplit_store::Result<bool> {
    let Some(made_by) = &config.made_by else { return Ok(false) };
    let made = targets
        .iter()
        .map(|target| target.is_made_by(made_by))
        .collect::<gsplit_store::Result<Vec<_>>>()?;
    Ok(!made.is_empty() && made.iter().all(|&made| made))
}

/// Digest of everything that decides the bytes of the output: the dataset, the model and the
/// options.
fn made_by(config: &InferConfig, dataset: &Dataset) -> anyhow::Result<Checksum> {
    let trained = Trained::open(&config.checkpoint, config.epoch).map_err(as_usage)?;
    let model = checksum_file(&trained.path.join("checkpoint.json"))?;
    let sources = config.sources.as_deref().map(checksum_file).transpose()?;
    let mut manifest = serde_json::to_value(dataset.manifest())?;
    // These fields of new tables depend on the place of their conversion.
    if let Some(fields) = manifest.as_object_mut() {
        fields.retain(|name, _| name != "name" && name != "provenance");
    }
    let InferConfig { split, rows, top, with_known, predict, device, gpus, dtype, .. } = config;
    let files = [&config.out, &config.embeddings].map(|file| file.as_ref()?.file_name());
    let options =
        format!("{:?}", (split, rows, top, with_known, predict, device, gpus, dtype, files));
    let version = env!("CARGO_PKG_VERSION");
    Ok(Checksum::of(format!("{version} {model:?} {sources:?} {manifest} {options}").as_bytes()))
}

/// Checks that the outputs can be written, before the work is done.
fn check_outputs(args: &Args, dataset: &Dataset) -> anyhow::Result<()> {
    let config = &args.config;
    let ids_beside = |out: &Path| ids_beside(out, dataset.manifest().string_ids);
    let mut outputs = Outputs::new(config.force).reads("--checkpoint", &config.checkpoint);
    if let Some(dataset) = &args.dataset {
        outputs = outputs.reads("DATASET", dataset);
    }
    outputs =
        args.tables.files().fold(outputs, |outputs, (option, path)| outputs.reads(option, path));
    outputs =
        config.sources.iter().fold(outputs, |outputs, sources| outputs.reads("--sources", sources));
    for (option, out) in [("--out", &config.out), ("--embeddings", &config.embeddings)] {
        let Some(out) = out else { continue };
        outputs.file(option, out, None)?;
        if let Some(ids) = ids_beside(out) {
            outputs.file(option, &ids, None)?;
        }
    }
    config.scratch.iter().try_for_each(|scratch| outputs.folder("--scratch", scratch))
}
