//! `gsplit train --config FILE` and `gsplit run --config FILE`: options from a TOML file.
//!
//! The file may have every option of the command line, with `_` for `-`: options of the model, the optimizer ... in
//! tables with these names, where `kind` is the table's own flag (`[model] kind = "sage"` is `--model sage`); options
//! around a run (`checkpoint`, `log`, `threads` ...) in `[run]`; the others at the top. The file is turned into
//! arguments of the command line, so that options are defined in one place, and the command line itself takes
//! precedence. Every value is first checked on its own, so that an error can name its line.
//!
//! A file of `gsplit run` has a table for each step: `[train]`, `[train.model]` ... are the tables of a file of `gsplit train`.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command};
use gsplit_trainer::{ConfigOption, TrainConfig};
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use gsplit::ui::{self, usage};

/// The table of the options that are not part of [`TrainConfig`].
const RUN: &str = "run";
/// Options that a file cannot have.
const NOT_IN_FILES: [&str; 9] =
    ["dataset", "config", "print-config", "force", "help", "help-all", "version", "json", "quiet"];

/// Places of options in a file: the table (names of nested ones joined with points) and the key.
pub struct OptionKeys {
    /// The subcommand whose --print-config shows all of them.
    command: &'static str,
    options: BTreeMap<(String, String), Arg>,
}

/// An option that the command line leaves to the file.
#[derive(Clone, Debug)]
struct Taken {
    table: String,
    flag: String,
    line: usize,
    /// Its arguments.
    words: Vec<String>,
}

/// A configuration file's options.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
    taken: Vec<Taken>,
}

impl OptionKeys {
    /// The places of all options of `train`, a built command; `config` is any configuration.
    pub fn new(train: &Command, config: &TrainConfig) -> Self {
        let options = config.options();
        let places = train.get_arguments().filter_map(|arg| {
            let flag = arg.get_long().filter(|flag| !NOT_IN_FILES.contains(flag))?;
            let place = match options.get(flag) {
                Some(ConfigOption { table, key, .. }) => (table.clone().unwrap_or_default(), key.clone()),
                None => (RUN.to_string(), flag.replace('-', "_")),
            };
            Some((place, arg.clone()))
        });
        Self { command: "train", options: places.collect() }
    }

    /// The places of the `options` of a step of `gsplit run` in the table `step`, or at the top of the file if that is empty.
    pub fn of_run<'a>(step: &str, options: impl Iterator<Item = &'a Arg>) -> Self {
        let place = |arg: &Arg| ((step.to_string(), arg.get_id().as_str().replace('-', "_")), arg.clone());
        Self { command: "run", options: options.map(place).collect() }
    }

    /// These places without the options `flags`, with their tables below `table`.
    pub fn below(self, table: &str, without: &[&str]) -> Self {
        let kept = self.options.into_iter().filter(|(_, arg)| !without.contains(&arg.get_long().unwrap_or_default()));
        let place = |((inner, key), arg): ((String, String), Arg)| {
            let inner = if inner.is_empty() { table.to_string() } else { format!("{table}.{inner}") };
            ((inner, key), arg)
        };
        Self { options: kept.map(place).collect(), ..self }
    }

    /// These places and `others`.
    pub fn with(mut self, others: Self) -> Self {
        self.options.extend(others.options);
        self
    }

    fn tables(&self) -> Vec<String> {
        let mut tables: Vec<String> = self.options.keys().map(|(table, _)| format!("[{table}]")).collect();
        tables.dedup();
        tables.retain(|table| table != "[]");
        tables
    }

    fn has_table(&self, name: &str) -> bool {
        !name.is_empty() && self.options.keys().any(|(table, _)| table == name)
    }

    fn find(&self, table: &str, key: &str) -> Result<&Arg, String> {
        if let Some(arg) = self.options.get(&(table.to_string(), key.to_string())) {
            return Ok(arg);
        }
        let shown = |(table, key): &(String, String)| match table.as_str() {
            "" => format!("`{key}` at the top of the file"),
            table => format!("`{key}` in [{table}]"),
        };
        let flag = key.replace('_', "-");
        // An option in the wrong place (perhaps under the name of its flag), or a misspelt one.
        // Search the table of the step first.
        let near = |(inner, _): &&(String, String)| !inner.starts_with(table);
        let mut places: Vec<(&(String, String), &Arg)> = self.options.iter().collect();
        places.sort_by_key(|(place, _)| near(place));
        let elsewhere = places.iter().find(|((_, name), arg)| name == key || arg.get_long() == Some(flag.as_str()));
        let similar = || {
            let keys = places.iter().map(|(place, _)| *place).map(|place| (ui::distance(key, &place.1), place));
            keys.filter(|(distance, _)| *distance <= 2).min_by_key(|(distance, _)| *distance).map(|(_, place)| place)
        };
        Err(match elsewhere.map(|(place, _)| *place).or_else(similar) {
            Some(place) => format!("no such option here: did you mean {}?", shown(place)),
            None => format!("no such option: `gsplit {} --print-config` shows all", self.command),
        })
    }
}

