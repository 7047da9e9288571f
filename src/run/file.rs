//! `gsplit run --config FILE`: the whole run in one TOML file.
//!
//! ```text
//! input, out, from            at the top
//! [convert]                   options of gsplit convert
//! [convert.schema]            keys of its schema
//! [presample] [partition]     options of these steps that do not follow from training
//! [train.data] [train.model] [train.system] [train.run]
//!                             a file of gsplit train, in the table `train`
//! [infer]                     options of gsplit infer, except the ones that the run chooses
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Args as _, Command};
use gsplit::ui::{self, Ui, as_text, usage};
use gsplit::{describe, partition, presample};
use gsplit_preprocess::convert::ConvertOptions;
use gsplit_store::{Dataset, as_argument};
use gsplit_trainer::Config;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Args, CHOSEN, COMMON, chosen, of_convert};
use crate::infer;
use crate::train::{self, File, as_words, is_on_line, on_line, options_of, to_toml};

/// Options of the other steps that follow from training or are chosen by the run.
const FOLLOW: &str = "fanouts batch-size draw-by task negatives seed device gpus parts servers presample force \
    report import by-original-id checkpoint out embeddings nodes edges help";
/// Options that depend on the dataset if left open; the rate only if the optimizer is left open
/// too.
const OF_DATASET: [&str; 4] = ["lr", "optimizer", "epochs", "patience"];

/// The content of a file; options of steps are checked by the commands that they are for.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RunFile {
    input: Option<PathBuf>,
    out: Option<PathBuf>,
    from: Option<PathBuf>,
    convert: Map<String, Value>,
    presample: Map<String, Value>,
    partition: Map<String, Value>,
    /// Read again as a part of the command line of train.
    #[serde(rename = "train")]
    _train: Config,
    infer: Map<String, Value>,
}

/// The file of a run, and its options of each step as arguments.
#[derive(Clone)]
pub struct FileOfRun {
    file: File,
    steps: BTreeMap<&'static str, Vec<String>>,
}

impl FileOfRun {
    /// Options of `step`.
    pub fn of_step(&self, step: &str) -> Vec<String> {
        self.steps.get(step).cloned().unwrap_or_default()
    }
}

/// The arguments of `command` for the options in the table `step` of `file`, each checked on its
/// own, without the options that `is_given` or that follow from other steps.
fn step_words(
    file: &File,
    step: &str,
    options: &Map<String, Value>,
    command: &Command,
    is_given: impl Fn(&str) -> bool,
) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    for (key, value) in options {
        let complaint = |problem: &str| file.complaint(step, key, problem);
        let flag = key.replace('_', "-");
        let own = |arg: &&Arg| {
            arg.get_long() == Some(flag.as_str())
                && (step == "convert" || FOLLOW.split(' ').all(|follows| follows != flag))
        };
        let arg = command.get_arguments().find(own);
        let arg = arg.ok_or_else(|| {
            complaint(&format!("no such option in [{step}]: gsplit {step} --help has all"))
        })?;
        if is_given(&flag) {
            continue;
        }
        let several =
            matches!(arg.get_action(), ArgAction::Append) && arg.get_value_delimiter().is_none();
        match (arg.get_action().takes_values(), value) {
            (false, Value::Bool(set)) => words.extend(set.then(|| format!("--{flag}"))),
            (false, other) => {
                return Err(complaint(&format!("expected true or false, got {other}")));
            }
            (true, value) => {
                let items = match value {
                    Value::Array(items) if several => items.clone(),
                    Value::Object(keys) if several => keys
                        .iter()
                        .map(|(key, value)| Value::from(schema_word(key, value)))
                        .collect(),
                    value => vec![value.clone()],
                };
                for item in &items {
                    let word = checked(arg, &flag, &describe::as_text(item));
                    words.push(word.map_err(|problem| complaint(&problem))?);
                }
            }
        }
    }
    Ok(words)
}

/// A key of the schema and its value, as a word of the command line.
fn schema_word(key: &str, value: &Value) -> String {
    match value {
        Value::String(text) => format!("{key}={text}"),
        Value::Bool(answer) => format!("{key}={}", if *answer { "yes" } else { "no" }),
        // An array of JSON is one of TOML.
        value => format!("{key}={value}"),
    }
}

