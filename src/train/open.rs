//! Options of `gsplit train` that are derived from others if left open; and the headings of its options.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use gsplit::headings;
use gsplit_kernels::CudaSurvey;
use gsplit_trainer::{Device, Parallelism, TrainConfig};

use super::Args;

/// Options for several ranks: a run with one of them uses split parallelism unless another is given.
const OF_SEVERAL_RANKS: [&str; 3] = ["partition", "groups", "split-layers"];

/// Options that `-h` shows, in this order.
const COMMON: [&str; 14] = [
    "ranks",
    "parallelism",
    "device",
    "model",
    "layers",
    "fanouts",
    "hidden",
    "batch-size",
    "epochs",
    "lr",
    "task",
    "checkpoint",
    "resume",
    "log",
];

/// Options that `--help` shows in addition; only `--help-all` shows the rest.
const USUAL: &str = "config print-config preset gpus placement cache prefetch load-features memory tensorboard force \
    partition groups seed eval-every patience heads dropout norm dtype checkpoint-activations \
    optimizer weight-decay schedule metric";

/// Prints all options.
pub const HELP_ALL: &str = "help-all";

/// `command` of train with its options under the headings of the configuration file.
pub fn grouped(command: Command) -> Command {
    let options = TrainConfig::defaults().map(|config| config.options()).unwrap_or_default();
    let help = Arg::new(HELP_ALL).long(HELP_ALL).action(ArgAction::HelpLong).help("Print help on all options");
    let command =
        headings::grouped(command, &COMMON, |flag| match options.get(flag).map(|option| option.table.as_deref()) {
            None => "Around the run: files, processes, memory, placement ([run])",
            Some(None) => "Sharing and sampling",
            Some(Some("model")) => "Model ([model])",
            Some(Some("optimizer")) => "Optimizer ([optimizer])",
            Some(Some("schedule")) => "Learning rate ([schedule])",
            Some(Some("task")) => "Task and scores ([task])",
            Some(Some("draw")) => "Draws ([draw])",
            Some(Some(_)) => "Mini-batches that are made once ([cooperative])",
        });
    command.arg(help)
}

/// `command`, [`grouped`], whose `--help` shows the usual options and ends with how to see the others.
pub fn brief(command: Command) -> Command {
    let is_usual =
        |flag: &str| flag == HELP_ALL || COMMON.contains(&flag) || USUAL.split(' ').any(|usual| usual == flag);
    let is_other = |arg: &Arg| arg.get_long().is_some_and(|flag| !is_usual(flag));
    let num_others = command.get_arguments().filter(|arg| is_other(arg)).count();
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let end = format!("{examples}\n\n{num_others} more options: gsplit train --{HELP_ALL}");
    let command = command.mut_args(|arg| if is_other(&arg) { arg.hide_long_help(true) } else { arg });
    command.after_long_help(end)
}

impl Args {
    /// The arguments for --preset, where `given`, the matches of the command line and the file, leaves them open.
    pub fn of_preset(&self, given: &ArgMatches) -> Vec<String> {
        let options = self.preset.map(|system| system.options(&self.config)).unwrap_or_default();
        let open = options.into_iter().filter(|(flag, _)| is_open(given, flag));
        open.map(|(flag, value)| format!("--{flag}={value}")).collect()
    }

    /// The arguments that follow from others, where `given` leaves them open: a layer for each fanout, one rank on the
    /// CPU, one for each GPU, one for each process that a launcher has started.
    pub fn that_follow(&self, given: &ArgMatches) -> Vec<String> {
        let config = &self.config;
        let mut follow = Vec::new();
        if leaves_layers_to_fanouts(given) {
            follow.push(format!("--layers={}", config.fanouts.len()));
        }
        let gpus = match (config.device, &self.gpus) {
            (Device::Cpu, _) => None,
            (Device::Cuda, Some(named)) => Some(named.0.len()),
            (Device::Cuda, None) => CudaSurvey::new().gpus.ok().map(|gpus| gpus.len()),
        };
        let launched = self.processes.launched();
        let ranks = if launched { None } else { config.ranks.or(gpus.filter(|&gpus| gpus > 0)) };
        let several = launched
            || ranks.is_some_and(|ranks| ranks != 1)
            || OF_SEVERAL_RANKS.iter().any(|flag| !is_open(given, flag));
        if is_open(given, "parallelism") {
            follow.push(format!("--parallelism={}", if several { Parallelism::Split } else { Parallelism::Single }));
        } else if config.parallelism == Parallelism::Single {
            return follow;
        }
        if let (true, Some(ranks)) = (is_open(given, "ranks"), ranks) {
            follow.push(format!("--ranks={ranks}"));
        }
        follow
    }
}

/// Whether `given` has fanouts but no number of layers, which then is the number of fanouts.
pub fn leaves_layers_to_fanouts(given: &ArgMatches) -> bool {
    is_open(given, "layers") && !is_open(given, "fanouts")
}

/// Whether `given` has no explicit value for the option `flag`.
fn is_open(given: &ArgMatches, flag: &str) -> bool {
    given.value_source(&flag.replace('-', "_")) != Some(ValueSource::CommandLine)
}
