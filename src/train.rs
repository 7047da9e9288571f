//! `gsplit train`: a model from a dataset and its partition map.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use gsplit_store::{Dataset, Presample};
use gsplit_trainer::{
    CacheSummary, Config, EpochReport, Error, Hooks, Parallelism, Summary, foreign_events,
    is_json_log, left_behind, most_values_held, train,
};
use serde_json::json;

use crate::plan;
use gsplit::describe::{number_of, score};
use gsplit::outputs::Outputs;
use gsplit::ui::{Ui, bytes, give_up, peak_rss_mb, stop_gently, usage};
use processes::Processes;

pub use merge::{File, as_words, is_on_line, on_line, options_of, to_toml};
pub use open::{HELP_ALL, brief, grouped, leaves_layers_to_fanouts};

mod merge;
mod open;
mod processes;
mod scores;

/// Train a graph neural network on a dataset
///
/// Prints one line per epoch: loss, accuracy (* if valid is the best so far), time by phase
/// (sampling, loading, computing, exchanging), and the edges computed, feature rows loaded and rows
/// exchanged by all ranks together. If feature rows are read from disk, also the number of rows
/// read, their megabytes, and the number of rows found in memory; a line before gives the expected
/// numbers. The loss is the mean over the global mini-batch for every parallelism: single, data,
/// owned and split print the same losses up to rounding.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit train products --parallelism split --ranks 4 --model sage --hidden 256 \\
      --fanouts 15,10,5 --epochs 10 --log runs/split.jsonl --checkpoint runs/split

  gsplit train --schedule cosine --optimizer adamw --print-config > run.toml
  gsplit train products --config run.toml --lr 0.002

  gsplit train products --task link --scorer mlp --negatives 4 --metric hits@10 --parallelism data --ranks 2