/// `--flag=text`, if `text` is a value of `arg`.
fn checked(arg: &Arg, flag: &str, text: &str) -> Result<String, String> {
    let same = Arg::new("value").long("value").value_parser(arg.get_value_parser().clone());
    let called = [" for '", "--value", " <value>'"].concat();
    let alone = Command::new("gsplit")
        .no_binary_name(true)
        .disable_help_flag(true)
        .disable_version_flag(true);
    let problem = alone.arg(same).try_get_matches_from([format!("--value={text}")]).err();
    problem.map_or(Ok(format!("--{flag}={text}")), |error| {
        // `error: invalid value 'x' for '--value <value>': the reason`, and perhaps `[possible
        // values: ...]`.
        let told = ui::plainly(&error);
        let lines = told.lines().take_while(|line| !line.is_empty()).map(str::trim);
        let told = lines.collect::<Vec<_>>().join(" ").replace(&called, "");
        Err(told.trim_start_matches("error: ").to_string())
    })
}

/// Parses `words` like `gsplit train` does.
fn training(words: &[String], dataset: &str) -> anyhow::Result<train::Args> {
    let line = ["gsplit", "train", dataset].into_iter().chain(words.iter().map(String::as_str));
    match crate::completed(line.map(OsString::from).collect())?.command {
        crate::TrainerCommand::Train(args) => Ok(*args),
        _ => unreachable!("the line says train"),
    }
}

/// `line` with the options of `file` added that it has not.
pub fn merged(line: Vec<OsString>, file: &FileOfRun) -> Vec<OsString> {
    let words = [file.of_step(""), file.of_step("convert")].concat();
    let mut line = crate::with_arguments(line.into_iter(), &words);
    let at = line.iter().position(|word| word == "--").unwrap_or_else(|| {
        line.push("--".into());
        line.len() - 1
    });
    line.splice(at + 1..at + 1, file.of_step("train").into_iter().map(OsString::from));
    line
}

impl Args {
    /// Reads the file of --config, if given, for the options that `given` (the matches of `gsplit
    /// run`) does not set.
    pub fn read_file(&self, given: &ArgMatches) -> anyhow::Result<Option<FileOfRun>> {
        let Some(path) = &self.file else { return Ok(None) };
        let (mut file, run) = File::read::<RunFile>(path)?;
        let behind =
            ["gsplit", "train", "x"].into_iter().chain(self.train.iter().map(String::as_str));
        let behind = crate::command().try_get_matches_from(behind).ok();
        let behind = behind.as_ref().and_then(|given| given.subcommand_matches("train"));
        let is_behind = |flag: &str| behind.is_some_and(|given| is_on_line(given, flag));
        let line = match behind {
            Some(given) => on_line(&training(&self.train, "x")?.config, given)?,
            None => Value::Null,
        };
        file.note_lines("train", &line);
        let places = [("input", &run.input), ("out", &run.out), ("from", &run.from)];
        let places = places.into_iter().filter(|(name, _)| !is_on_line(given, name));
        let places = places.filter_map(|(name, path)| Some((name, path.as_deref()?)));
        let text = |(name, path): (&str, &Path)| match name {
            "input" => as_text(name, &as_argument(path)).map(str::to_string),
            _ => Ok(format!("--{name}={}", as_text(name, path)?)),
        };
        let mut steps = BTreeMap::from([("", places.map(text).collect::<anyhow::Result<_>>()?)]);
        let of_train =
            options_of(&file.content["train"]).into_iter().filter(|(flag, _)| !is_behind(flag));
        steps.insert("train", as_words(of_train));
        let commands = [
            ("convert", &run.convert, ConvertOptions::augment_args(Command::new("convert"))),
            ("presample", &run.presample, presample::Args::augment_args(Command::new("presample"))),
            ("partition", &run.partition, partition::Args::augment_args(Command::new("partition"))),
            ("infer", &run.infer, infer::Args::augment_args(Command::new("infer"))),
        ];
        for (step, options, command) in commands {
            // Keys of the schema on the command line come after the keys of the file, and win.
            let is_key = |flag: &str| {
                let mut parts = given.get_raw("schema").into_iter().flatten();
                parts.any(|part| part.to_string_lossy().split('=').next() == Some(flag))
            };
            let is_given = |flag: &str| {
                step == "convert" && flag != "schema" && (is_on_line(given, flag) || is_key(flag))
            };
            steps
                .insert(step, step_words(&file, step, options, &command, is_given).map_err(usage)?);
        }
        Ok(Some(FileOfRun { file, steps }))
    }

    /// Stores the file, if there is one, and the options of convert in `given`, which come from the
    /// command line and the file.
    pub fn came_from(&mut self, file: Option<FileOfRun>, given: &ArgMatches) {
        (self.from_file, self.merged) = (file, of_convert(given));
    }

