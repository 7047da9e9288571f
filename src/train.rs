//! `gsplit train`: a model from a dataset and its partition map.

use std::path::PathBuf;

use gsplit_store::Dataset;
use gsplit_trainer::{EpochReport, Error, RunOptions, TrainConfig, train};
use serde_json::json;

use crate::environment;
use gsplit::ui::{Ui, stop_gently, usage};

/// Train a graph neural network on a dataset
///
/// One line an epoch tells loss, accuracy, where the time went (sampling, loading, computing, exchanging), and the
/// edges computed, feature rows loaded and rows exchanged by all ranks together. The loss is the mean over the global
/// mini-batch whatever the parallelism: single, data and split print the same losses up to rounding.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit train products --parallelism split --ranks 4 --model sage --hidden 256 \\
      --fanouts 15,10,5 --epochs 10 --log runs/split.jsonl --checkpoint runs/split

  gsplit train products --task link --negatives 4 --metric hits@10 --parallelism data --ranks 2

Valid and test are scored as OGB does: accuracy, ROC-AUC for two classes, micro-F1 where a vertex can have several
(--metric chooses). With --task link the edges of a symmetric graph are learnt, a share of them held out by a random
choice that depends on --edge-seed and the two ends alone; each of those is ranked among --eval-negatives fixed pairs.

Ctrl-C loses the epoch under way and nothing else: the same command with --resume goes on after the last
finished epoch, with exactly the losses of a run that was never interrupted (on the same number of threads).")]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
    #[command(flatten)]
    config: TrainConfig,
    /// Write a checkpoint after every epoch into this folder; the last two are kept
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Go on after the newest checkpoint in --checkpoint DIR
    #[arg(long, requires = "checkpoint")]
    resume: bool,
    /// Write one JSON object an epoch into this file
    #[arg(long, value_name = "FILE.jsonl")]
    log: Option<PathBuf>,
}

/// Trains, and prints one line an epoch.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    environment::set(&[environment::IDLE_THREADS_SLEEP])?;
    // Checked before the dataset is opened: a mistyped option should not wait for a large graph.
    args.config.check().map_err(as_usage)?;
    let dataset = Dataset::open(&args.dataset)?;
    let config = &args.config;
    ui.say(format_args!(
        "{}: {} vertices, {} edges; {:?} with {} layers of {} on {} ranks, {}",
        dataset.name(),
        dataset.num_vertices(),
        dataset.topology().num_edges(),
        config.model.kind,
        config.model.layers,
        config.model.hidden,
        config.num_ranks(),
        config.parallelism,
    ));
    ui.say(header());
    let options = RunOptions {
        checkpoint: args.checkpoint,
        resume: args.resume,
        log: args.log,
        threads: ui.threads(),
        stop: Some(stop_gently()),
    };
    let summary = train(&dataset, config, &options, ui, &|epoch| ui.say(row(epoch))).map_err(as_usage)?;
    if summary.epochs.is_empty() {
        ui.say(format_args!(
            "nothing to do: the checkpoint is after epoch {} of {}; raise --epochs to go on",
            summary.resumed_after, config.epochs
        ));
    }
    ui.say(format_args!("valid and test: {}", summary.metric));
    if let Some(log) = &options.log {
        ui.say(format_args!("log: {}", log.display()));
    }
    if let Some(folder) = &options.checkpoint {
        ui.say(format_args!("checkpoint: {}", folder.display()));
    }
    ui.json(&json!({ "dataset": dataset.name(), "config": config, "summary": summary }));
    Ok(())
}

pub fn as_usage(error: Error) -> anyhow::Error {
    match error {
        Error::Option(message) => usage(message),
        other => other.into(),
    }
}

fn header() -> String {
    format!(
        "{:>5} {:>8} {:>7} {:>7} {:>7}  {:>7} {:>7} {:>7} {:>8} {:>8}  {:>12} {:>11} {:>11}",
        "epoch",
        "loss",
        "train",
        "valid",
        "test",
        "sample",
        "load",
        "compute",
        "exchange",
        "seconds",
        "edges",
        "rows loaded",
        "exchanged"
    )
}

fn row(report: &EpochReport) -> String {
    let share = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.4}"));
    let t = &report.timings;
    format!(
        "{:>5} {:>8.4} {:>7} {:>7} {:>7}  {:>7.2} {:>7.2} {:>7.2} {:>8.2} {:>8.2}  {:>12} {:>11} {:>11}",
        report.epoch,
        report.loss,
        share(Some(report.train)),
        share(report.valid),
        share(report.test),
        t.sample_s,
        t.load_s,
        t.compute_s,
        t.exchange_s,
        report.seconds,
        report.edges,
        report.rows_loaded,
        report.rows_exchanged,
    )
}
