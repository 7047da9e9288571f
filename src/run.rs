//! `gsplit run`: every step from a raw graph to predictions and a report.
//!
//! ```text
//! options ─▶ convert ─▶ presample ─▶ partition ─▶ train ─▶ infer ─▶ report
//! ```
//! A step is a command of gsplit's, run as a process of its own: whoever wants more says it in the step's own words. What a step
//! finished before it takes over itself, as it does for everybody.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime};

use anyhow::{Context, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args as _, FromArgMatches};
use gsplit::outputs::Outputs;
use gsplit::presample;
use gsplit::ui::{Ui, as_text, usage};
use gsplit_preprocess::convert::ConvertOptions;
use gsplit_preprocess::read::options::Answer;
use gsplit_store::staging::{Staging, Target};
use gsplit_store::{Dataset, Progress, Split, as_argument, read_text, shell_word};
use gsplit_trainer::{Device, TaskConfig, TrainConfig};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::child::finished;

/// Take a raw graph to a trained model: convert, presample, partition, train, infer and report, in one command
///
/// Each step is a command of its own, which is printed before it runs: repeat it with other options where you want more. Steps that
/// were finished before are reused, so the same command goes on after Ctrl-C. Options are those of gsplit convert; behind -- stand
/// those of gsplit train, from which the other steps take theirs: mini-batches are presampled as training draws them, and the graph is
/// cut for its ranks. One rank on the CPU needs no presample and no partition. Unless they say otherwise, training goes on until the
/// valid score stops rising. Predictions are those of the best epoch on the valid split. A graph with labels and no splits is split at
/// random, 0.6 to train, 0.2 valid, 0.2 test.
///
/// DIR then holds `dataset` (unless the input is one), `checkpoint`, `training.jsonl`, `predictions.parquet`, or for links
/// `embeddings.parquet`, or `recommendations.parquet` (10 targets for each source) where sources and targets are of two kinds, and `report.html`, the page of `gsplit report`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit run ogbn_arxiv/ --out arxiv --symmetrise -- --fanouts 10,10 --epochs 20
  gsplit run edges.csv --nodes nodes.csv --out run --random-split 0.6,0.2,0.2 -- --ranks 2
  gsplit run friends.txt.gz --out friends --symmetrise --features fastrp:64 -- --task link
  gsplit run ratings.csv --out recommender --bipartite --symmetrise --features fastrp:64 -- --task link
  gsplit run products --out products-gat -- --model gat --hidden 128

Options: gsplit convert --help, gsplit train --help-all")]
pub struct Args {
    /// A raw graph as for `gsplit convert`, or a dataset directory
    input: PathBuf,
    /// Folder for what is made
    #[arg(long, short, value_name = "DIR")]
    out: PathBuf,
    /// Only print the commands
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    convert: ConvertOptions,
    /// Options of gsplit train
    #[arg(last = true, value_name = "OPTION OF TRAIN")]
    train: Vec<String>,
}

/// Options of train that `run` chooses.
const CHOSEN: [&str; 5] = ["checkpoint", "resume", "log", "config", "print-config"];
/// Options of every subcommand, which are for all steps.
const COMMON: [&str; 4] = ["json", "quiet", "threads", "help"];
/// Recommendations for each source, where sources and targets are of two kinds.
const RECOMMENDATIONS: u32 = 10;
/// Option of convert where a graph has labels and no splits.
const RANDOM_SPLIT: &str = "--random-split=0.6,0.2,0.2";
/// File beside the steps' outputs in DIR: the commands that made them.
const RECORD: &str = "run.json";

/// Content of [`RECORD`]: that is there from the start, so that a run which was killed at any moment is known to be one.
#[derive(Default, Serialize, Deserialize)]
struct Record {
    /// The words of each step that was begun here, if what it makes was not there before: it is of this run's making.
    #[serde(default)]
    begun: BTreeMap<String, Vec<String>>,
    /// The words of each step that has finished here.
    #[serde(flatten)]
    finished: BTreeMap<String, Vec<String>>,
}

