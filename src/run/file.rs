//! `gsplit run --config FILE`: the whole run in one TOML file.
//!
//! ```text
//! input, out, from            at the top
//! [convert]                   options of gsplit convert
//! [presample] [partition]     options of these steps that do not follow from training
//! [train] [train.model] ...   a file of gsplit train, in the table `train`
//! [infer]                     options of gsplit infer, except the ones that the run chooses
//! ```

use std::ffi::OsString;
use std::path::Path;

use clap::{ArgMatches, Args as _, Command};
use gsplit::ui::{Ui, as_text, usage};
use gsplit::{partition, presample};
use gsplit_preprocess::convert::ConvertOptions;
use gsplit_store::{Dataset, as_argument};
use serde_json::json;

use super::{Args, CHOSEN, COMMON, chosen, of_convert};
use crate::infer;
use crate::train::{self, ConfigFile, OptionKeys, is_on_line, words_to_toml};

/// Options of the other steps that follow from training or are chosen by the run.
const FOLLOW: [&str; 21] = [
    "fanouts",
    "batch-size",
    "draw-by",
    "task",
    "negatives",
    "seed",
    "device",
    "gpus",
    "parts",
    "servers",
    "presample",
    "force",
    "report",
    "import",
    "by-original-id",
    "checkpoint",
    "out",
    "embeddings",
    "nodes",
    "edges",
    "help",
];
/// Options that depend on the dataset if left open; the rate only if the optimizer is left open too.
const OF_DATASET: [&str; 4] = ["lr", "optimizer", "epochs", "patience"];

/// The places of all options of a run; `command` is the built command of gsplit-train.
fn places(command: &Command) -> anyhow::Result<OptionKeys> {
    let step = |name: &str, step: Command| {
        OptionKeys::of_run(
            name,
            step.get_arguments().filter(|arg| arg.get_long().is_some_and(|flag| !FOLLOW.contains(&flag))),
        )
    };
    let own = command.find_subcommand("run").map(|run| {
        let is_own = |arg: &&clap::Arg| ["input", "out", "from"].contains(&arg.get_id().as_str());
        OptionKeys::of_run("", run.get_arguments().filter(is_own))
    });
    let convert = OptionKeys::of_run("convert", ConvertOptions::augment_args(Command::new("convert")).get_arguments());
    let any = training(&[], "x")?.checked()?;
    let train = command.find_subcommand("train").map(|train| OptionKeys::new(train, &any));
    let all = own.into_iter().fold(convert, OptionKeys::with);
    let all = all
        .with(step("presample", presample::Args::augment_args(Command::new("presample"))))
        .with(step("partition", partition::Args::augment_args(Command::new("partition"))))
        .with(step("infer", infer::Args::augment_args(Command::new("infer"))));
    let without = [&CHOSEN[..], &COMMON].concat();
    Ok(train.into_iter().fold(all, |all, train| all.with(train.below("train", &without))))
}

/// Parses `words` like `gsplit train` does.
fn training(words: &[String], dataset: &str) -> anyhow::Result<train::Args> {
    let line = ["gsplit", "train", dataset].into_iter().chain(words.iter().map(String::as_str));
    match crate::completed(line.map(OsString::from).collect())?.command {
        crate::TrainerCommand::Train(args) => Ok(*args),
        _ => unreachable!("the line says train"),
    }
}

/// `line` with the options of `file` added.
pub fn merged(line: Vec<OsString>, file: &ConfigFile) -> Vec<OsString> {
    let positional = |word: String| match word.strip_prefix("--input=") {
        Some(input) => as_argument(Path::new(input)).to_string_lossy().into_owned(),
        None => word,
    };
    let words: Vec<String> = file.of_step("").into_iter().map(positional).chain(file.of_step("convert")).collect();
    let mut line = crate::with_arguments(line.into_iter(), &words);
    let at = line.iter().position(|word| word == "--").unwrap_or_else(|| {
        line.push("--".into());
        line.len() - 1
    });
    line.splice(at + 1..at + 1, file.of_step("train").into_iter().map(OsString::from));
    line
}

impl Args {
    /// Reads the file of --config, if given, for the options that `given` (the matches of `gsplit run` by `command`) does not set.
    pub fn read_file(&self, command: &Command, given: &ArgMatches) -> anyhow::Result<Option<ConfigFile>> {
        let Some(path) = &self.file else { return Ok(None) };
        let behind = ["gsplit", "train", "x"].into_iter().chain(self.train.iter().map(String::as_str));
        let behind = command.clone().try_get_matches_from(behind).ok();
        let behind = behind.as_ref().and_then(|given| given.subcommand_matches("train"));
        let is_given = |table: &str, arg: &clap::Arg| match table.split('.').next() {
            Some("train") => behind.is_some_and(|given| is_on_line(given, arg)),
            Some("" | "convert") => is_on_line(given, arg),
            _ => false,
        };
        ConfigFile::read(path, &places(command)?, is_given).map(Some)
    }

