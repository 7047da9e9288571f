//! One configuration of `gsplit train`: defaults, then the preset, the file of `--config` and the
//! command line, each of which takes precedence over those before it; then the options that follow
//! from these.
//!
//! All of them are a [`Config`], as a tree of tables with an option at each leaf, where null is an
//! option that is not given.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;
use gsplit::describe::as_text;
use gsplit::ui::{as_text as text_of, usage};
use gsplit_kernels::CudaSurvey;
use gsplit_trainer::systems::System;
use gsplit_trainer::{Config, Device, Parallelism};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use toml::de::DeTable;

use super::Args;
use crate::system::map_options;

#[derive(Clone, Debug)]
pub struct File {
    path: PathBuf,
    text: String,
    pub content: Value,
    /// Lines of the options of train that the command line does not override, by their flags.
    lines: BTreeMap<String, usize>,
}

impl File {
    /// Reads the file at `path`, which must deserialize to a `T`.
    pub fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<(Self, T)> {
        let text = gsplit_store::read_text(path).map_err(gsplit_store::Error::io(path))?;
        let file =
            Self { path: path.to_path_buf(), text, content: Value::Null, lines: BTreeMap::new() };
        let complaint = |error: toml::de::Error| {
            let message = error.message().replace('\n', ", ");
            let line = file.line_at(error.span().map_or(0, |span| span.start));
            let is_unknown = message.starts_with("unknown field");
            let hint = if is_unknown { ": --print-config prints each in its table" } else { "" };
            usage(format!("{}:{line}: {message}{hint}", path.display()))
        };
        let typed: T = toml::from_str(&file.text).map_err(complaint)?;
        let content: Value = toml::from_str(&file.text).map_err(complaint)?;
        Ok((Self { content, ..file }, typed))
    }

    fn line_at(&self, byte: usize) -> usize {
        1 + self.text.get(..byte).unwrap_or(&self.text).matches('\n').count()
    }

    /// The line of `key` in `table`, whose name is empty at the top of the file.
    fn line_of(&self, table: &str, key: &str) -> Option<usize> {
        let document = DeTable::parse(&self.text).ok()?;
        let mut names = table.split('.').filter(|name| !name.is_empty());
        let table = names
            .try_fold(document.get_ref(), |table, name| table.get(name)?.get_ref().as_table())?;
        table
            .iter()
            .find(|(name, _)| name.get_ref() == key)
            .map(|(name, _)| self.line_at(name.span().start))
    }

    /// A complaint about `key` in `table`.
    pub fn complaint(&self, table: &str, key: &str, problem: &str) -> String {
        let line = self.line_of(table, key).map_or(String::new(), |line| format!("{line}:"));
        format!("{}:{line} {key}: {problem}", self.path.display())
    }

    /// Notes the lines of the options of train in `table`, except those that `line` has too.
    pub fn note_lines(&mut self, table: &str, line: &Value) {
        let below = |place: &str| {
            [table, place].into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(".")
        };
        let own = Config::default().options().into_iter().filter(|(_, option)| {
            line.pointer(&pointer(&option.table, &option.key)).is_none_or(Value::is_null)
        });
        let found = own.filter_map(|(flag, option)| {
            Some((flag, self.line_of(&below(&option.table), &option.key)?))
        });
        self.lines = found.collect();
    }

    /// Adds the place in the file to a complaint about an option `--flag ...` of train, if the file
    /// sets it.
    pub fn place(&self, complaint: String) -> String {
        let flag = complaint.strip_prefix("--").and_then(|rest| rest.split([' ', ':']).next());
        match flag.and_then(|flag| self.lines.get(flag)) {
            Some(line) => format!("{}:{line}: {complaint}", self.path.display()),
            None => complaint,
        }
    }
}

/// The JSON pointer of an option.
fn pointer(table: &str, key: &str) -> String {
    format!("/{}/{key}", table.replace('.', "/"))
}

/// Sets what `over` has in `tree`.
fn overlay(tree: &mut Value, over: &Value) {
    match (tree, over) {
        (Value::Object(tree), Value::Object(over)) => {
            over.iter().for_each(|(key, value)| {
                overlay(tree.entry(key.clone()).or_insert(Value::Null), value)
            });
        }
        (_, Value::Null) => {}
        (tree, over) => *tree = over.clone(),
    }
}