impl Record {
    /// The words by which `step` made what is there.
    fn made_by(&self, step: &str) -> Option<&Vec<String>> {
        self.finished.get(step).or_else(|| self.begun.get(step))
    }
}

/// The options of convert in `given`, the command line, as words.
fn of_convert(given: Option<&ArgMatches>) -> Vec<String> {
    let Some(given) = given else { return Vec::new() };
    let command = ConvertOptions::augment_args(clap::Command::new("convert"));
    let mut words = Vec::new();
    for argument in command.get_arguments() {
        let (id, flag) = (argument.get_id().as_str(), argument.get_long().unwrap_or_default());
        if given.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let values: Vec<_> = given.get_raw(id).into_iter().flatten().map(|value| value.to_string_lossy()).collect();
        words.push(match argument.get_action().takes_values() {
            true => format!("--{flag}={}", values.join(",")),
            false => format!("--{flag}"),
        });
    }
    words
}

/// Runs the steps; `given` are the matches that `args` are from.
pub fn run(args: Args, given: Option<&ArgMatches>, ui: &Ui) -> anyhow::Result<()> {
    let is_dataset = args.input.join("dataset.json").is_file();
    let dataset = if is_dataset { args.input.clone() } else { args.out.join("dataset") };
    let text = |name: &str, path: &Path| as_text(name, &as_argument(path)).map(str::to_string);
    let [data, input, out] = [text("--out", &dataset)?, text("INPUT", &args.input)?, text("--out", &args.out)?];
    let mut convert = of_convert(given);
    // A mistyped option is told before a step has worked for hours.
    let train = for_links(&args.train);
    let (config, gpus) = training(&train, &data)?;
    convert.extend(held_out(&args.convert, &config.task));
    if let (true, Some(word)) = (is_dataset, convert.first()) {
        return Err(usage(format!("{word}: {input} is a dataset already, which is not converted: leave it out")));
    }
    let option = |name: &str, value: Option<String>| value.map(|value| format!("--{name}={value}"));
    let on_gpu = [option("device", (config.device == Device::Cuda).then(|| "cuda".into())), option("gpus", gpus)];
    let on_gpu: Vec<String> = on_gpu.into_iter().flatten().collect();
    let seed = option("seed", (config.seed != 0).then(|| config.seed.to_string()));

    let needs_map = config.parallelism.needs_map();
    let with_presample = needs_map || config.device == Device::Cuda;
    let total = 3 + [!is_dataset, with_presample, needs_map].into_iter().filter(|step| *step).count();
    let mut steps = Steps::new(&args, total, ui)?;
    if !is_dataset {
        let words = [vec![input.clone()], convert.clone(), chosen_of_convert(&args, &config)].concat();
        let words = [words, vec![format!("--out={data}")]].concat();
        let force = steps.replaces(&dataset, &words)?;
        steps.begin("convert", &words, &dataset)?;
        steps.step("convert", words, force)?;
    }
    let opened = if args.dry_run && !dataset.exists() { None } else { Some(Dataset::open(&dataset)?) };
    if let Some(opened) = opened.as_ref().filter(|_| !args.dry_run) {
        let again = |options: &[&str], more: &[&str]| {
            let owned = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
            let words = [vec![input.clone()], convert.clone(), owned(options)];
            let train = [args.train.clone(), owned(more)].concat();
            let behind = if train.is_empty() { Vec::new() } else { [vec!["--".to_string()], train].concat() };
            shown("run", &[words.concat(), vec![format!("--out={out}")], behind].concat())
        };
        check_ready(opened, &config, is_dataset, again)?;
    }
    let chosen = match &opened {
        Some(opened) => chosen(opened, &config, &train)?,
        None => {
            steps.say("train: --lr, --epochs and --patience, if not given, follow from the dataset: not known yet");
            Vec::new()
        }
    };
    if with_presample {
        let is_link = config.task.is_link();
        let drawn = [
            option("fanouts", Some(config.fanouts.to_string())),
            option("batch-size", Some(config.batch_size.to_string())),
            option("draw-by", config.draw_by.clone()),
            option("task", is_link.then(|| "link".into())),
            option("negatives", is_link.then(|| config.task.negatives.to_string())),
            seed.clone(),
        ];
        let words = [vec![data.clone()], drawn.into_iter().flatten().collect(), on_gpu.clone()].concat();
        let command = presample::Args::augment_args(clap::Command::new("presample").no_binary_name(true));
        let key = presample::Args::from_arg_matches(&command.try_get_matches_from(&words)?)?.key();
        steps.step("presample", words, false)?;
        if needs_map {
            let servers = if config.parallelism.cooperates() { config.groups } else { 1 };
            let parts = [
                Some(data.clone()),
                option("parts", Some(config.num_parts().to_string())),
                option("servers", Some(servers.to_string())),
                option("presample", Some(key)),
                seed,
            ];
            steps.step("partition", parts.into_iter().flatten().collect(), false)?;
        }
    } else {
        steps.say("presample and partition: left out, one rank needs neither");
    }
    let (checkpoint, log) = (format!("--checkpoint={out}/checkpoint"), format!("--log={out}/training.jsonl"));
    if !chosen.is_empty() {
        let until = match chosen.iter().any(|word| word.starts_with("--patience")) {
            true => ", until the valid score stops rising",
            false => "",
        };
        steps.say(&format!("train by {}{until}: other values stand behind --", chosen.join(" ")));
    }
    let own = vec![checkpoint.clone(), "--resume".into(), log];
    steps.step("train", [vec![data.clone()], train, chosen, own].concat(), false)?;
    let recommends = config.task.is_link()
        && match args.dry_run {
            true => args.convert.read.bipartite == Some(Answer::Yes),
            false => Dataset::open(&dataset)?.kinds()?.are_two(),
        };
    let (option, file) = match config.task.is_link() {
        false => ("--out", "predictions.parquet"),
        true if recommends => ("--out", "recommendations.parquet"),
        true => ("--embeddings", "embeddings.parquet"),
    };
    let top = recommends.then(|| format!("--top={RECOMMENDATIONS}"));
    let result = args.out.join(file);
    let file = format!("{option}={}", result.display());
    let words = [vec![data], on_gpu, vec![checkpoint, file], top.into_iter().collect()].concat();
    if steps.record.finished.get("infer") == Some(&words) && modified(&result) > trained(&args.out.join("checkpoint")) {
        steps.begun += 1;
        let step = format!("{} of {}: infer", steps.begun, steps.total);
        steps.say(&format!("── {step}: {} is there, made since the last epoch", result.display()));
    } else {
        let force = steps.record.made_by("infer").is_some();
        steps.begin("infer", &words, &result)?;
        steps.step("infer", words, force)?;
    }
    let elsewhere = is_dataset.then(|| format!("--dataset={}", dataset.display()));
    let words = [vec![out.clone(), format!("--out={out}/report.html")], elsewhere.into_iter().collect()].concat();
    steps.step("report", words, false)?;
    steps.end(&dataset, &result);
    Ok(())
}

