//! `gsplit run`: every step from a raw graph to predictions and a report.
//!
//! ```text
//! words ─▶ routed to steps ─▶ convert ─▶ presample ─▶ partition ─▶ train ─▶ infer ─▶ report
//! ```
//! A step is a command of gsplit's, run as a process of its own: whoever wants more says it in the step's own words. What a step
//! finished before it takes over itself, as it does for everybody.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Instant, SystemTime};

use anyhow::{Context, bail};
use clap::{Arg, FromArgMatches};
use gsplit::outputs::Outputs;
use gsplit::ui::{Ui, as_text, usage};
use gsplit::{convert, partition, presample};
use gsplit_store::staging::{Staging, Target};
use gsplit_store::{Dataset, Progress, Split, as_argument, read_text, shell_word};
use gsplit_trainer::{Device, TaskKind, TrainConfig};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::child::finished;
use crate::{infer, train};

/// Take a raw graph to a trained model: convert, presample, partition, train, infer and report, in one command
///
/// Each step is a command of its own, which is printed before it runs: repeat it with other options where you want more. Steps that
/// were finished before are reused, so the same command goes on after Ctrl-C. Every option of the steps can be given; one that several
/// steps have goes to train, but --seed, --device, --gpus and --memory go to all that have them, and --presample-epochs is the
/// --epochs of presample. Mini-batches are presampled as training draws them; one rank on the CPU needs no presample and no partition.
/// Predictions are those of the best epoch on the valid split.
///
/// DIR then holds `dataset` (unless the input is one), `checkpoint`, `training.jsonl`, `predictions.parquet`, or for links
/// `embeddings.parquet`, and `report.html`, the page of `gsplit report`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit run ogbn_arxiv/ --out arxiv --symmetrise --fanouts 10,10 --epochs 20
  gsplit run edges.csv --nodes nodes.csv --out run --random-split 0.6,0.2,0.2 --ranks 2
  gsplit run friends.txt.gz --out friends --symmetrise --features fastrp:64 --task link
  gsplit run products --out products-gat --model gat --hidden 128

Options of the steps: gsplit convert --help, presample --help, partition --help, train --help, infer --help")]
pub struct Args {
    /// A raw graph as for `gsplit convert`, or a dataset directory
    input: PathBuf,
    /// Folder for what is made
    #[arg(long, short, value_name = "DIR")]
    out: PathBuf,
    /// Only print the commands
    #[arg(long)]
    dry_run: bool,
    #[arg(last = true, hide = true)]
    options: Vec<String>,
}

/// A step, and what its command line has.
struct Step {
    name: &'static str,
    command: clap::Command,
    words: Vec<String>,
}

/// Options that every step takes which has them.
const SHARED: [&str; 4] = ["seed", "device", "gpus", "memory"];
/// Options of steps that `run` chooses.
const CHOSEN: [&str; 13] = [
    "out",
    "force",
    "plan",
    "key",
    "presample",
    "parts",
    "import",
    "report",
    "checkpoint",
    "resume",
    "log",
    "print-config",
    "help",
];
/// What DIR holds beside the steps' outputs: the commands that made them.
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

/// The steps, without options.
fn steps() -> [Step; 5] {
    fn step<A: clap::Args>(name: &'static str) -> Step {
        Step { name, command: A::augment_args(clap::Command::new(name)), words: Vec::new() }
    }
    [
        step::<convert::Args>("convert"),
        step::<presample::Args>("presample"),
        step::<partition::Args>("partition"),
        step::<train::Args>("train"),
        step::<infer::Args>("infer"),
    ]
}

impl Step {
    /// Whether its option `flag` has a value, if it has that option.
    fn takes_value(&self, flag: &str) -> Option<bool> {
        let found = self.command.get_arguments().find(|arg| {
            arg.get_long() == Some(flag) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&flag))
        });
        found.map(|arg| arg.get_action().takes_values())
    }
}

/// The options of the steps, also behind the names of their steps: an id and the flag of each.
static FLAGS: LazyLock<Vec<[String; 2]>> = LazyLock::new(|| {
    let mut flags = BTreeSet::new();
    for step in &steps() {
        let longs = step.command.get_arguments().flat_map(|arg| arg.get_long_and_visible_aliases().unwrap_or_default());
        for flag in longs.filter(|flag| !CHOSEN.contains(flag)) {
            flags.extend([flag.to_string(), format!("{}-{flag}", step.name)]);
        }
    }
    flags.into_iter().map(|flag| [format!("of-steps-{flag}"), flag]).collect()
});

/// `command`, run's own, which knows the options of the steps too: it never meets one, but offers them where a word is mistyped.
pub fn grouped(command: clap::Command) -> clap::Command {
    command.args(FLAGS.iter().map(|[id, flag]| Arg::new(&**id).long(&**flag).num_args(0..=1).hide(true)))
}