Valid and test are scored as OGB does: accuracy, ROC-AUC for two classes, micro-F1 where a vertex can have several
(--metric chooses); of numbers by the root mean squared error, in their unit. With --task link the links of the dataset's own split are learnt, valid and test scored against its
negatives (OGB's ogbl-*). Without one the edges of a symmetric graph are, a share of them held out by a random
choice that depends on --edge-seed and the two ends alone; each of those is ranked among --eval-negatives fixed pairs.

Ctrl-C loses the epoch under way and nothing else: the same command with --resume goes on after the last
finished epoch, with exactly the losses of a run that was never interrupted (on the same number of threads).

A deep model in little memory:
  gsplit train products --parallelism split --ranks 4 --model resgcn --layers 28 --hidden 64 --norm batch \\
      --fanouts $(yes 2 | head -28 | paste -sd,) --checkpoint-activations")]
pub struct Args {
    /// Dataset directory
    #[arg(required_unless_present = "print_config")]
    dataset: Option<PathBuf>,
    /// Read options from this TOML file; the command line takes precedence (--print-config prints
    /// an example)
    #[arg(long = "config", value_name = "FILE.toml")]
    file: Option<PathBuf>,
    /// Print the options in force as a file for --config, with unset options as comments, and do
    /// nothing
    #[arg(long)]
    print_config: bool,
    #[arg(skip)]
    from_file: Option<File>,
    #[command(flatten)]
    pub config: Config,
    /// Replace the files at --log and --tensorboard even if gsplit did not make them; its own logs
    /// are replaced without this
    #[arg(long)]
    force: bool,
}

impl Args {
    /// The configuration, checked for contradictions.
    pub fn checked(&self) -> anyhow::Result<Config> {
        self.config.check().map_err(|error| in_place(error, self.from_file.as_ref()))?;
        Ok(self.config.clone())
    }
}

/// Trains, and prints one line per epoch.
pub fn run(mut args: Args, ui: &Ui) -> anyhow::Result<()> {
    let joined = match args.print_config {
        true => None,
        false => Processes::join(&args.config)?,
    };
    let Some(processes) = joined else { return run_rank(args, None, ui) };
    args.config.system.ranks.get_or_insert(processes.size);
    let muted = ui.muted();
    let outcome = run_rank(args, Some(&processes), if processes.leads() { ui } else { &muted });
    outcome.inspect_err(|error| processes.process.fail(&format!("{error:#}")))?;
    processes.process.finish();
    Ok(())
}

/// Trains as one of `processes`, or as all ranks.
fn run_rank(mut args: Args, processes: Option<&Processes>, ui: &Ui) -> anyhow::Result<()> {
    let in_place = |error| in_place(error, args.from_file.as_ref());
    // Check before the dataset is opened: a mistyped option should not wait for a large graph.
    args.config.check().map_err(in_place)?;
    args.config.system.threads = ui.threads();
    let config = &args.config;
    if args.print_config {
        to_toml(config, "", &[]).lines().for_each(|line| ui.say(line));
        ui.json(&json!({ "config": config.effective() }));
        return Ok(());
    }
    let dataset = args.dataset.as_deref().context("a dataset is needed")?;
    if processes.is_none_or(Processes::leads) {
        check_outputs(&args, dataset)?;
    }
    let dataset = Dataset::open(dataset)?;
    // Only caches and rows kept in memory use it, which not every run has; a mistyped key is an
    // error all the same.
    config.system.presample.as_deref().map(|key| Presample::open(&dataset, key)).transpose()?;
    let config = &config.of_labels(&dataset, ui).map_err(in_place)?;
    ui.table(format_args!(
        "{}: {} vertices, {} edges; {:?} with {} layers of {} on {}{}, {}",
        dataset.name(),
        dataset.num_vertices(),
        dataset.topology().num_edges(),
        config.model.kind,
        config.model.layers,
        config.model.hidden,
        number_of(config.num_ranks() as u64, "rank", "ranks"),
        if config.system.groups > 1 {
            format!(" in {} groups", config.system.groups)
        } else {
            String::new()
        },
        config.system.parallelism,
    ));
    let (folder, resume) = (config.run.checkpoint.clone(), config.run.resume);
    let stop = stop_gently(move || left_behind(folder.as_deref(), resume));
    let hooks = Hooks {
        process: processes.map(|processes| processes.process.clone()),
        abandon: Some(|error| {
            give_up(&format!("{error}; a rank that did not return was left behind"))
        }),
        stop: Some(stop),
        exact_phases: config.system.prefetch == 0,
        baseline: Some(Arc::new(OnceLock::new())),
        ..Hooks::default()
    };
    let chosen = match config.system.parallelism {
        Parallelism::Auto => Some(plan::choose(&dataset, config, &hooks, ui)?),
        _ => None,
    };
    let config = chosen.as_ref().map_or(config, |chosen| &chosen.config);
    // Print the header when nothing can fail any more before the first epoch.
    let shown = OnceLock::new();
    let show = |epochs: &[EpochReport]| {
        let Some(epoch) = epochs.last() else { return };
        let cells = row(epoch);
        if shown.set(()).is_ok() {
            ui.table(line(HEADS.split(", ").take(cells.len()).map(String::from)));
            let baseline = hooks.baseline.as_ref().and_then(|told| told.get());
            baseline.into_iter().for_each(|baseline| ui.table(scores::row(baseline)));
        }
        let is_best = EpochReport::best(epochs).is_some_and(|best| best.epoch == epoch.epoch);
        let mark = if is_best { " *" } else { "" };
        ui.table(format_args!("{}{mark}", line(cells.into_iter())));
    };
    let summary = train(&dataset, config, &hooks, ui, &show).map_err(in_place)?;
    if let Some(line) = ending(&summary, config) {
        ui.say(line);
    }
    ui.say(format_args!("valid and test: {}", summary.metric));
    if let Some(cache) = &summary.cache {
        ui.say(found_where(&summary.epochs, cache));
    }
    if let Some(best) = &summary.best {
        ui.say(scores::best(best, summary.baseline.as_ref()));
    }
    if let Some(found) = &summary.scores {
        let names = dataset.manifest().class_names.as_deref();
        scores::table(found, names).iter().for_each(|line| ui.table(line));
    }
    for log in [&config.run.log, &config.run.tensorboard].into_iter().flatten() {
        ui.say(format_args!("log: {}", log.display()));
    }
    if let Some(folder) = &config.run.checkpoint {
        ui.say(format_args!("checkpoint: {}", folder.display()));
    }
    let mut said = json!({
        "dataset": dataset.name(), "config": config.of_model(), "summary": summary, "peak_rss_mb": peak_rss_mb(),
        "matrices_mb": (4 * most_values_held()) as f64 / 1e6,
    });
    if let Some(chosen) = &chosen {
        said["auto"] = json!(chosen.tried);
    }
    ui.json(&said);
    Ok(())
}

/// Checks that a run can write its outputs, before the first epoch.
fn check_outputs(args: &Args, dataset: &Path) -> anyhow::Result<()> {
    let run = &args.config.run;
    let mut outputs = Outputs::new(args.force).reads("DATASET", dataset);
    if let Some(file) = &args.file {
        outputs = outputs.reads("--config", file);
    }
    if let Some(folder) = &run.checkpoint {
        outputs.folder("--checkpoint", folder)?;
        ["lock", "best"]
            .iter()
            .try_for_each(|own| outputs.artifact("--checkpoint", &folder.join(own)))?;
    }
    if let Some(folder) = &run.tensorboard {
        outputs.folder("--tensorboard", folder)?;
        if let Some(events) =
            [folder.clone(), folder.join("steps")].iter().find_map(|folder| foreign_events(folder))
            && !args.force
        {
            let (folder, events) = (folder.display(), events.display());
            anyhow::bail!(
                "--tensorboard {folder}: {events} is not of gsplit's, and a run would void it: \
                 name another folder, or pass --force"
            );
        }
    }
    run.log.iter().try_for_each(|log| outputs.file("--log", log, Some(is_json_log)))
}

pub fn as_usage(error: Error) -> anyhow::Error {
    in_place(error, None)
}

/// Adds to `error` about an option its place in `file`, if that has the option, and makes it a
/// usage error.
fn in_place(error: Error, file: Option<&File>) -> anyhow::Error {
    match (error, file) {
        (Error::Option(message), Some(file)) => usage(file.place(message)),
        (Error::Option(message), None) => usage(message),
        (other, _) => other.into(),
    }
}

/// The reason why there were fewer epochs than requested, if any.
fn ending(summary: &Summary, config: &Config) -> Option<String> {
    let (done, all) = (summary.resumed_after as usize + summary.epochs.len(), config.run.epochs);
    match (summary.stopped_early, summary.epochs.is_empty()) {
        (true, none) => {
            let patience = config.run.patience.unwrap_or_default();
            let began = if none { "nothing to do" } else { "stopped" };
            Some(format!(
                "{began}: no better valid metric in {patience} evaluations up to epoch {done} of \
                 {all}"
            ))
        }
        (false, true) => Some(format!(
            "nothing to do: the checkpoint is after epoch {done}, --epochs is {all}: raise it to \
             go on"
        )),
        (false, false) => None,
    }
}

/// A line about the memory in which `epochs` found the feature rows that they loaded.
fn found_where(epochs: &[EpochReport], cache: &CacheSummary) -> String {
    let sum = |of: fn(&EpochReport) -> u64| epochs.iter().map(of).sum::<u64>();
    let (loaded, own, peers) =
        (sum(|e| e.work.rows_loaded), sum(|e| e.work.rows_cached), sum(|e| e.work.rows_from_peers));
    let host = loaded.saturating_sub(own + peers);
    let found = |rows: u64| {
        format!(
            "{:.1} % ({})",
            100.0 * rows as f64 / loaded.max(1) as f64,
            bytes(rows.saturating_mul(cache.row_bytes))
        )
    };
    format!(
        "placement {}: {} of the rows loaded {} in the GPU's own memory, {} in other ranks' GPUs, \
         {} in host memory",
        cache.placement,
        found(own),
        if cache.counted { "would have been" } else { "were" },
        found(peers),
        found(host)
    )
}

/// Heads and widths of the columns of an epoch; the last three are there if rows came from disk.
const HEADS: &str = "epoch, loss, train, valid, test, sample, load, compute, exchange, seconds, edges, rows loaded, exchanged, from disk, MB read, kept";
const WIDTHS: [usize; 16] = [5, 8, 7, 7, 7, 8, 7, 7, 8, 8, 13, 11, 11, 11, 9, 11];

/// The first columns of an epoch with these `cells`, as a line.
fn line(cells: impl Iterator<Item = String>) -> String {
    let cells = cells.zip(WIDTHS).map(|(cell, width)| format!("{cell:>width$}"));
    cells.collect::<Vec<_>>().join(" ")
}

/// Whether feature rows came from disk, or would have if they were not kept.
fn reads_disk(report: &EpochReport) -> bool {
    report.work.rows_from_disk > 0 || report.work.rows_kept > 0
}

/// The cells of an epoch.
fn row(report: &EpochReport) -> Vec<String> {
    let (work, t) = (&report.work, &report.timings);
    let mut cells = vec![report.epoch.to_string(), format!("{:.4}", report.loss)];
    cells.extend([report.train, report.valid, report.test].map(score));
    let seconds = [t.sample_s, t.load_s, t.compute_s, t.exchange_s, report.seconds];
    cells.extend(seconds.map(|seconds| format!("{seconds:.2}")));
    let mut counts = vec![work.edges, work.rows_loaded, work.rows_exchanged];
    if reads_disk(report) {
        counts.extend([work.rows_from_disk, work.bytes_from_disk / 1_000_000, work.rows_kept]);
    }
    cells.extend(counts.iter().map(u64::to_string));
    cells
}