/// The option of convert by which features of the structure are made without the links that training holds out, where these are others
/// than its default for two kinds of vertices.
fn held_out(convert: &ConvertOptions, task: &TaskConfig) -> Option<String> {
    let (share, default) = (task.valid_edges + task.test_edges, TaskConfig::default());
    let is_other = (task.valid_edges, task.test_edges, task.edge_seed)
        != (default.valid_edges, default.test_edges, default.edge_seed);
    let wanted = task.is_link() && convert.read.bipartite == Some(Answer::Yes) && is_other;
    (wanted && convert.held_out_links.is_none()).then(|| format!("--held-out-links={share},{}", task.edge_seed))
}

/// Options of convert that its words leave open and the task decides: numbers are no classes, what is labelled needs splits, and vertices
/// of two kinds have no features but those of the structure.
fn chosen_of_convert(args: &Args, config: &TrainConfig) -> Vec<String> {
    let read = &args.convert.read;
    let needs_splits = !config.task.is_link() && args.convert.random_split.is_none() && read.split.is_none();
    let is_number = config.task.is_regression() && read.node_table.label_kind.is_none();
    let has_no_label = config.task.is_link() && read.nodes.is_some() && read.node_table.label_column.is_none();
    let is_bare = config.task.is_link() && read.bipartite == Some(Answer::Yes) && args.convert.features.is_none();
    let words = [
        (is_bare, "--features=fastrp:64"),
        (needs_splits, "--random-split=auto"),
        (is_number, "--label-kind=number"),
        (has_no_label, "--label-column=none"),
    ];
    words.into_iter().filter(|(is_chosen, _)| *is_chosen).map(|(_, word)| word.to_string()).collect()
}

