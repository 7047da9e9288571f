//! `gsplit train`: a model from a dataset and its partition map.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use clap::parser::ValueSource;
use clap::{ArgMatches, ValueEnum};
use gsplit_preprocess::memory::Memory;
use gsplit_store::{Dataset, Presample, Progress};
use gsplit_trainer::operator::{Engine, Products};
use gsplit_trainer::{
    CacheSummary, Device, Dtype, EpochReport, Error, FeatureStorage, GpuList, Parallelism, RowPlacement, RunOptions,
    Summary, TopologyStorage, TrainConfig, foreign_events, is_json_log, left_behind, most_values_held, train,
};
use serde_json::{Map, Value, json};

use crate::plan;
use crate::system::System;
use cache_room::CacheRoom;
use config_file::to_toml;
use gsplit::describe::number_of;
use gsplit::outputs::Outputs;
use gsplit::ui::{STEP_OF_RUN, Ui, as_text, bytes, give_up, peak_rss_mb, stop_gently, usage};
use processes::Processes;

pub use config_file::{ConfigFile, OptionKeys, words_to_toml};
pub use open::{HELP_ALL, brief, grouped, leaves_layers_to_fanouts};

mod cache_room;
mod config_file;
mod open;
mod processes;
mod scores;

/// Train a graph neural network on a dataset
///
/// Prints one line per epoch: loss, accuracy (* if valid is the best so far), time by phase (sampling, loading, computing, exchanging),
/// and the edges computed, feature rows loaded and rows exchanged by all ranks together. If feature rows are read from disk, also the
/// number of rows read, their megabytes, and the number of rows found in memory; a line before gives the expected numbers. The loss is
/// the mean over the global mini-batch for every parallelism: single, data, owned and split print the same losses up to rounding.
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
    /// Read options from this TOML file; the command line takes precedence (--print-config prints an example)
    #[arg(long = "config", value_name = "FILE.toml")]
    file: Option<PathBuf>,
    /// Print the options in force as a file for --config, with unset options as comments, and do nothing
    #[arg(long)]
    print_config: bool,
    /// Train like another system: sets parallelism, split layers, the partition map's usual name and, with --device cuda, the
    /// placement of rows; for song-jiang also cache and draws. The command line and the file win (--print-config shows the result)
    #[arg(long, value_enum, value_name = "SYSTEM")]
    preset: Option<System>,
    #[arg(skip)]
    from_file: Option<ConfigFile>,
    #[command(flatten)]
    config: TrainConfig,
    /// Write a checkpoint after every epoch into this folder; the last two and the best are kept
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Continue after the newest checkpoint in --checkpoint DIR, or start from the beginning if there is none
    #[arg(long)]
    resume: bool,
    /// Start from the parameters of the model in this checkpoint, or of the best epoch in the folder of a run, instead
    /// of random ones. With --resume they are only used until there is a checkpoint
    #[arg(long, value_name = "DIR")]
    init: Option<PathBuf>,
    #[command(flatten)]
    processes: processes::Args,
    /// With --device cuda, the GPU of each rank, e.g. 0,1,2,3; one named more than once is shared [default: 0,1,...]
    #[arg(long, value_name = "LIST")]
    pub gpus: Option<GpuList>,
    /// The feature rows that GPUs keep in their memory: none (host), the hottest on every GPU (replicated), the hottest
    /// of its own part on each (partitioned), the hottest once over all GPUs of a host that read each other's memory
    /// (peer), or a placement stored by `gsplit place` (KEY). Rows are hot if a presample loads them often, or, without
    /// one, if many edges lead from them. With --device cpu nothing is kept: hits are only counted, which needs --cache
    /// SIZE [default with --device cuda or --cache: partitioned for split, else replicated]
    #[arg(long, value_name = "host|replicated|partitioned|peer|KEY")]
    placement: Option<RowPlacement>,
    /// GPU memory of each rank for feature rows: 4GiB, 20% of all rows, or, with --device cuda, auto: the memory that
    /// the graph and a few trial mini-batches leave, divided between the ranks of a GPU. With --device cpu it is only
    /// used for counting [default: auto]
    #[arg(long, value_name = "SIZE|auto")]
    cache: Option<CacheRoom>,
    /// Presample that ranks feature rows by loads, for caches and for rows that stay in memory if not all fit [default:
    /// the one whose options are most like this run's]
    #[arg(long, value_name = "KEY", value_parser = gsplit_store::stored_key)]
    presample: Option<String>,
    /// With --device cuda, the place of the graph and the device that samples mini-batches; the samples are the same.
    /// A few trial mini-batches show how much of it fits on GPUs
    #[arg(long, value_enum, value_name = "PLACE", default_value = "auto")]
    topology: TopologyStorage,
    /// Mini-batches that are sampled and loaded while another is computed; any number gives the same losses. With 0,
    /// GPUs finish one phase before the next, and the seconds of each phase do not overlap
    #[arg(long, value_name = "N", default_value_t = 1)]
    prefetch: usize,
    /// Threads of each rank that only sample and load these mini-batches; the others of --threads compute. Use the
    /// share of the threads that equals the share of sampling and loading in an epoch's seconds; any number gives the
    /// same losses [default: all threads do both]
    #[arg(long, value_name = "N")]
    sample_threads: Option<usize>,
    /// Engine for dense products; losses are the same up to rounding [default: with --device cpu the fastest on this machine,
    /// timed once: gsplit doctor; with --device cuda torch's in f32]
    #[arg(long, value_enum, value_name = "ENGINE")]
    products: Option<Products>,
    /// Storage that feature rows are read from
    #[arg(long, value_enum, value_name = "PLACE", default_value = "auto")]
    load_features: FeatureStorage,
    /// Memory limit of each process, the mapped graph included: 4GiB, 50% of the machine's. Feature rows that do not fit
    /// are read from disk; the hottest (by a presample) stay in the memory that the graph, mini-batches and the program
    /// leave, once for all processes of a host [default: the free memory of the host less a fifth, for all its processes]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Memory>,
    /// End each epoch after N mini-batches, to see how fast a run would be; only logs are kept (not for cooperative)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    trial: Option<u32>,
    /// Write one JSON object per epoch into this file
    #[arg(long, value_name = "FILE.jsonl")]
    log: Option<PathBuf>,
    /// Write an event file for TensorBoard into this folder
    #[arg(long, value_name = "DIR")]
    tensorboard: Option<PathBuf>,
    /// Also write a record into the logs after every N mini-batches; 0 for never. Losses are the same with it
    #[arg(long, value_name = "N", default_value_t = 0)]
    log_every: u32,
    /// Replace the files at --log and --tensorboard even if gsplit did not make them; its own logs are replaced without this
    #[arg(long)]
    force: bool,
}

