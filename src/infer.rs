//! `gsplit infer`: what a trained model says about the vertices of a graph.

use std::path::{Path, PathBuf};
use std::time::Instant;

use gsplit_preprocess::memory::Memory;
use gsplit_store::Dataset;
use gsplit_store::staging::{Target, recover};
use gsplit_trainer::{InferConfig, Predict, ids_beside, infer};
use serde_json::json;

use crate::environment;
use crate::train::as_usage;
use gsplit::describe::numbered_classes;
use gsplit::outputs::Outputs;
use gsplit::ui::{Ui, peak_rss_mb, stop_gently};

/// Predict with a trained model, for every vertex of a graph of any size
///
/// Full neighbourhoods, layer after layer: what a forward pass over the whole graph gives. Predictions and embeddings are
/// written in the dataset's order with the original ids beside them: NAME.npy with NAME.ids.npy (NAME.ids.arrow where the
/// ids were strings), or NAME.parquet with a column `id`, and `class_name` where the classes trained on have names. Finished layers that do not fit the memory lie on disk until the
/// next is done. The dataset need not be the one the model was trained on, as long as its features have the same width.
/// The bytes written do not depend on the number of threads. With --device cuda a GPU computes, or several, with the same results up
/// to rounding; --memory is then the host's, and finished layers stay on the GPUs where they fit half of their free memory.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit infer products --checkpoint runs/split --out classes.parquet
  gsplit infer products --checkpoint runs/split --split test --predict probabilities --out test.npy
  gsplit infer products --checkpoint runs/split --epoch last --split valid
  gsplit infer papers --checkpoint runs/papers --embeddings hidden.npy --memory 4GiB --scratch /ssd/tmp
  gsplit infer products --checkpoint runs/split --device cuda --gpus 0,1 --out classes.parquet

Ctrl-C leaves nothing behind: files appear when they are whole.")]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
    #[command(flatten)]
    config: InferConfig,
    /// Memory to keep to, mapped files not counted: 4GiB, 50% of the machine's [default: half of it]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Memory>,
}

/// Infers, and prints the scores.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    environment::set(&[environment::IDLE_THREADS_SLEEP])?;
    let started = Instant::now();
    let dataset = Dataset::open(&args.dataset)?;
    check_outputs(&args, &dataset)?;
    let memory = args.memory.unwrap_or_default().total();
    let summary = infer(&dataset, &args.config, memory, Some(stop_gently()), ui).map_err(as_usage)?;
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
    for (split, score) in &summary.scores {
        let metric = summary.metric.map(|metric| metric.to_string()).unwrap_or_default();
        let score = score.map_or("-".to_string(), |score| format!("{score:.4}"));
        ui.say(format_args!("  {:<6} {metric} {score}", split.name()));
    }
    for (what, file) in [("predictions", &args.config.out), ("embeddings", &args.config.embeddings)] {
        if let Some(file) = file {
            ui.say(format_args!("{what}: {}", file.display()));
        }
    }
    let named = args.config.predict == Predict::Class
        && args.config.out.as_ref().is_none_or(|out| out.extension().is_some_and(|end| end == "parquet"));
    if let Some(names) = summary.class_names.as_ref().filter(|_| !named) {
        ui.say(format_args!(
            "  numbers of classes, which --predict class has by name in .parquet: {}",
            numbered_classes(names)
        ));
    }
    let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    ui.json(&json!({
        "dataset": dataset.name(), "summary": summary, "out": shown(&args.config.out), "embeddings": shown(&args.config.embeddings),
        "seconds": seconds, "peak_rss_mb": peak_rss_mb(),
    }));
    Ok(())
}

/// Checks that the outputs can be written, before the work is done.
fn check_outputs(args: &Args, dataset: &Dataset) -> anyhow::Result<()> {
    let config = &args.config;
    let ids_beside = |out: &Path| ids_beside(out, dataset.manifest().string_ids);
    // In the order in which they appear.
    let files = [&config.out, &config.embeddings].into_iter().flatten();
    let files = files.flat_map(|out| [Some(out.clone()), ids_beside(out)]).flatten();
    recover(&files.map(Target::file).collect::<Vec<_>>())?;
    let mut outputs =
        Outputs::new(config.force).reads("DATASET", &args.dataset).reads("--checkpoint", &config.checkpoint);
    for (option, out) in [("--out", &config.out), ("--embeddings", &config.embeddings)] {
        let Some(out) = out else { continue };
        outputs.file(option, out, None)?;
        if let Some(ids) = ids_beside(out) {
            outputs.file(option, &ids, None)?;
        }
    }
    config.scratch.iter().try_for_each(|scratch| outputs.folder("--scratch", scratch))
}