/// The parts of `tree` that `keeps`, by option and value.
fn filtered(config: &Config, keeps: impl Fn(&str, &str, &Value) -> bool) -> anyhow::Result<Value> {
    let tree = serde_json::to_value(config)?;
    let mut kept = Value::Object(Map::new());
    for (flag, option) in config.options() {
        let pointer = pointer(&option.table, &option.key);
        if keeps(&flag, &pointer, &option.value) {
            let nested = pointer.rsplit('/').filter(|name| !name.is_empty());
            let value = tree.pointer(&pointer).cloned().unwrap_or_default();
            overlay(
                &mut kept,
                &nested.fold(value, |value, name| {
                    Value::Object(Map::from_iter([(name.into(), value)]))
                }),
            );
        }
    }
    Ok(kept)
}

/// The options of `config` that are on the command line, by its matches.
pub fn on_line(config: &Config, given: &ArgMatches) -> anyhow::Result<Value> {
    let run = &config.run;
    let paths = [&run.checkpoint, &run.init, &run.log, &run.tensorboard];
    for (flag, path) in ["--checkpoint", "--init", "--log", "--tensorboard"].into_iter().zip(paths)
    {
        path.as_deref().map(|path| text_of(flag, path)).transpose()?;
    }
    filtered(config, |flag, _, _| is_on_line(given, flag))
}

/// Whether the command line has a value for the option `flag`.
pub fn is_on_line(given: &ArgMatches, flag: &str) -> bool {
    let id = flag.replace('-', "_");
    given.try_contains_id(&id).is_ok_and(|has| has)
        && given.value_source(&id) == Some(ValueSource::CommandLine)
}

/// The default configuration with what `tree` sets.
fn configured(tree: &Value) -> anyhow::Result<Config> {
    let mut whole = serde_json::to_value(Config::default())?;
    overlay(&mut whole, tree);
    Ok(serde_json::from_value(whole)?)
}

impl Args {
    /// Completes the configuration of the command line, whose matches are `given`, by the file, the
    /// preset, and what follows.
    pub fn complete(&mut self, given: &ArgMatches) -> anyhow::Result<()> {
        let line = on_line(&self.config, given)?;
        let mut set = Value::Object(Map::new());
        if let Some(path) = &self.file {
            let (mut file, _) = File::read::<Config>(path)?;
            file.note_lines("", &line);
            set = file.content.clone();
            self.from_file = Some(file);
        }
        overlay(&mut set, &line);
        let mut config = configured(&set)?;
        let preset = config.system.preset.as_deref().map(System::find).transpose();
        let preset = preset.map_err(|problem| usage(format!("--preset: {problem}")))?;
        if let Some(system) = preset {
            let mut own = Config::default();
            own.system.device = config.system.device;
            system.apply(&mut own);
            let defaults = serde_json::to_value(Config::default())?;
            let mut own =
                filtered(&own, |_, pointer, value| defaults.pointer(pointer) != Some(value))?;
            overlay(&mut own, &set);
            set = own;
            config = configured(&set)?;
        }
        self.follow(&mut config, |table, key| {
            set.pointer(&pointer(table, key)).is_none_or(Value::is_null)
        });
        if let (Some(system), None) = (preset, &config.system.partition) {
            let parts = if system.draws() { config.ranks_of_group() } else { config.num_ranks() };
            let map = map_options(system, parts as u32, config.system.groups as u32, 0);
            config.system.partition = map.map(|map| map.default_key());
        }
        self.config = config;
        Ok(())
    }

    /// Sets the options that follow from others where they are open: a layer for each fanout; one
    /// rank on the CPU, one for each GPU, one for each process that a launcher has started.
    fn follow(&self, config: &mut Config, is_open: impl Fn(&str, &str) -> bool) {
        if is_open("model", "layers") && !is_open("data", "fanouts") {
            config.model.layers = config.data.fanouts.len();
        }
        let system = &mut config.system;
        let gpus = match (system.device, &system.gpus) {
            (Device::Cpu, _) => None,
            (Device::Cuda, Some(named)) => Some(named.0.len()),
            (Device::Cuda, None) => CudaSurvey::look().gpus.ok().map(|gpus| gpus.len()),
        };
        let launched = gsplit::launch::Launch::has_several();
        let ranks = if launched { None } else { system.ranks.or(gpus.filter(|&gpus| gpus > 0)) };
        let of_several = ["partition", "groups", "split_layers"];
        let several = launched
            || ranks.is_some_and(|ranks| ranks != 1)
            || of_several.iter().any(|key| !is_open("system", key));
        if is_open("system", "parallelism") {
            system.parallelism = if several { Parallelism::Split } else { Parallelism::Single };
        } else if system.parallelism == Parallelism::Single {
            return;
        }
        if is_open("system", "ranks") {
            system.ranks = ranks;
        }
    }
}

