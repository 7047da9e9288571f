//! The command line that made a dataset, reconstructed from its manifest.
//!
//! Only current options of the subcommand appear: recorded options that equal their default or no
//! longer exist are left out.

use clap::{Arg, Command};
use gsplit_store::{Dataset, shell_path, shell_word};
use serde_json::Value;

use crate::describe::as_text;

/// The command line that makes `dataset` again in the same place; for an unknown subcommand, its
/// recorded name.
pub fn command_line(dataset: &Dataset) -> String {
    let provenance = &dataset.manifest().provenance;
    let mut root = crate::cli::command();
    root.build();
    let subcommand = provenance
        .command
        .split(' ')
        .try_fold(&root, |command, word| command.find_subcommand(word));
    let mut words = vec!["gsplit".to_string(), provenance.command.clone()];
    if let Some(subcommand) = subcommand {
        words.extend(arguments(subcommand, &provenance.options));
    }
    words.push("--out".into());
    words.push(shell_path(dataset.path()));
    words.join(" ")
}

/// The arguments of `command` that `recorded` sets to a value other than the default; positional
/// ones first.
fn arguments(command: &Command, recorded: &Value) -> Vec<String> {
    let mut recorded = recorded.clone();
    // Keys of the schema that have an option are given by it.
    if let Some(Value::Object(mut schema)) = recorded.get_mut("schema").map(Value::take) {
        for arg in command.get_arguments() {
            if let Some((long, value)) = arg.get_long().and_then(|long| schema.remove_entry(long)) {
                recorded[long.replace('-', "_")] = value;
            }
        }
        let words = schema.iter().map(|(key, value)| format!("{key}={}", as_text(value)));
        recorded["schema"] = words.collect();
    }
    let mut words = Vec::new();
    let is_positional = |arg: &&Arg| arg.is_positional();
    let positional = command.get_arguments().filter(is_positional);
    for arg in positional.chain(command.get_arguments().filter(|arg| !arg.is_positional())) {
        let value = recorded.get(arg.get_id().as_str()).unwrap_or(&Value::Null);
        match (arg.get_long(), value) {
            // The manifest does not record where it was.
            (None, Value::Null) => words.push(arg.get_id().as_str().to_uppercase()),
            (_, Value::Null | Value::Bool(false)) => {}
            (Some(long), Value::Bool(true)) => words.push(format!("--{long}")),
            (None, value) => words.push(shell_path(as_text(value))),
            (Some(long @ "schema"), Value::Array(parts)) => words
                .extend(parts.iter().map(|part| format!("--{long} {}", shell_word(as_text(part))))),
            (Some(_), value) if is_default(arg, &as_text(value)) => {}
            (Some(long), value) => {
                let mark = if arg.is_require_equals_set() { '=' } else { ' ' };
                words.push(format!("--{long}{mark}{}", shell_word(as_text(value))));
            }
        }
    }
    words
}

/// Whether `value` is the default of `arg`; 0.0 is the number 0.
fn is_default(arg: &Arg, value: &str) -> bool {
    let same = |default: &str| {
        let number = |text: &str| text.parse::<f64>().ok();
        default == value || (number(default).is_some() && number(default) == number(value))
    };
    arg.get_default_values().first().and_then(|default| default.to_str()).is_some_and(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_back_as_they_were_given() {
        let mut root = crate::cli::command();
        root.build();
        let words = |command: &str, recorded: &str| {
            let command = command
                .split(' ')
                .try_fold(&root, |command, word| command.find_subcommand(word))
                .unwrap();
            arguments(command, &serde_json::from_str(recorded).unwrap()).join(" ")
        };
        let convert = r#"{"input": "/a b/it's", "found": "SNAP", "format": null, "symmetrise": true, "seed": 0,
            "keep_ids": false, "schema": {"edge-columns": ["weight", "time"], "fill": "mean", "na": ["N/A", "-"]},
            "random_split": "0.6,0.2,0.2", "feature_dtype": "f16"}"#;
        assert_eq!(
            words("convert", convert),
            r"'/a b/it'\''s' --schema fill=mean --schema na=N/A,- --edge-columns weight,time --symmetrise --random-split 0.6,0.2,0.2 --feature-dtype f16"
        );
        let generate = r#"{"vertices": 50, "edges": 100, "seed": 7, "mixing": 0.2, "label_noise": 0.0, "noise": 0.5}"#;
        assert_eq!(
            words("generate community", generate),
            "--vertices 50 --edges 100 --seed 7 --noise 0.5"
        );
        assert_eq!(
            words("shard", r#"{"partition": "k", "hosts": 2}"#),
            "DATASET --partition k --hosts 2"
        );
    }
}
