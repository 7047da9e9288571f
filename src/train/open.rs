//! The headings of the options of `gsplit train`, and how many of them its help shows.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgAction, ArgMatches, Command};
use gsplit::headings;
use gsplit_trainer::{Config, systems};

use super::is_on_line;

/// Options that `-h` shows, in this order.
const COMMON: &str = "ranks parallelism device model layers fanouts hidden batch-size epochs lr task checkpoint resume log";

/// Options that `--help` shows in addition; only `--help-all` shows the rest.
const USUAL: &str = "config print-config preset gpus placement cache prefetch load-features memory tensorboard force \
    partition groups seed eval-every patience heads dropout norm dtype checkpoint-activations \
    optimizer weight-decay schedule metric";

/// Prints all options.
pub const HELP_ALL: &str = "help-all";

/// `command` of train with its options under the headings of the configuration file.
pub fn grouped(command: Command) -> Command {
    let options = Config::default().options();
    let help = Arg::new(HELP_ALL)
        .long(HELP_ALL)
        .action(ArgAction::HelpLong)
        .help("Print help on all options");
    let names = systems::ALL.map(|system| PossibleValue::new(system.key).help(system.about));
    let command =
        command.mut_arg("preset", |arg| arg.value_parser(PossibleValuesParser::new(names)));
    let command = headings::grouped(command, COMMON, |flag| {
        let table = options.get(flag).map_or("", |option| &option.table);
        match table.split('.').next().unwrap_or_default() {
            "data" => "Task, samples and mini-batches ([data])",
            "model" => "Model ([model])",
            "system" => "Ranks, devices and memory ([system])",
            "run" => "Epochs, optimizer, scores and outputs ([run])",
            _ => "Files",
        }
    });
    command.arg(help)
}

/// `command`, [`grouped`], whose `--help` shows the usual options and ends with how to see the
/// others.
pub fn brief(command: Command) -> Command {
    let is_usual = |flag: &str| {
        let mut usual = COMMON.split(' ').chain(USUAL.split(' ')).chain([HELP_ALL]);
        usual.any(|usual| usual == flag)
    };
    let is_other = |arg: &Arg| arg.get_long().is_some_and(|flag| !is_usual(flag));
    let num_others = command.get_arguments().filter(|arg| is_other(arg)).count();
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let end = format!("{examples}\n\n{num_others} more options: gsplit train --{HELP_ALL}");
    let command =
        command.mut_args(|arg| if is_other(&arg) { arg.hide_long_help(true) } else { arg });
    command.after_long_help(end)
}

/// Whether `given` has fanouts but no number of layers, which then is the number of fanouts.
pub fn leaves_layers_to_fanouts(given: &ArgMatches) -> bool {
    !is_on_line(given, "layers") && is_on_line(given, "fanouts")
}
