//! `gsplit run`: every step from a raw graph to predictions and a report.
//!
//! ```text
//! options ─▶ convert ─▶ presample ─▶ partition ─▶ train ─▶ infer ─▶ report
//! --config: file.rs
//! ```
//! A step is a command of gsplit in its own process: users who need more can call that command
//! themselves. Each step reuses the output that it finished before.

mod chosen;
mod earlier;
mod file;
mod fresh;
mod score;
mod steps;

use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args as _};
use gsplit::arguments;
use gsplit::ui::{self, Ui, as_text, usage};
use gsplit::{partition, presample};
use gsplit_preprocess::convert::{ConvertOptions, outdated};
use gsplit_preprocess::read::options::Answer;
use gsplit_store::{Dataset, as_argument};
use gsplit_trainer::Device;

use earlier::Earlier;
use steps::Steps;

pub use file::merged;

/// Take a raw graph to a trained model: convert, presample, partition, train, infer and report, in
/// one command
///
/// Each step is a command of its own, which is printed before it runs: repeat it with other options
/// if needed. Steps that finished before are reused, so the same command continues after Ctrl-C.
/// Options are the options of gsplit convert; after -- come the options of gsplit train, from which
/// the other steps derive theirs: mini-batches are presampled as training draws them, and the graph
/// is cut for its ranks. One rank on the CPU needs no presample and no partition. Unless the
/// options say otherwise, training ends when the valid score stops rising. Predictions are made
/// with the best epoch on the valid split. A graph with labels but without splits is split at
/// random, 0.6 to train, 0.2 valid, 0.2 test.
///
/// DIR then holds `dataset` (unless the input is one), `checkpoint`, `training.jsonl`,
/// `predictions.parquet`, or for links `embeddings.parquet`, or `recommendations.parquet` (10
/// targets for each source) where sources and targets are of two kinds, and `report.html`, the page
/// of `gsplit report`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit run ogbn_arxiv/ --out arxiv --symmetrise -- --fanouts 10,10 --epochs 20
  gsplit run edges.csv --nodes nodes.csv --out run --random-split 0.6,0.2,0.2 -- --ranks 2
  gsplit run friends.txt.gz --out friends --symmetrise --features fastrp:64 -- --task link
  gsplit run ratings.csv --out recommender --bipartite --symmetrise --features fastrp:64 -- --task link
  gsplit run products --out products-gat -- --model gat --hidden 128

  gsplit run edges.csv --nodes nodes.csv --label-column churned --out nightly --fresh --from nightly

  gsplit run ogbn_arxiv/ --out arxiv --symmetrise --print-config -- --fanouts 10,10 > job.toml
  gsplit run --config job.toml

Options: gsplit convert --help, gsplit train --help-all")]
pub struct Args {
    /// A raw graph as for `gsplit convert`, or a dataset directory
    #[arg(required_unless_present = "file")]
    input: Option<PathBuf>,
    /// Folder for the outputs
    #[arg(long, short, value_name = "DIR", required_unless_present = "file")]
    out: Option<PathBuf>,
    /// Read the input, the folder and the options of every step from this TOML file; the command
    /// line takes precedence (--print-config prints an example). Paths are relative to the current
    /// folder
    #[arg(long = "config", value_name = "FILE.toml")]
    file: Option<PathBuf>,
    /// Print the run as a file for --config, with unset options as comments, and do nothing
    #[arg(long)]
    print_config: bool,
    #[arg(skip)]
    from_file: Option<file::FileOfRun>,
    /// The options of convert, from the command line and the file.
    #[arg(skip)]
    merged: Vec<String>,
    /// Run anew on the input as it is now. Everything that gsplit run made in --out is replaced
    /// once the new run has succeeded; until then the earlier one stays as it is. Other files there
    /// are kept
    #[arg(long)]
    fresh: bool,
    /// Start from an earlier run's model, and read tables by its recipe: with the same columns,
    /// scales, categories and classes. RUN is its folder, which may be --out, or a checkpoint
    #[arg(long, value_name = "RUN")]
    from: Option<PathBuf>,
    /// Only print the commands
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    convert: ConvertOptions,
    /// Options of gsplit train
    #[arg(last = true, value_name = "OPTION OF TRAIN")]
    train: Vec<String>,
}

/// Options of train that `run` sets itself.
const CHOSEN: [&str; 6] = ["checkpoint", "init", "resume", "log", "config", "print-config"];
/// Options of every subcommand, passed to all steps.
const COMMON: [&str; 4] = ["json", "quiet", "threads", "help"];
/// Recommendations per source, if sources and targets are of two kinds.
const RECOMMENDATIONS: u32 = 10;