/// The words of train `given`, with options that suit links where they are left open: many negatives of few edges, and small rows, since
/// a model of links soon learns its edges by heart.
fn for_links(given: &[String]) -> Vec<String> {
    const SUIT_LINKS: [[&str; 2]; 7] = [
        ["layers", "2"],
        ["fanouts", "10,10"],
        ["hidden", "64"],
        ["lr", "0.003"],
        ["batch-size", "512"],
        ["negatives", "4"],
        ["scorer", "mlp"],
    ];
    let is_link =
        given.iter().any(|word| word == "--task=link") || given.windows(2).any(|words| words == ["--task", "link"]);
    let is_given = |flag: &str| {
        let of_word = |word: &String| word.strip_prefix("--").is_some_and(|word| word.split('=').next() == Some(flag));
        given.iter().any(of_word)
    };
    let shape = ["layers", "fanouts"];
    let is_open = |flag: &str| !is_given(flag) && (!shape.contains(&flag) || !shape.into_iter().any(is_given));
    let open = SUIT_LINKS.iter().filter(|[flag, _]| is_link && is_open(flag));
    given.iter().cloned().chain(open.map(|[flag, value]| format!("--{flag}={value}"))).collect()
}

/// Parses `words` as `gsplit train` does, into the configuration and the GPUs.
fn training(words: &[String], dataset: &str) -> anyhow::Result<(TrainConfig, Option<String>)> {
    for word in words {
        let flag = word.strip_prefix("--").map(|flag| flag.split('=').next().unwrap_or(flag)).unwrap_or_default();
        if CHOSEN.contains(&flag) {
            return Err(usage(format!("{word}: is chosen by gsplit run: leave it out, or call gsplit train")));
        }
        if COMMON.contains(&flag) {
            return Err(usage(format!("{word}: is for all steps: give it before --")));
        }
    }
    let line = ["gsplit", "train", dataset].into_iter().chain(words.iter().map(String::as_str));
    match crate::completed(line.map(OsString::from).collect())?.command {
        crate::TrainerCommand::Train(args) => Ok((args.checked()?, args.gpus.as_ref().map(ToString::to_string))),
        _ => unreachable!("the line says train"),
    }
}

/// Whether `dataset` has something to learn and no vertices to learn it from.
fn lacks_splits(dataset: &Dataset, config: &TrainConfig) -> bool {
    !config.task.is_link()
        && (dataset.manifest().num_classes.is_some() || dataset.manifest().numeric_label)
        && !(dataset.manifest().splits().contains(&Split::Train)
            && dataset.split(Split::Train).is_ok_and(|train| !train.is_empty()))
}

/// Fails with all that training needs and `dataset` lacks, and the command that has it: `again` with these options of convert and of
/// train.
fn check_ready(
    dataset: &Dataset,
    config: &TrainConfig,
    is_dataset: bool,
    again: impl Fn(&[&str], &[&str]) -> String,
) -> anyhow::Result<()> {
    let (mut lacking, mut convert, mut train) = (Vec::new(), Vec::new(), Vec::new());
    if dataset.manifest().features.is_none() {
        lacking.push("features to learn from (fastrp makes them of the graph's structure)");
        convert.push("--features=fastrp:64");
    }
    let has_labels =
        config.task.is_link() || dataset.manifest().num_classes.is_some() || dataset.manifest().numeric_label;
    if !has_labels {
        lacking.push(
            "labels to learn (a table of the vertices has some: --nodes FILE; without, --task link learns the edges)",
        );
        train.push("--task=link");
    } else if lacks_splits(dataset, config) {
        lacking.push("training vertices");
        convert.push(RANDOM_SPLIT);
    }
    if lacking.is_empty() {
        return Ok(());
    }
    let (path, lacking) = (dataset.path().display(), lacking.join(", no "));
    let command = match is_dataset && !convert.is_empty() {
        true => format!("convert the graph again with {}, then {}", convert.join(" "), again(&[], &train)),
        false => again(&convert, &train),
    };
    bail!("{path}: has no {lacking}: {command}")
}