/// The indices of the steps that `--flag` is for, and its name there.
fn receivers<'f>(steps: &[Step], flag: &'f str) -> (Vec<usize>, &'f str) {
    for (at, step) in steps.iter().enumerate() {
        let own = flag.strip_prefix(step.name).and_then(|rest| rest.strip_prefix('-'));
        if let Some(own) = own.filter(|own| step.takes_value(own).is_some() && !CHOSEN.contains(own)) {
            return (vec![at], own);
        }
    }
    let having: Vec<usize> = (0..steps.len()).filter(|&at| steps[at].takes_value(flag).is_some()).collect();
    let train = having.iter().copied().find(|&at| steps[at].name == "train");
    let receivers = match (SHARED.contains(&flag), train.or(having.first().copied())) {
        _ if CHOSEN.contains(&flag) => Vec::new(),
        (true, _) => having,
        (false, one) => one.into_iter().collect(),
    };
    (receivers, flag)
}

/// `line`, the command line, with the options of steps after a `--`, where [`Args`] looks for them; as it is if it is for another
/// subcommand.
pub fn sorted(line: Vec<OsString>) -> Vec<OsString> {
    let is_subcommand = |at: usize| !line[at].as_encoded_bytes().starts_with(b"-") && line[at - 1] != "--threads";
    let Some(at) = (1..line.len()).find(|&at| is_subcommand(at)).filter(|&at| line[at] == "run") else { return line };
    let steps = steps();
    let (mut own, mut of_steps) = (line[..=at].to_vec(), vec![OsString::from("--")]);
    let mut words = line[at + 1..].iter().cloned();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let flag = text.strip_prefix("--").map(|flag| flag.split_once('=').map_or(flag, |(flag, _)| flag));
        let (receivers, flag) = flag.map_or((Vec::new(), ""), |flag| receivers(&steps, flag));
        let takes = receivers.first().map(|&at| steps[at].takes_value(flag) == Some(true) && !text.contains('='));
        match takes {
            None => own.push(word),
            Some(takes) => {
                of_steps.push(word);
                of_steps.extend(takes.then(|| words.next()).flatten());
            }
        }
    }
    if of_steps.len() > 1 {
        own.extend(of_steps);
    }
    own
}

/// The steps with `options`, which [`sorted`] has found.
fn routed(options: &[String]) -> [Step; 5] {
    let mut steps = steps();
    let mut options = options.iter().peekable();
    while let Some(word) = options.next() {
        let (flag, value) =
            word.split_once('=').map_or((word.as_str(), None), |(flag, value)| (flag, Some(value.to_string())));
        let (receivers, flag) = receivers(&steps, flag.trim_start_matches("--"));
        let takes = receivers.first().and_then(|&at| steps[at].takes_value(flag)) == Some(true);
        let value = value.or_else(|| takes.then(|| options.next().cloned()).flatten());
        for at in receivers {
            steps[at]
                .words
                .push(value.as_ref().map_or_else(|| format!("--{flag}"), |value| format!("--{flag}={value}")));
        }
    }
    steps
}

