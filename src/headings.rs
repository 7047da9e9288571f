//! Groups the options of a subcommand under headings: common options first; `-h` shows no others.

use clap::{Arg, Command};

/// A heading, and the options under it, with blanks between them.
type Heading = (&'static str, &'static str);

/// Subcommands with their common options, and the headings of the others.
const TABLE: [(&str, &str, &[Heading]); 8] = [
    (
        "convert run schema",
        "out config print-config dry-run nodes schema symmetrise directed features label-column \
         feature-columns random-split memory plan \
         force",
        &[
            ("Tables of vertices", "id-column split-column recipe"),
            ("Edges", "drop-self-loops keep-duplicates"),
            ("Features and splits", "feature-dtype seed"),
            ("Reading", ""),
        ],
    ),
    (
        "partition",
        "parts weights presample quality epsilon servers memory key force",
        &[
            ("Beginning with another partition", "import by-original-id refine"),
            ("What is balanced", "load balance targets"),
            ("Partitioner", ""),
        ],
    ),
    (
        "infer",
        "checkpoint epoch out predict embeddings split device memory force",
        &[("Scores", "metric"), ("Where and how it computes", "gpus dtype scratch")],
    ),
    (
        "presample",
        "fanouts batch-size epochs device key force",
        &[("What is drawn", "task negatives draw-by seed")],
    ),
    (
        "evaluate",
        "partition presample batches",
        &[("Mini-batches", "fanouts batch-size draw-by seed")],
    ),
    ("export", "format out force", &[("Of one format", "original-ids")]),
    (
        "place",
        "partition cache parallelism rule key force",
        &[("Assumptions of the prediction", "presample alpha host-bandwidth peer-bandwidth")],
    ),
    (
        "compare",
        "over systems model layers fanouts hidden batch-size ranks device epochs",
        &[
            ("Devices and memory", "groups gpus cache load-features dtype"),
            (
                "Measurement",
                "presample-epochs seed batches-per-epoch expansion-hops expansion-fanout",
            ),
            ("Model", ""),
        ],
    ),
];

/// `command`, whose subcommands have their options [`grouped`] by the table; options that no
/// heading lists are under the last.
pub fn of_table(command: Command) -> Command {
    command.mut_subcommands(|sub| {
        let found =
            TABLE.iter().find(|(names, ..)| names.split(' ').any(|name| name == sub.get_name()));
        let Some((_, common, headings)) = found else { return sub };
        grouped(sub, common, |flag| {
            let has = |(_, flags): &&Heading| flags.split(' ').any(|listed| listed == flag);
            headings
                .iter()
                .find(has)
                .or(headings.last())
                .map_or("Further options", |(heading, _)| heading)
        })
    })
}

/// `command` with the options of `common` first, in that order. `heading` gives the heading of each
/// other flag, which only `--help` shows.
pub fn grouped(command: Command, common: &str, heading: impl Fn(&str) -> &'static str) -> Command {
    command.mut_args(|arg: Arg| {
        let Some(flag) = arg.get_long().filter(|flag| !["help", "version"].contains(flag)) else {
            return arg;
        };
        match common.split(' ').position(|common| common == flag) {
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