/// The options of convert in `given`, the matches of the command line, as words.
fn of_convert(given: &ArgMatches) -> Vec<String> {
    let command = ConvertOptions::augment_args(clap::Command::new("convert"));
    let mut words = Vec::new();
    for argument in command.get_arguments() {
        let (id, flag) = (argument.get_id().as_str(), argument.get_long().unwrap_or_default());
        if given.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let values: Vec<_> =
            given.get_raw(id).into_iter().flatten().map(|value| value.to_string_lossy()).collect();
        match argument.get_action() {
            action if !action.takes_values() => words.push(format!("--{flag}")),
            ArgAction::Append if argument.get_value_delimiter().is_none() => {
                words.extend(values.iter().map(|value| format!("--{flag}={value}")));
            }
            _ => words.push(format!("--{flag}={}", values.join(","))),
        }
    }
    words
}

/// Ends the program with `error` about the command line, or about its part for gsplit train. If an
/// option is on the wrong side of the `--` of gsplit run, the message says so.
pub fn misplaced(error: &clap::Error) -> ! {
    let given = arguments::given();
    let is_run = given.get(arguments::subcommand_at(&given)).is_some_and(|word| word == "run");
    let option = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) if error.kind() == ErrorKind::UnknownArgument => option,
        _ => ui::end(error),
    };
    let command = crate::command();
    let subcommands = ["run", "train"].into_iter().filter_map(|name| command.find_subcommand(name));
    let mut flags =
        subcommands.flat_map(clap::Command::get_arguments).filter_map(clap::Arg::get_long);
    if !is_run || !flags.any(|flag| option.strip_prefix("--") == Some(flag)) {
        ui::end(error);
    }
    let told = "gsplit run takes its own options and those of gsplit convert before --, and those \
                of gsplit train after it";
    ui::refuse(&format!("{option}: {told}"), 2);
    std::process::exit(2)
}