/// Runs the steps.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    let [convert, presample, partition, train, infer] = routed(&args.options);
    let is_dataset = args.input.join("dataset.json").is_file();
    let dataset = if is_dataset { args.input.clone() } else { args.out.join("dataset") };
    let text = |name: &str, path: &Path| as_text(name, &as_argument(path)).map(str::to_string);
    let [data, input, out] = [text("--out", &dataset)?, text("INPUT", &args.input)?, text("--out", &args.out)?];
    let config = config(&train.words, &data)?;
    // A mistyped option is told before a step has worked for hours; the others are checked as they will be given.
    for (step, words) in [(&convert, vec![input.clone(), format!("--out={data}")]), (&presample, vec![data.clone()])] {
        check(step, words)?;
    }
    check(&partition, vec![data.clone(), "--parts=1".into()])?;
    check(&infer, vec![data.clone(), format!("--checkpoint={out}")])?;
    let shared = |word: &&String| SHARED.iter().any(|flag| word.starts_with(&format!("--{flag}")));
    if let Some(word) = convert.words.iter().find(|word| is_dataset && !shared(word)) {
        return Err(usage(format!("{word}: {input} is a dataset already, which is not converted: leave it out")));
    }

    let needs_map = config.parallelism.needs_map();
    let with_presample = needs_map || config.device == Device::Cuda;
    let total = 3 + [!is_dataset, with_presample, needs_map].into_iter().filter(|step| *step).count();
    let mut line = Line::new(&args, total, ui)?;
    if !is_dataset {
        let words = [vec![input], convert.words, vec![format!("--out={data}")]].concat();
        let force = line.replaces(&dataset, &words)?;
        line.begin("convert", &words, &dataset)?;
        line.step("convert", words, force)?;
    }
    if !args.dry_run {
        check_ready(&Dataset::open(&dataset)?, &config)?;
    }
    if with_presample {
        let drawn = [
            Some(format!("--fanouts={}", config.fanouts)),
            Some(format!("--batch-size={}", config.batch_size)),
            config.draw_by.as_ref().map(|column| format!("--draw-by={column}")),
            (config.task.kind == TaskKind::Link).then(|| "--task=link".to_string()),
            (config.task.kind == TaskKind::Link).then(|| format!("--negatives={}", config.task.negatives)),
        ];
        let words = [vec![data.clone()], presample.words, drawn.into_iter().flatten().collect()].concat();
        let key = parsed::<presample::Args>(&presample.command, &words)?.key();
        line.step("presample", words, false)?;
        if needs_map {
            let servers = if config.parallelism.cooperates() { config.groups } else { 1 };
            let parts = vec![
                format!("--parts={}", config.num_parts()),
                format!("--servers={servers}"),
                format!("--presample={key}"),
            ];
            line.step("partition", [vec![data.clone()], partition.words, parts].concat(), false)?;
        }
    } else {
        line.say("presample and partition: left out, one rank needs neither");
    }
    let (checkpoint, log) = (format!("--checkpoint={out}/checkpoint"), format!("--log={out}/training.jsonl"));
    let words = [vec![data.clone()], train.words, vec![checkpoint.clone(), "--resume".into(), log]].concat();
    line.step("train", words, false)?;
    let (option, file) = match config.task.kind {
        TaskKind::Node => ("--out", "predictions.parquet"),
        TaskKind::Link => ("--embeddings", "embeddings.parquet"),
    };
    let result = args.out.join(file);
    let best = args.out.join("checkpoint/best");
    let checkpoint = if best.exists() { format!("--checkpoint={}", best.display()) } else { checkpoint };
    let words = [vec![data], infer.words, vec![checkpoint, format!("{option}={}", result.display())]].concat();
    if line.record.finished.get("infer") == Some(&words) && modified(&result) > trained(&args.out.join("checkpoint")) {
        line.begun += 1;
        let step = format!("{} of {}: infer", line.begun, line.total);
        line.say(&format!("── {step}: {} is there, made since the last epoch", result.display()));
    } else {
        let force = line.record.made_by("infer").is_some();
        line.begin("infer", &words, &result)?;
        line.step("infer", words, force)?;
    }
    let elsewhere = is_dataset.then(|| format!("--dataset={}", dataset.display()));
    let words = [vec![out.clone(), format!("--out={out}/report.html")], elsewhere.into_iter().collect()].concat();
    line.step("report", words, false)?;
    line.end(&dataset, &result);
    Ok(())
}

/// The configuration that `gsplit train` takes from `words`.
fn config(words: &[String], dataset: &str) -> anyhow::Result<TrainConfig> {
    let line =
        ["gsplit", "train"].map(String::from).into_iter().chain(words.iter().cloned()).chain([dataset.to_string()]);
    match crate::completed(line.map(OsString::from).collect())?.command {
        crate::Command::Train(args) => args.checked(),
        _ => unreachable!("the line says train"),
    }
}

/// Fails where `step` would not take its options.
fn check(step: &Step, words: Vec<String>) -> anyhow::Result<()> {
    let words = [vec![step.name.to_string()], words, step.words.clone()].concat();
    let command = step.command.clone().bin_name(format!("gsplit {}", step.name));
    command.try_get_matches_from(words).map(drop).unwrap_or_else(|error| error.exit());
    Ok(())
}

/// The options of a step.
fn parsed<A: FromArgMatches>(command: &clap::Command, words: &[String]) -> anyhow::Result<A> {
    let line = std::iter::once(command.get_name().to_string()).chain(words.iter().cloned());
    Ok(A::from_arg_matches(&command.clone().try_get_matches_from(line)?)?)
}

/// Fails with what to do where `dataset` lacks what training needs.
fn check_ready(dataset: &Dataset, config: &TrainConfig) -> anyhow::Result<()> {
    let path = dataset.path().display();
    if dataset.manifest().features.is_none() {
        bail!(
            "{path}: has no features to learn from: pass --features fastrp:64, which makes them of the graph's structure"
        );
    }
    if config.task.kind == TaskKind::Link {
        return Ok(());
    }
    if dataset.manifest().num_classes.is_none() {
        bail!(
            "{path}: has no labels to learn: name a table of the vertices with --nodes, or learn its edges with --task link"
        );
    }
    if dataset.split(Split::Train).is_ok_and(|train| train.is_empty()) {
        bail!("{path}: has no training vertices: pass --random-split 0.6,0.2,0.2");
    }
    Ok(())
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
struct Line<'a> {
    args: &'a Args,
    ui: &'a Ui,
    record: Record,
    done: Vec<Value>,
    /// Steps that were begun, and all that there are.
    begun: usize,
    total: usize,
}

impl<'a> Line<'a> {
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
        let line = Self { args, ui, record, done: Vec::new(), begun: 0, total };
        if !args.dry_run {
            fs::create_dir_all(out).map_err(gsplit_store::Error::io(out))?;
            line.save()?;
        }
        Ok(line)
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