impl Args {
    /// Reads the file of --config, if given, for the options that `given` (the matches of `command`, a built `gsplit
    /// train`) does not set. Returns its options as arguments.
    pub fn read_file(&self, command: &clap::Command, given: &ArgMatches) -> anyhow::Result<Option<ConfigFile>> {
        let Some(path) = &self.file else { return Ok(None) };
        let is_given = |_: &str, arg: &clap::Arg| is_on_line(given, arg);
        ConfigFile::read(path, &OptionKeys::new(command, &self.config), is_given).map(Some)
    }

    /// The options in force as a file for `gsplit run --config`, except the options `untold`.
    ///
    /// # Errors
    /// A usage error, if a path is not UTF-8.
    pub fn in_run_file(&self, untold: &[&str]) -> anyhow::Result<String> {
        Ok(to_toml(&self.config, &self.around(None)?, "train", untold))
    }

    /// The configuration, checked for contradictions.
    ///
    /// # Errors
    /// A usage error that names the contradicting options.
    pub fn checked(&self) -> anyhow::Result<TrainConfig> {
        self.config.check().map_err(|error| in_place(error, self.from_file.as_ref()))?;
        Ok(self.config.clone())
    }

    /// Stores where options come from, for error messages about them.
    pub fn came_from(&mut self, file: ConfigFile) {
        self.from_file = Some(file);
    }

    /// Threads that do not compute.
    pub fn sampling_threads(&self) -> usize {
        self.sample_threads.unwrap_or(0).saturating_mul(self.config.num_ranks())
    }