impl ConfigFile {
    /// Reads the file at `path` and checks each of its values; `is_given` says which options of a table the command line has.
    ///
    /// # Errors
    /// One line that names file and line, for anything that is not TOML, not an option, or not a value of its option.
    pub fn read(path: &Path, places: &OptionKeys, is_given: impl Fn(&str, &Arg) -> bool) -> anyhow::Result<Self> {
        let text = gsplit_store::read_text(path).map_err(gsplit_store::Error::io(path))?;
        let line_of = |at: usize| 1 + text.get(..at).unwrap_or(&text).matches('\n').count();
        let complaint = |at: usize, what: &str| usage(format!("{}:{}: {what}", path.display(), line_of(at)));
        let document = DeTable::parse(&text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            complaint(at, &error.message().replace('\n', ", "))
        })?;
        let mut found = Vec::new();
        entries("", document.get_ref(), places, &mut found).map_err(|(at, table)| {
            complaint(at, &format!("[{table}]: no such table: there are {}", places.tables().join(", ")))
        })?;
        found.sort_by_key(|(_, key, _)| key.span().start);
        let mut taken = Vec::new();
        for (table, key, value) in found {
            let at = key.span().start;
            let name = key.get_ref();
            let shown = |reason: String| complaint(at, &format!("{name}: {reason}"));
            let arg = places.find(&table, name).map_err(shown)?;
            let words = arguments(arg, value.get_ref()).map_err(shown)?;
            if !is_given(&table, arg) {
                let flag = arg.get_long().unwrap_or_default().to_string();
                taken.push(Taken { table, flag, line: line_of(at), words });
            }
        }
        Ok(Self { path: path.to_path_buf(), taken })
    }

    /// The options of the file as arguments.
    pub fn arguments(&self) -> Vec<String> {
        self.taken.iter().flat_map(|taken| taken.words.clone()).collect()
    }

    /// Arguments for the options in the table `step` and in the tables below it.
    pub fn of_step(&self, step: &str) -> Vec<String> {
        self.in_step(step).flat_map(|taken| taken.words.clone()).collect()
    }

    fn in_step<'a>(&'a self, step: &'a str) -> impl Iterator<Item = &'a Taken> {
        self.taken.iter().filter(move |taken| taken.table.split('.').next() == Some(step))
    }

    /// An error about an option of `step`, if the file has one: `why` the option is not used.
    pub fn complaint_of(&self, step: &str, why: &str) -> Option<String> {
        let taken = self.in_step(step).next()?;
        Some(format!("{}:{}: [{}]: {why}: leave it out", self.path.display(), taken.line, taken.table))
    }

    /// Adds the place in the file to a complaint about an option `--flag ...` of train, if the file sets it.
    pub fn place(&self, complaint: String) -> String {
        let flag = complaint.strip_prefix("--").and_then(|rest| rest.split([' ', ':']).next());
        let is_train = |taken: &&Taken| !["convert", "presample", "partition", "infer"].contains(&&*taken.table);
        match flag.and_then(|flag| self.taken.iter().filter(is_train).find(|taken| taken.flag == flag)) {
            Some(taken) => format!("{}:{}: {complaint}", self.path.display(), taken.line),
            None => complaint,
        }
    }
}

type Key<'a> = &'a Spanned<std::borrow::Cow<'a, str>>;

/// An option's table, its key and its value.
type TomlOption<'a> = (String, Key<'a>, &'a Spanned<DeValue<'a>>);

/// Adds everything in `table`, whose name is empty at the top; fails with the place and name of a table that is not in `places`.
fn entries<'a>(
    name: &str,
    table: &'a DeTable<'a>,
    places: &OptionKeys,
    found: &mut Vec<TomlOption<'a>>,
) -> Result<(), (usize, String)> {
    for (key, value) in table.iter() {
        match value.get_ref() {
            DeValue::Table(inner) => {
                let below =
                    if name.is_empty() { key.get_ref().to_string() } else { format!("{name}.{}", key.get_ref()) };
                if !places.has_table(&below) {
                    return Err((key.span().start, below));
                }
                entries(&below, inner, places, found)?;
            }
            _ => found.push((name.to_string(), key, value)),
        }
    }
    Ok(())
}

/// Arguments for `value` of `arg`, after checking it; a positional argument is written with its name, e.g. `--input=graph`.
fn arguments(arg: &Arg, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let flag = arg.get_long().unwrap_or(arg.get_id().as_str());
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return match value.as_bool() {
            Some(set) => Ok(set.then(|| format!("--{flag}")).into_iter().collect()),
            None => Err(format!("expected true or false, got {}", a(value.type_str()))),
        };
    }
    if arg.get_value_parser().type_id() == TypeId::of::<PathBuf>() && value.as_str().is_none() {
        return Err(format!("expected a path in quotes, got {}", a(value.type_str())));
    }
    let several = matches!(arg.get_action(), ArgAction::Append) && arg.get_value_delimiter().is_none();
    match value {
        DeValue::Array(items) if several => {
            items.iter().map(|item| checked(arg, flag, &scalar(item.get_ref())?)).collect()
        }
        DeValue::Array(items) => Ok(vec![checked(arg, flag, &list(items)?)?]),
        value => Ok(vec![checked(arg, flag, &scalar(value)?)?]),
    }
}