    /// The input and the output folder.
    pub fn places(&self) -> anyhow::Result<(&Path, &Path)> {
        let missing = |key: &str| {
            let file = self.file.as_deref().unwrap_or(Path::new("")).display();
            usage(format!(
                "{file}: has no `{key}`: add it at the top of the file, or name it on the command \
                 line"
            ))
        };
        let input = self.input.as_deref().ok_or_else(|| missing("input"))?;
        Ok((input, self.out.as_deref().ok_or_else(|| missing("out"))?))
    }

    /// The options of train in `words`, completed and checked.
    pub fn training(&self, words: &[String], dataset: &str) -> anyhow::Result<train::Args> {
        for word in words {
            let flag = word
                .strip_prefix("--")
                .map(|flag| flag.split('=').next().unwrap_or(flag))
                .unwrap_or_default();
            if CHOSEN.contains(&flag) {
                return Err(usage(format!(
                    "{word}: is chosen by gsplit run: leave it out, or call gsplit train"
                )));
            }
            if COMMON.contains(&flag) {
                return Err(usage(format!("{word}: is for all steps: give it before --")));
            }
        }
        let args = training(words, dataset)?;
        match (args.checked(), &self.from_file) {
            (Err(error), Some(file)) => Err(usage(file.file.place(error.to_string()))),
            (checked, _) => checked.map(|_| args),
        }
    }

    /// Prints the run as a file for --config: `named` holds its input and folder, `train` the
    /// options of train. Options that depend on the dataset are included if the dataset exists.
    pub fn print(
        &self,
        [input, out]: &[&str; 2],
        convert: &[String],
        dataset: Option<&Dataset>,
        train: &[String],
        ui: &Ui,
    ) -> anyhow::Result<()> {
        let args = self.training(train, "x")?;
        let follow = dataset
            .map(|dataset| chosen::of_train(dataset, &args.checked()?, train))
            .transpose()?;
        let args = self.training(&[train, follow.as_deref().unwrap_or_default()].concat(), "x")?;
        let of_step =
            |step: &str| self.from_file.as_ref().map_or_else(Vec::new, |file| file.of_step(step));
        let from = self.from.as_deref().map(|from| as_text("--from", from)).transpose()?;
        let places = [("input", Some(*input)), ("out", Some(*out)), ("from", from)];
        let places =
            places.into_iter().filter_map(|(key, path)| Some(format!("--{key}={}", path?)));
        let mut sections = vec![words_to_toml("", &places.collect::<Vec<_>>())];
        let of_file = ["presample", "partition", "infer"].map(|step| (step, of_step(step)));
        let steps = [("convert", convert.to_vec())].into_iter().chain(of_file);
        let steps = steps.filter(|(_, words)| !words.is_empty());
        sections.extend(steps.map(|(step, words)| words_to_toml(step, &words)));
        let is_untold = |flag: &&str| follow.is_none() && !chosen::has(train, flag);
        let untold: Vec<&str> = OF_DATASET.into_iter().filter(is_untold).collect();
        if !untold.is_empty() {
            sections.push(format!(
                "# left open, since they follow from the dataset: {}",
                untold.join(", ")
            ));
        }
        sections.push(to_toml(&args.config, "train", &untold));
        let text = sections.join("\n\n");
        ui.json(&json!({ "config": toml::from_str::<toml::Value>(&text)? }));
        text.lines().for_each(|line| ui.say(line));
        Ok(())
    }
}

/// The arguments `words`, each `--flag` or `--flag=value`, as the table `name` of a file.
fn words_to_toml(name: &str, words: &[String]) -> String {
    let line = |word: &String| {
        let word = word.trim_start_matches('-');
        let (flag, value) =
            word.split_once('=').map_or((word, None), |(flag, value)| (flag, Some(value)));
        let value = value
            .map_or("true".to_string(), |text| toml::Value::String(text.to_string()).to_string());
        format!("{} = {value}", flag.replace('-', "_"))
    };
    let (parts, others): (Vec<&String>, Vec<&String>) =
        words.iter().partition(|word| word.starts_with("--schema="));
    let mut lines: Vec<String> = others.into_iter().map(line).collect();
    if !parts.is_empty() {
        let parts: Value = parts.iter().map(|word| word.trim_start_matches("--schema=")).collect();
        lines.push(format!("schema = {parts}"));
    }
    let lines = lines.join("\n");
    if name.is_empty() { lines } else { format!("[{name}]\n{lines}") }
}