    /// The options given in addition to the configuration, as in a file.
    ///
    /// # Errors
    /// A usage error, if a path is not UTF-8.
    fn around(&self, threads: Option<usize>) -> anyhow::Result<Map<String, Value>> {
        let mut around = Map::new();
        for (name, path) in [
            ("checkpoint", self.checkpoint.as_deref()),
            ("init", self.init.as_deref()),
            ("log", self.log.as_deref()),
            ("tensorboard", self.tensorboard.as_deref()),
        ] {
            let flag = || format!("--{}", name.replace('_', "-"));
            around.insert(name.to_string(), json!(path.map(|path| as_text(&flag(), path)).transpose()?));
        }
        around.insert("resume".to_string(), self.resume.then_some(true).into());
        around.insert("timeout".to_string(), self.processes.timeout_s().into());
        around.insert("rendezvous".to_string(), self.processes.rendezvous().into());
        around.insert("threads".to_string(), threads.into());
        around.insert("gpus".to_string(), self.gpus.as_ref().map(GpuList::to_string).into());
        around.insert("placement".to_string(), self.placement.as_ref().map(RowPlacement::to_string).into());
        around.insert("cache".to_string(), self.cache.map(|cache| cache.to_string()).into());
        around.insert("presample".to_string(), json!(self.presample));
        around.insert("prefetch".to_string(), self.prefetch.into());
        around.insert("sample_threads".to_string(), self.sample_threads.into());
        around.insert("log_every".to_string(), self.log_every.into());
        let place = self.load_features.to_possible_value().map(|value| value.get_name().to_string());
        around.insert("load_features".to_string(), place.into());
        around.insert("memory".to_string(), self.memory.map(|memory| memory.to_string()).into());
        let products = self.products.and_then(|products| products.to_possible_value());
        around.insert("products".to_string(), json!(products.map(|value| value.get_name().to_string())));
        let topology = self.topology.to_possible_value().map(|value| value.get_name().to_string());
        around.insert("topology".to_string(), topology.into());
        Ok(around)
    }
}

/// Trains, and prints one line per epoch.
pub fn run(mut args: Args, ui: &Ui) -> anyhow::Result<()> {
    let joined = match args.print_config {
        true => None,
        false => Processes::join(&args.processes, &args.config, args.gpus.as_ref())?,
    };
    let Some(processes) = joined else { return run_rank(args, None, ui) };
    args.config.ranks = args.config.ranks.or(Some(processes.size));
    let muted = ui.muted();
    let outcome = run_rank(args, Some(&processes), if processes.leads() { ui } else { &muted });
    outcome.inspect_err(|error| processes.process.fail(&format!("{error:#}")))?;
    processes.part();
    Ok(())
}

