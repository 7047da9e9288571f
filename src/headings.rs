//! Groups the options of a subcommand under headings: common options first; `-h` shows no others.

use clap::{Arg, Command};

/// A heading, and the options under it.
type Heading = (&'static str, &'static [&'static str]);

/// Subcommands with their common options, and the headings of the others.
const TABLE: [(&[&str], &[&str], &[Heading]); 6] = [
    (
        &["infer"],
        &["checkpoint", "epoch", "out", "predict", "embeddings", "split", "device", "memory", "force"],
        &[("Scores", &["metric"]), ("Where and how it computes", &["gpus", "dtype", "scratch"])],
    ),
    (
        &["presample"],
        &["fanouts", "batch-size", "epochs", "device", "key", "force"],
        &[("What is drawn", &["task", "negatives", "draw-by", "seed"])],
    ),
    (
        &["evaluate"],
        &["partition", "presample", "batches", "svg", "force"],
        &[("Mini-batches", &["fanouts", "batch-size", "draw-by", "seed"])],
    ),
    (&["export"], &["format", "out", "force"], &[("Of one format", &["original-ids", "buffer"])]),
    (
        &["place"],
        &["partition", "cache", "parallelism", "rule", "key", "force"],
        &[("Assumptions of the prediction", &["presample", "alpha", "host-bandwidth", "peer-bandwidth"])],
    ),
    (
        &["compare"],
        &["over", "systems", "model", "layers", "fanouts", "hidden", "batch-size", "ranks", "device", "epochs"],
        &[
            ("Devices and memory", &["groups", "gpus", "cache", "load-features", "dtype"]),
            ("Measurement", &["presample-epochs", "seed", "batches-per-epoch", "expansion-hops", "expansion-fanout"]),
            ("Model", &[]),
        ],
    ),
];

/// `command` with its options [`grouped`] by the table; options that no heading lists are under the last.
pub fn of_table(command: Command) -> Command {
    let found = TABLE.iter().find(|(names, ..)| names.contains(&command.get_name()));
    let Some((_, common, headings)) = found else { return command };
    grouped(command, common, |flag| {
        let heading = headings.iter().find(|(_, flags)| flags.contains(&flag)).or(headings.last());
        heading.map_or("Further options", |(heading, _)| heading)
    })
}

/// `command` with the options of `common` first, in that order. `heading` gives the heading of each other flag, which only `--help`
/// shows.
pub fn grouped(command: Command, common: &[&str], heading: impl Fn(&str) -> &'static str) -> Command {
    command.mut_args(|arg: Arg| {
        let Some(flag) = arg.get_long().filter(|flag| !["help", "version"].contains(flag)) else { return arg };
        match common.iter().position(|common| *common == flag) {
            // Options of every subcommand already have their heading.
            _ if arg.get_help_heading().is_some() => arg,
            Some(at) => arg.display_order(at),
            None => {
                let heading = heading(flag);
                arg.help_heading(heading).hide_short_help(true)
            }
        }
    })
}