/// Options of train that its words `given` leave open and that decide how well and how long it learns `dataset`.
///
/// A rate of 0.01 and as many epochs as raise the valid score, within bounds that go by the mini-batches of an epoch: on small graphs an
/// epoch is one mini-batch, on large ones an epoch takes long.
///
/// Why not a trial of several rates: 0.01 was as good as the best of them on cora and ogbn-arxiv.
fn chosen(dataset: &Dataset, config: &TrainConfig, given: &[String]) -> anyhow::Result<Vec<String>> {
    let is_given = |flag: &str| {
        given.iter().filter_map(|word| word.strip_prefix("--")).any(|word| word.split('=').next() == Some(flag))
    };
    let mut chosen = Vec::new();
    if !["lr", "optimizer"].into_iter().any(is_given) {
        chosen.push("--lr=0.01".to_string());
    }
    if is_given("epochs") {
        return Ok(chosen);
    }
    let is_link = config.task.is_link();
    let items = match is_link {
        true => dataset.topology().num_edges() / 2,
        false => dataset.split(Split::Train)?.len(),
    };
    let steps = match config.parallelism.cooperates() {
        true => config.cooperative.batches() as u32,
        false => u32::try_from(items.div_ceil(config.batch_size)).unwrap_or(u32::MAX),
    };
    let steps = steps.max(1);
    let has_valid = match is_link {
        true => config.task.valid_edges > 0.0 || dataset.links()?.is_some(),
        false => has_labelled_valid(dataset)?,
    };
    if has_valid && config.eval_every > 0 {
        chosen.push(format!("--epochs={}", (5000 / steps).clamp(20, 300)));
        if !is_given("patience") {
            chosen.push(format!("--patience={}", (500 / steps).clamp(5, 30)));
        }
    } else {
        chosen.push(format!("--epochs={}", (1000 / steps).clamp(10, 100)));
    }
    Ok(chosen)
}

/// Whether a vertex of the valid split has a label.
fn has_labelled_valid(dataset: &Dataset) -> anyhow::Result<bool> {
    if !dataset.manifest().splits().contains(&Split::Valid) {
        return Ok(false);
    }
    let valid = dataset.split(Split::Valid)?;
    if dataset.manifest().multi_label {
        return Ok(!valid.is_empty());
    }
    if dataset.manifest().numeric_label {
        let labels = dataset.held_numeric_labels()?;
        return Ok(valid.iter().any(|&v| labels.is_labelled(v)));
    }
    let labels = dataset.held_labels()?;
    Ok(valid.iter().any(|&v| labels.is_labelled(v)))
}

/// Whether it is more than what a run leaves that was killed while it wrote its first record.
fn is_foreign(entry: std::io::Result<fs::DirEntry>) -> bool {
    entry.is_ok_and(|entry| entry.file_name() != *format!(".{RECORD}.partial"))
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|found| found.modified()).ok()
}

/// When the newest checkpoint in `folder` was written.
fn trained(folder: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(folder).ok()?;
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| modified(&entry.path()))
        .max()
}

/// The steps as they run, one after another.
struct Steps<'a> {
    args: &'a Args,
    ui: &'a Ui,
    record: Record,
    done: Vec<Value>,
    /// Steps that were begun, and all that there are.
    begun: usize,
    total: usize,
}