/// Runs the steps.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    let (raw, folder) = args.places()?;
    let is_dataset = raw.join("dataset.json").is_file();
    let text = |name: &str, path: &Path| as_text(name, &as_argument(path)).map(str::to_string);
    let (input, named) = (text("INPUT", raw)?, text("--out", folder)?);
    let mut convert = args.merged.clone();
    let of_step =
        |step: &str| args.from_file.as_ref().map_or_else(Vec::new, |file| file.of_step(step));
    // Find a mistyped option before a step works for hours.
    let earlier = args.from.as_deref().map(Earlier::open).transpose()?;
    let of_earlier =
        earlier.as_ref().map_or_else(Vec::new, |earlier| earlier.of_train(&args.train));
    let train = chosen::for_links(&[args.train.clone(), of_earlier].concat());
    let parsed = args.training(&train, "x")?;
    let (config, gpus) =
        (parsed.checked()?, parsed.config.system.gpus.as_ref().map(ToString::to_string));
    let init = earlier.as_ref().map(|earlier| earlier.init(&config)).transpose()?;
    let needs_map = config.system.parallelism.needs_map();
    let with_presample = needs_map || config.system.device == Device::Cuda;
    if args.print_config {
        let dataset = if is_dataset { raw.to_path_buf() } else { folder.join("dataset") };
        let opened = dataset.exists().then(|| Dataset::open(&dataset)).transpose()?;
        return args.print(&[&input, &named], &convert, opened.as_ref(), &train, ui);
    }
    convert.extend(chosen::held_out(&args.convert, &config.data.task));
    if let (true, Some(word)) = (is_dataset, convert.first()) {
        return Err(usage(format!(
            "{word}: {input} is a dataset already, which is not converted: leave it out"
        )));
    }
    let option = |name: &str, value: Option<String>| value.map(|value| format!("--{name}={value}"));
    let on_gpu = [
        option("device", (config.system.device == Device::Cuda).then(|| "cuda".into())),
        option("gpus", gpus),
    ];
    let on_gpu: Vec<String> = on_gpu.into_iter().flatten().collect();
    let seed = option("seed", (config.run.seed != 0).then(|| config.run.seed.to_string()));

    let total =
        3 + [!is_dataset, with_presample, needs_map].into_iter().filter(|step| *step).count();
    let mut steps = Steps::new(raw, folder, args.fresh, args.dry_run, ui)?;
    let folder = &steps.work.clone();
    let dataset = if is_dataset { raw.to_path_buf() } else { folder.join("dataset") };
    let [data, out] = [text("--out", &dataset)?, text("--out", folder)?];
    if let Some(earlier) = earlier.as_ref().filter(|_| !is_dataset) {
        convert.extend(earlier.of_convert(&args.convert)?);
    }
    let of_table = [convert.clone(), chosen::of_convert(&args.convert, &config)].concat();
    let is_other = match is_dataset || (args.fresh && args.dry_run) {
        true => None,
        // The step itself reports problems with the input.
        false => outdated(raw, &dataset, &options_in(&of_table)?).ok().flatten(),
    };
    let graph = is_dataset.then(|| Dataset::open(raw)).transpose()?;
    let graph = graph.map(|dataset| dataset.fingerprint().to_string());
    let rest = init.iter().cloned().chain(graph).collect();
    let asked =
        [vec![input.clone()], of_table.clone(), vec!["--".into()], train.clone(), rest].concat();
    steps.start(total, asked, is_other.clone())?;
    if !is_dataset {
        let words = [vec![input.clone()], of_table, vec![format!("--out={data}")]].concat();
        let force = steps.replaces(&dataset, is_other.as_deref())?;
        steps.step("convert", words, Some(&dataset), force)?;
    }
    let opened =
        if args.dry_run && !dataset.exists() { None } else { Some(Dataset::open(&dataset)?) };
    if let Some(opened) = opened.as_ref().filter(|_| !args.dry_run) {
        chosen::check_ready(opened, &config, is_dataset)?;
    }
    let chosen = opened.as_ref().map(|opened| chosen::of_train(opened, &config, &train));
    let chosen = chosen.transpose()?.unwrap_or_else(|| {
        let follow = "--lr, --epochs and --patience, if not given, follow from the dataset";
        steps.say(&format!("train: {follow}: not known yet"));
        Vec::new()
    });
    let mut map = None;
    if with_presample {
        let is_link = config.data.task.is_link();
        let words = [
            Some(data.clone()),
            option("fanouts", Some(config.data.fanouts.to_string())),
            option("batch-size", Some(config.data.batch_size.to_string())),
            option("draw-by", config.data.draw_by.clone()),
            option("task", is_link.then(|| "link".into())),
            option("negatives", is_link.then(|| config.data.task.negatives.to_string())),
            seed.clone(),
        ];
        let words = words.into_iter().flatten().chain(on_gpu.clone());
        let words: Vec<String> = words.chain(of_step("presample")).collect();
        let key = options_in::<presample::Args>(&words)?.key();
        steps.step("presample", words, None, false)?;
        if needs_map {
            let servers =
                if config.system.parallelism.cooperates() { config.system.groups } else { 1 };
            let parts = [
                Some(data.clone()),
                option("parts", Some(config.num_parts().to_string())),
                option("servers", Some(servers.to_string())),
                option("presample", Some(key.clone())),
                seed,
            ];
            let words: Vec<String> =
                parts.into_iter().flatten().chain(of_step("partition")).collect();
            let key = options_in::<partition::Args>(&words)?.key(opened.as_ref(), &key);
            map = option("partition", config.system.partition.is_none().then_some(key));
            steps.step("partition", words, None, false)?;
        }
    } else {
        steps.say("presample and partition: left out, one rank needs neither");
    }
    let (checkpoint, log) =
        (format!("--checkpoint={out}/checkpoint"), format!("--log={out}/training.jsonl"));
    if !chosen.is_empty() {
        let stops = chosen.iter().any(|word| word.starts_with("--patience"));
        let until = if stops { ", until the valid score stops rising" } else { "" };
        let words = chosen.join(" ");
        steps.say(&format!("training with {words}{until}. Options of train after -- change this"));
    }
    let own = vec![checkpoint.clone(), "--resume".into(), log];
    let chosen = [chosen, init.into_iter().chain(map).collect()].concat();
    if let Some(earlier) = &earlier {
        let draws = !is_dataset
            && !config.data.task.is_link()
            && args.convert.read.schema.split_name.is_none();
        earlier.note(draws).iter().for_each(|note| steps.say(note));
    }
    steps.step(
        "train",
        [vec![data.clone()], train, chosen, own].concat(),
        Some(&folder.join("checkpoint")),
        false,
    )?;
    let recommends = config.data.task.is_link()
        && match args.dry_run {
            true => args.convert.read.schema.bipartite == Some(Answer::Yes),
            false => Dataset::open(&dataset)?.kinds()?.are_two(),
        };
    let (option, file) = match config.data.task.is_link() {
        false => ("--out", "predictions.parquet"),
        true if recommends => ("--out", "recommendations.parquet"),
        true => ("--embeddings", "embeddings.parquet"),
    };
    let is_said = of_step("infer").iter().any(|word| word.starts_with("--top="));
    let top = (recommends && !is_said).then(|| format!("--top={RECOMMENDATIONS}"));
    let result = folder.join(file);
    let file = format!("{option}={}", result.display());
    let words =
        [vec![data], on_gpu, vec![checkpoint, file], top.into_iter().collect(), of_step("infer")]
            .concat();
    // Predictions that were made this way already stay.
    let force = steps.record.made_by("infer").is_some();
    steps.step("infer", words, Some(&result), force)?;
    let elsewhere = is_dataset.then(|| format!("--dataset={}", dataset.display()));
    let words =
        [vec![out.clone(), format!("--out={out}/report.html")], elsewhere.into_iter().collect()]
            .concat();
    steps.step("report", words, Some(&folder.join("report.html")), false)?;
    steps.end(&dataset, &result)
}

/// Parses `words` as the options of a step.
fn options_in<A: clap::Args>(words: &[String]) -> anyhow::Result<A> {
    let command = A::augment_args(clap::Command::new("gsplit").no_binary_name(true));
    Ok(A::from_arg_matches(&command.try_get_matches_from(words)?)?)
}