/// `--flag=text`, if `text` is a value of `arg`.
fn checked(arg: &Arg, flag: &str, text: &str) -> Result<String, String> {
    let same = Arg::new("value").long("value").value_parser(arg.get_value_parser().clone());
    let alone = Command::new("gsplit").no_binary_name(true).disable_help_flag(true).disable_version_flag(true);
    match alone.arg(same).try_get_matches_from([format!("--value={text}")]) {
        Ok(_) => Ok(format!("--{flag}={text}")),
        Err(error) => {
            // `error: invalid value 'x' for '--lr <LR>': expected a number`, and perhaps `[possible values: ...]`.
            let rendered = ui::plainly(&error);
            let mut lines = rendered.lines();
            let first = lines.next().unwrap_or_default();
            let reason = first.rsplit_once(">': ").map_or("", |(_, reason)| reason);
            let values = lines.find_map(|line| line.trim().strip_prefix("[possible values: ")?.strip_suffix(']'));
            Err(match (values, reason) {
                (Some(values), _) => format!("{text} is not one of its values: {values}"),
                (None, "") => format!("{text} is not a value of --{flag}"),
                (None, reason) => format!("{text} is not a value of --{flag}: {reason}"),
            })
        }
    }
}

fn list(array: &DeArray<'_>) -> Result<String, String> {
    let items: Result<Vec<String>, String> = array.iter().map(|item| scalar(item.get_ref())).collect();
    Ok(items?.join(","))
}

fn scalar(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => match number.radix() {
            10 => Ok(number.as_str().replace('_', "")),
            radix => i128::from_str_radix(&number.as_str().replace('_', ""), radix)
                .map(|number| number.to_string())
                .map_err(|_| format!("{} is too large", number.as_str())),
        },
        DeValue::Float(number) => Ok(number.as_str().replace('_', "")),
        DeValue::Boolean(set) => Ok(set.to_string()),
        other => Err(format!("expected a string, a number or a list, got {}", a(other.type_str()))),
    }
}

/// The name of a type with its article, `a` or `an`.
fn a(name: &str) -> String {
    let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {name}")
}

/// A configuration as a file that [`ConfigFile::read`] accepts, with its tables below the table of `step` if one is
/// named; `run` holds the options around it. Unset options are comments with their current values: if written out, they
/// would no longer follow the options that they depend on. The options `untold` are left out.
pub fn to_toml(config: &TrainConfig, run: &Map<String, Value>, step: &str, untold: &[&str]) -> String {
    let (given, effective) = (config.options(), config.effective().options());
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add = |table: &str, key: &str, value: &Value, prefix: &str| {
        let Some(value) = literal(value) else { return };
        let lines = tables.entry(table.to_string()).or_default();
        let at = if key == "kind" { 0 } else { lines.len() };
        lines.insert(at, format!("{prefix}{key} = {value}"));
    };
    for (flag, option) in &effective {
        let open = given.get(flag).is_none_or(|option| option.value.is_null());
        if untold.contains(&flag.as_str()) {
            continue;
        }
        add(option.table.as_deref().unwrap_or_default(), &option.key, &option.value, if open { "# " } else { "" });
    }
    for (key, value) in run {
        add(RUN, key, value, "");
    }
    let section = |(table, lines): (String, Vec<String>)| {
        let names: Vec<&str> = [step, &table].into_iter().filter(|name| !name.is_empty()).collect();
        titled(&names.join("."), &lines)
    };
    tables.into_iter().map(section).collect::<Vec<_>>().join("\n\n")
}

/// `lines` as the table `name`, or for the top of the file if it is empty.
fn titled(name: &str, lines: &[String]) -> String {
    if name.is_empty() { lines.join("\n") } else { format!("[{name}]\n{}", lines.join("\n")) }
}

/// The arguments `words`, each `--flag` or `--flag=value`, as the table `name` of a file.
pub fn words_to_toml(name: &str, words: &[String]) -> String {
    let line = |word: &String| {
        let word = word.trim_start_matches('-');
        let (flag, value) = word.split_once('=').map_or((word, None), |(flag, value)| (flag, Some(value)));
        let value = match value {
            None => "true".to_string(),
            Some(text) => toml::Value::String(text.to_string()).to_string(),
        };
        format!("{} = {value}", flag.replace('-', "_"))
    };
    titled(name, &words.iter().map(line).collect::<Vec<_>>())
}

/// `value` in TOML; `None` for null.
fn literal(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        // Beyond the range of TOML's integers, write a string.
        Value::Number(number) if number.as_u64().is_some_and(|number| i64::try_from(number).is_err()) => {
            format!("\"{number}\"")
        }
        Value::String(text) => toml::Value::String(text.clone()).to_string(),
        other => other.to_string(),
    })
}