impl<'a> Steps<'a> {
    /// Makes the folder, unless it is there and of somebody else's.
    fn new(args: &'a Args, total: usize, ui: &'a Ui) -> anyhow::Result<Self> {
        let (out, file) = (&args.out, args.out.join(RECORD));
        Outputs::new(false).reads("INPUT", &args.input).folder("--out", out)?;
        let record = match read_text(&file) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("{}: is not of gsplit run: choose another --out", file.display()))?,
            Err(_) if fs::read_dir(out).is_ok_and(|mut entries| entries.any(is_foreign)) => {
                bail!("--out {}: is there, and not of gsplit run: choose another folder", out.display())
            }
            Err(_) => Record::default(),
        };
        let steps = Self { args, ui, record, done: Vec::new(), begun: 0, total };
        if !args.dry_run {
            fs::create_dir_all(out).map_err(gsplit_store::Error::io(out))?;
            steps.save()?;
        }
        Ok(steps)
    }

    fn save(&self) -> anyhow::Result<()> {
        let file = self.args.out.join(RECORD);
        let staging = Staging::begin(Target::file(&file), true)?;
        fs::write(staging.file(), serde_json::to_string_pretty(&self.record)?)
            .map_err(gsplit_store::Error::io(&file))?;
        staging.commit()?;
        Ok(())
    }

    /// Records that `step` is about to make `output`, unless somebody else's is there.
    fn begin(&mut self, step: &str, words: &[String], output: &Path) -> anyhow::Result<()> {
        if self.args.dry_run || (output.exists() && self.record.made_by(step).is_none()) {
            return Ok(());
        }
        self.record.begun.insert(step.into(), words.into());
        self.save()
    }

    /// Whether the dataset was made here by other `words` than these: then it may be replaced, as long as nothing was trained on it.
    fn replaces(&self, dataset: &Path, words: &[String]) -> anyhow::Result<bool> {
        let Some(before) = self.record.made_by("convert").filter(|before| dataset.exists() && *before != words) else {
            return Ok(false);
        };
        if self.args.out.join("checkpoint").exists() {
            let (out, before) = (self.args.out.display(), shown("convert", before));
            return Err(usage(format!(
                "--out {out}: holds a model of the dataset that `{before}` made: choose another folder, or give the same options"
            )));
        }
        Ok(true)
    }

    fn say(&self, line: &str) {
        self.ui.note(line);
    }

    /// Runs a step, which takes over what it finished before; with `force` it replaces what it made here by other words.
    fn step(&mut self, name: &'static str, words: Vec<String>, force: bool) -> anyhow::Result<()> {
        let shown = shown(name, &words);
        self.begun += 1;
        if self.args.dry_run {
            self.ui.say(&shown);
            self.done.push(json!({ "step": name, "command": shown }));
            return Ok(());
        }
        self.say(&format!("── {} of {}: {shown}", self.begun, self.total));
        let program = std::env::current_exe().context("cannot find gsplit's own executable")?.with_file_name("gsplit");
        let mut command = Command::new(program);
        command.arg(name).args(&words).args(force.then_some("--force")).args(self.ui.options());
        if self.ui.is_json() {
            command.stdout(Stdio::piped());
        }
        let started = Instant::now();
        let output = finished(&mut command, "what steps have finished is kept; the same command goes on")?;
        if !output.status.success() {
            self.say(&format!("{name} failed: once it is mended, the same command goes on from here"));
            // It has said why.
            self.ui.json(&serde_json::from_slice(&output.stdout).unwrap_or_default());
            std::process::exit(output.status.code().unwrap_or(1));
        }
        self.record.finished.insert(name.to_string(), words);
        self.save()?;
        let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        self.done.push(
            json!({ "step": name, "command": shown, "seconds": started.elapsed().as_secs_f64(), "result": result }),
        );
        Ok(())
    }

    fn end(&self, dataset: &Path, result: &Path) {
        let out = self.args.out.display();
        if !self.args.dry_run {
            self.say(&format!("dataset {}, model {out}/checkpoint, {}", dataset.display(), result.display()));
        }
        self.ui.json(&json!({
            "dataset": dataset, "checkpoint": format!("{out}/checkpoint"), "result": result, "steps": self.done,
        }));
    }
}

/// The command line of a step.
fn shown(step: &str, words: &[String]) -> String {
    let words = words.iter().map(shell_word);
    std::iter::once(format!("gsplit {step}")).chain(words).collect::<Vec<_>>().join(" ")
}
