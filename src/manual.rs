//! Shell completions and man pages, from the clap commands of both programs.
//!
//! Each program writes the pages of its own subcommands. Completions are one script for both, so `gsplit-train` passes its options to
//! `gsplit` as an [`outline`]. Why not one clap command in one program: `gsplit` would then load libtorch.

use std::io;
use std::path::Path;

use clap::{Arg, ArgAction, Command, ValueHint};
use serde_json::{Value, json};

/// The subcommands of `command` and their options, as far as completions need them; [`with_outline`] reads it.
pub fn outline(command: &Command) -> Value {
    let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    visible.map(|sub| (sub.get_name().to_string(), of_one(sub))).collect::<serde_json::Map<_, _>>().into()
}

fn of_one(command: &Command) -> Value {
    let arguments = command.get_arguments().filter(|arg| !arg.is_hide_set() && !arg.is_global_set());
    let arguments = arguments.map(|arg| {
        let values = arg.get_possible_values().iter().map(|value| value.get_name().to_string()).collect::<Vec<_>>();
        json!({
            "id": arg.get_id().as_str(),
            "long": arg.get_long(),
            "help": arg.get_help().map(ToString::to_string),
            "last": arg.is_last_set(),
            "takes_value": arg.get_action().takes_values(),
            "values": if arg.get_action().takes_values() { values } else { Vec::new() },
        })
    });
    json!({ "arguments": arguments.collect::<Vec<_>>(), "subcommands": outline(command) })
}

/// `command`, with the options and subcommands of `outline` added to its subcommands. The outline's strings are leaked: call this
/// once per process.
pub fn with_outline(mut command: Command, outline: &Value) -> Command {
    for (name, told) in outline.as_object().into_iter().flatten() {
        if command.find_subcommand(name).is_none() {
            command = command.subcommand(Command::new(leak(name)));
        }
        command = command.mut_subcommand(name, |mut sub| {
            for argument in told["arguments"].as_array().into_iter().flatten() {
                if let Some(id) = argument["id"].as_str().filter(|id| !["help", "version"].contains(id)) {
                    sub = sub.arg(argument_of(id, argument));
                }
            }
            with_outline(sub, &told["subcommands"])
        });
    }
    command
}

fn argument_of(id: &str, told: &Value) -> Arg {
    let takes_value = told["takes_value"] == true;
    let action = if takes_value { ArgAction::Append } else { ArgAction::SetTrue };
    let mut argument = Arg::new(leak(id)).action(action).last(told["last"] == true);
    if let Some(help) = told["help"].as_str() {
        argument = argument.help(leak(help));
    }
    if let Some(long) = told["long"].as_str() {
        argument = argument.long(leak(long));
    }
    let values: Vec<&'static str> =
        told["values"].as_array().into_iter().flatten().filter_map(|value| value.as_str().map(leak)).collect();
    match (takes_value, values.is_empty()) {
        (true, true) => argument.value_hint(ValueHint::AnyPath),
        (true, false) => argument.value_parser(values),
        (false, _) => argument,
    }
}

fn leak(word: &str) -> &'static str {
    Box::leak(word.to_string().into_boxed_str())
}

/// Writes a man page for each subcommand of `command` that is not hidden, and for `command` itself if `whole`, into `folder`.
///
/// # Errors
/// If a file cannot be written.
pub fn write_pages(mut command: Command, whole: bool, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    if whole {
        return clap_mangen::generate_to(command, folder);
    }
    command = command.disable_help_subcommand(true);
    command.build();
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        clap_mangen::generate_to(sub.clone(), folder)?;
    }
    Ok(())
}