    /// Stores the file, and the options of convert in `given`, which come from the command line and the file.
    pub fn came_from(&mut self, file: ConfigFile, given: Option<&ArgMatches>) {
        (self.from_file, self.merged) = (Some(file), Some(of_convert(given)));
    }

    /// The input and the output folder.
    pub fn places(&self) -> anyhow::Result<(&Path, &Path)> {
        let missing = |key: &str| {
            let file = self.file.as_deref().unwrap_or(Path::new("")).display();
            usage(format!("{file}: has no `{key}`: add it at the top of the file, or name it on the command line"))
        };
        let input = self.input.as_deref().ok_or_else(|| missing("input"))?;
        Ok((input, self.out.as_deref().ok_or_else(|| missing("out"))?))
    }

    /// The options of train in `words`, completed and checked.
    pub fn training(&self, words: &[String], dataset: &str) -> anyhow::Result<train::Args> {
        for word in words {
            let flag = word.strip_prefix("--").map(|flag| flag.split('=').next().unwrap_or(flag)).unwrap_or_default();
            if CHOSEN.contains(&flag) {
                return Err(usage(format!("{word}: is chosen by gsplit run: leave it out, or call gsplit train")));
            }
            if COMMON.contains(&flag) {
                return Err(usage(format!("{word}: is for all steps: give it before --")));
            }
        }
        let args = training(words, dataset)?;
        match (args.checked(), &self.from_file) {
            (Err(error), Some(file)) => Err(usage(file.place(error.to_string()))),
            (checked, _) => checked.map(|_| args),
        }
    }

    /// Fails if the file has options of a step that the run skips.
    pub fn check_steps(&self, is_dataset: bool, with_presample: bool, needs_map: bool) -> anyhow::Result<()> {
        let Some(file) = &self.from_file else { return Ok(()) };
        let problems = [
            ("convert", is_dataset, "the input is a dataset already, which is not converted"),
            ("presample", !with_presample, "the run presamples nothing, since no graph is cut for its ranks"),
            ("partition", !needs_map, "the run cuts no graph, since its ranks need no partition"),
        ];
        let left_out = problems.into_iter().filter(|(_, is_left_out, _)| *is_left_out);
        match left_out.filter_map(|(step, _, why)| file.complaint_of(step, why)).next() {
            Some(problem) => Err(usage(problem)),
            None => Ok(()),
        }
    }

    /// Prints the run as a file for --config: `named` holds its input and folder, `train` the options of train. Options
    /// that depend on the dataset are included if the dataset exists.
    pub fn print(
        &self,
        [input, out]: &[&str; 2],
        convert: &[String],
        dataset: Option<&Dataset>,
        train: &[String],
        ui: &Ui,
    ) -> anyhow::Result<()> {
        let args = self.training(train, "x")?;
        let follow = dataset.map(|dataset| chosen::of_train(dataset, &args.checked()?, train)).transpose()?;
        let args = self.training(&[train, follow.as_deref().unwrap_or_default()].concat(), "x")?;
        let of_step = |step: &str| self.from_file.as_ref().map_or_else(Vec::new, |file| file.of_step(step));
        let from = self.from.as_deref().map(|from| as_text("--from", from)).transpose()?;
        let places = [("input", Some(*input)), ("out", Some(*out)), ("from", from)];
        let places = places.into_iter().filter_map(|(key, path)| Some(format!("--{key}={}", path?)));
        let mut sections = vec![words_to_toml("", &places.collect::<Vec<_>>())];
        let steps =
            [("convert", convert.to_vec()), ("presample", of_step("presample")), ("partition", of_step("partition"))];
        let steps = steps.into_iter().chain([("infer", of_step("infer"))]).filter(|(_, words)| !words.is_empty());
        sections.extend(steps.map(|(step, words)| words_to_toml(step, &words)));
        let is_untold = |flag: &&str| follow.is_none() && !chosen::has(train, flag);
        let untold: Vec<&str> = OF_DATASET.into_iter().filter(is_untold).collect();
        if !untold.is_empty() {
            sections.push(format!("# left open, since they follow from the dataset: {}", untold.join(", ")));
        }
        sections.push(args.in_run_file(&untold)?);
        let text = sections.join("\n\n");
        ui.json(&json!({ "config": toml::from_str::<toml::Value>(&text)? }));
        text.lines().for_each(|line| ui.say(line));
        Ok(())
    }
}