/// Trains as one of `processes`, or as all ranks.
fn run_rank(mut args: Args, processes: Option<&Processes>, ui: &Ui) -> anyhow::Result<()> {
    let in_place = |error| in_place(error, args.from_file.as_ref());
    // Check before the dataset is opened: a mistyped option should not wait for a large graph.
    args.config.check().map_err(in_place)?;
    if let Some(CacheRoom::Auto) = args.cache {
        let placed = cache_room::placement(&args.config, args.placement.as_ref());
        let placed = placed.map_err(in_place)?;
        if !args.print_config {
            args.placement = Some(placed);
        }
    }
    let config = &args.config;
    if args.print_config {
        to_toml(config, &args.around(ui.threads())?, "", &[]).lines().for_each(|line| ui.say(line));
        ui.json(&json!({ "config": config.effective() }));
        return Ok(());
    }
    if args.trial.is_some() && args.checkpoint.is_some() {
        return Err(usage("--trial keeps nothing: leave it out, or --checkpoint"));
    }
    if args.trial.is_some() && config.parallelism.cooperates() {
        return Err(usage(
            "--trial: --parallelism cooperative makes all its mini-batches before the first: leave it out",
        ));
    }
    let dataset = args.dataset.as_deref().context("a dataset is needed")?;
    if processes.is_none_or(Processes::leads) {
        check_outputs(&args, dataset)?;
    }
    let dataset = Dataset::open(dataset)?;
    // Only caches and rows kept in memory use it, which not every run has; a mistyped key is an error all the same.
    args.presample.as_deref().map(|key| Presample::open(&dataset, key)).transpose()?;
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
        if config.groups > 1 { format!(" in {} groups", config.groups) } else { String::new() },
        config.parallelism,
    ));
    let size = args.cache.and_then(CacheRoom::size);
    let cache =
        size.map(|size| dataset.features().map(|features| size.bytes(features.num_bytes() as u64))).transpose()?;
    let (folder, resume) = (args.checkpoint.clone(), args.resume);
    let stop = stop_gently(move || left_behind(folder.as_deref(), resume));
    let options = RunOptions {
        checkpoint: args.checkpoint,
        resume: args.resume,
        init: args.init,
        log: args.log,
        tensorboard: args.tensorboard,
        log_every: args.log_every,
        threads: ui.threads(),
        products: args.products,
        features: args.load_features,
        memory: args.memory.map(Memory::total),
        trial: args.trial.map(|batches| batches as usize),
        prefetch: args.prefetch,
        exact_phases: args.prefetch == 0,
        sample_threads: args.sample_threads,
        gpus: args.gpus,
        placement: args.placement,
        cache,
        presample: args.presample,
        topology: args.topology,
        process: processes.map(|processes| processes.process.clone()),
        timeout: Some(args.processes.timeout()),
        abandon: Some(|error| give_up(&format!("{error}; a rank that did not return was left behind"))),
        stop: Some(stop),
        baseline: Some(Arc::new(OnceLock::new())),
        ..RunOptions::default()
    };
    let chosen = match config.parallelism {
        Parallelism::Auto => Some(plan::choose(&dataset, config, &options, ui)?),
        _ => None,
    };
    let config = chosen.as_ref().map_or(config, |chosen| &chosen.config);
    let presample = options.presample.clone().or_else(|| chosen.as_ref()?.presample.clone());
    let options = RunOptions { presample, ..options };
    if config.device == Device::Cpu
        && config.model.dtype == Dtype::Bf16
        && options.products.is_none()
        && !Engine::of(Dtype::Bf16).by_instructions()
    {
        ui.note("--dtype bf16 saves no time on this processor: products are those of f32, of rounded factors (gsplit doctor)");
    }
    // Print the header when nothing can fail any more before the first epoch.
    let shown = OnceLock::new();
    let show = |epochs: &[EpochReport]| {
        let Some(epoch) = epochs.last() else { return };
        if shown.set(()).is_ok() {
            ui.table(format_args!("{}{}", header(), if reads_disk(epoch) { disk_header() } else { String::new() }));
            let baseline = options.baseline.as_ref().and_then(|told| told.get());
            baseline.into_iter().for_each(|baseline| ui.table(scores::row(baseline)));
        }
        let is_best = EpochReport::best(epochs).is_some_and(|best| best.epoch == epoch.epoch);
        let of_disk = if reads_disk(epoch) { disk_row(epoch) } else { String::new() };
        ui.table(format_args!("{}{of_disk}{}", row(epoch), if is_best { " *" } else { "" }));
    };
    let summary = train(&dataset, config, &options, ui, &show).map_err(in_place)?;
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
    for log in [&options.log, &options.tensorboard].into_iter().flatten() {
        ui.say(format_args!("log: {}", log.display()));
    }
    if let Some(folder) = &options.checkpoint {
        ui.say(format_args!("checkpoint: {}", folder.display()));
        older_results(folder, summary.epochs.len()).iter().for_each(|note| ui.note(note));
    }
    let mut said = json!({
        "dataset": dataset.name(), "config": config, "summary": summary, "peak_rss_mb": peak_rss_mb(),
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
    let mut outputs = Outputs::new(args.force).reads("DATASET", dataset);
    if let Some(file) = &args.file {
        outputs = outputs.reads("--config", file);
    }
    if let Some(folder) = &args.checkpoint {
        outputs.folder("--checkpoint", folder)?;
        ["lock", "best"].iter().try_for_each(|own| outputs.artifact("--checkpoint", &folder.join(own)))?;
    }
    if let Some(folder) = &args.tensorboard {
        outputs.folder("--tensorboard", folder)?;
        if let Some(events) = [folder.clone(), folder.join("steps")].iter().find_map(|folder| foreign_events(folder))
            && !args.force
        {
            let (folder, events) = (folder.display(), events.display());
            anyhow::bail!(
                "--tensorboard {folder}: {events} is not of gsplit's, and a run would void it: name another folder, or pass --force"
            );
        }
    }
    args.log.iter().try_for_each(|log| outputs.file("--log", log, Some(is_json_log)))
}

pub fn as_usage(error: Error) -> anyhow::Error {
    in_place(error, None)
}

/// Adds to `error` about an option its place in `file`, if that has the option, and makes it a usage error.
fn in_place(error: Error, file: Option<&ConfigFile>) -> anyhow::Error {
    match (error, file) {
        (Error::Option(message), Some(file)) => usage(file.place(message)),
        (Error::Option(message), None) => usage(message),
        (other, _) => other.into(),
    }
}

/// Whether `arg` in the matches `given` is from the command line.
pub fn is_on_line(given: &ArgMatches, arg: &clap::Arg) -> bool {
    given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
}

/// A note on the results of a run, if `gsplit train` has since trained its model in `checkpoint` for `epochs` more.
fn older_results(checkpoint: &Path, epochs: usize) -> Option<String> {
    let run = checkpoint.parent().unwrap_or(Path::new(""));
    let is_of_run = run.join("run.json").is_file() && std::env::var_os(STEP_OF_RUN).is_none() && epochs > 0;
    is_of_run.then(|| {
        let report = run.join("report.html");
        format!(
            "note: {} and the predictions next to it are of the model before: gsplit run or gsplit infer and gsplit report make them again",
            report.display()
        )
    })
}

/// The reason why there were fewer epochs than requested, if any.
fn ending(summary: &Summary, config: &TrainConfig) -> Option<String> {
    let (done, all) = (summary.resumed_after as usize + summary.epochs.len(), config.epochs);
    match (summary.stopped_early, summary.epochs.is_empty()) {
        (true, none) => {
            let patience = config.patience.unwrap_or_default();
            let began = if none { "nothing to do" } else { "stopped" };
            Some(format!("{began}: no better valid metric in {patience} evaluations up to epoch {done} of {all}"))
        }
        (false, true) => {
            Some(format!("nothing to do: the checkpoint is after epoch {done}, --epochs is {all}: raise it to go on"))
        }
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
        format!("{:.1} % ({})", 100.0 * rows as f64 / loaded.max(1) as f64, bytes(rows.saturating_mul(cache.row_bytes)))
    };
    format!(
        "placement {}: {} of the rows loaded {} in the GPU's own memory, {} in other ranks' GPUs, {} in host memory",
        cache.placement,
        found(own),
        if cache.counted { "would have been" } else { "were" },
        found(peers),
        found(host)
    )
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

/// Whether feature rows came from disk, or would have if they were not kept.
fn reads_disk(report: &EpochReport) -> bool {
    report.work.rows_from_disk > 0 || report.work.rows_kept > 0
}

fn disk_header() -> String {
    format!(" {:>11} {:>9} {:>11}", "from disk", "MB read", "kept")
}

fn disk_row(report: &EpochReport) -> String {
    let work = &report.work;
    format!(" {:>11} {:>9} {:>11}", work.rows_from_disk, work.bytes_from_disk / 1_000_000, work.rows_kept)
}

fn row(report: &EpochReport) -> String {
    let share = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.4}"));
    let t = &report.timings;
    format!(
        "{:>5} {:>8.4} {:>7} {:>7} {:>7}  {:>7.2} {:>7.2} {:>7.2} {:>8.2} {:>8.2}  {:>12} {:>11} {:>11}",
        report.epoch,
        report.loss,
        share(report.train),
        share(report.valid),
        share(report.test),
        t.sample_s,
        t.load_s,
        t.compute_s,
        t.exchange_s,
        report.seconds,
        report.work.edges,
        report.work.rows_loaded,
        report.work.rows_exchanged,
    )
}