/// `config` as a file, with the names of its tables below `step` if that is not empty. Unset
/// options are comments with their current values: if written out, they would no longer follow the
/// options that they depend on. The options `untold` are left out.
pub fn to_toml(config: &Config, step: &str, untold: &[&str]) -> String {
    let given = config.options();
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (flag, option) in config.effective().options() {
        let Some(value) = literal(&option.value).filter(|_| !untold.contains(&flag.as_str()))
        else {
            continue;
        };
        let open =
            if given.get(&flag).is_none_or(|option| option.value.is_null()) { "# " } else { "" };
        let name: Vec<&str> =
            [step, &option.table].into_iter().filter(|name| !name.is_empty()).collect();
        let lines = tables.entry(name.join(".")).or_default();
        let at = if option.key == "kind" { 0 } else { lines.len() };
        lines.insert(at, format!("{open}{} = {value}", option.key));
    }
    tables
        .iter()
        .map(|(name, lines)| format!("[{name}]\n{}", lines.join("\n")))
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// `value` in TOML; `None` for null.
fn literal(value: &Value) -> Option<String> {
    toml::Value::try_from(value).ok().map(|value| value.to_string())
}

/// The options `options` as arguments of the command line.
pub fn as_words(options: impl IntoIterator<Item = (String, Value)>) -> Vec<String> {
    let word = |(flag, value): (String, Value)| match &value {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some(format!("--{flag}")),
        value => Some(format!("--{flag}={}", as_text(value))),
    };
    options.into_iter().filter_map(word).collect()
}

/// The options of train that `tree` has, by their flags.
pub fn options_of(tree: &Value) -> Vec<(String, Value)> {
    let value = |(flag, option): (String, gsplit_trainer::ConfigOption)| {
        tree.pointer(&pointer(&option.table, &option.key)).map(|value| (flag, value.clone()))
    };
    Config::default().options().into_iter().filter_map(value).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};

    use super::*;

    fn parsed(words: &[&str]) -> (Config, ArgMatches) {
        let given = Config::augment_args(Command::new("train").no_binary_name(true))
            .try_get_matches_from(words)
            .unwrap();
        (Config::from_arg_matches(&given).unwrap(), given)
    }

    #[test]
    fn every_flag_has_its_place_in_the_file_and_names_are_the_same_there() {
        let command = Config::augment_args(Command::new("train"));
        command.clone().debug_assert();
        let options = parsed(&[]).0.options();
        // --threads is an option of every subcommand.
        assert_eq!(command.get_arguments().count() + 1, options.len(), "{:?}", options.keys());
        for arg in command.get_arguments() {
            let flag = arg.get_long().unwrap();
            assert!(options.contains_key(flag), "--{flag}");
            for value in
                arg.get_possible_values().iter().filter(|_| arg.get_action().takes_values())
            {
                let (config, _) = parsed(&[&format!("--{flag}={}", value.get_name())]);
                assert_eq!(config.options()[flag].value, value.get_name(), "--{flag}");
            }
        }
        assert_eq!(parsed(&[]).0, Config::default(), "the command line without options");
        let place = |flag: &str| (options[flag].table.as_str(), options[flag].key.as_str());
        assert_eq!(place("model"), ("model", "kind"));
        assert_eq!(place("weight-decay"), ("run.optimizer", "weight_decay"));
    }

    #[test]
    fn what_is_given_last_wins_and_prints_itself() {
        let (config, given) =
            parsed(&["--lr", "0.5", "--task", "link", "--gpus", "0,1", "--resume"]);
        let line = on_line(&config, &given).unwrap();
        assert_eq!(line["run"], serde_json::json!({ "optimizer": { "lr": 0.5 }, "resume": true }));
        let mut set = serde_json::json!({ "run": { "epochs": 3, "optimizer": { "lr": 0.1, "staleness": 2 } } });
        overlay(&mut set, &line);
        let config = configured(&set).unwrap();
        let of = &config.run.optimizer;
        assert_eq!((config.run.epochs, of.lr, of.staleness), (3, 0.5, 2));
        let printed = to_toml(&config, "", &[]);
        assert!(
            printed.contains("# betas = \"0.9,0.999\"") && !printed.contains("momentum"),
            "{printed}"
        );
        assert_eq!(toml::from_str::<Config>(&printed).unwrap(), config, "{printed}");
        let words = as_words(options_of(&line));
        assert_eq!(words, ["--gpus=0,1", "--lr=0.5", "--resume", "--task=link"]);
    }
}
