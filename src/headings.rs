//! The options of a subcommand under headings: the common ones first, and alone with `-h`.

use clap::{Arg, Command};

/// `command`, whose options of `common` stand first, in that order. The others are under the heading that `heading` has for their flag,
/// with `--help` alone.
pub fn grouped(command: Command, common: &[&str], heading: impl Fn(&str) -> &'static str) -> Command {
    command.mut_args(|arg: Arg| {
        let Some(flag) = arg.get_long().filter(|flag| !["help", "version"].contains(flag)) else { return arg };
        match common.iter().position(|common| *common == flag) {
            // Those of every subcommand have theirs.
            _ if arg.get_help_heading().is_some() => arg,
            Some(at) => arg.display_order(at),
            None => {
                let heading = heading(flag);
                arg.help_heading(heading).hide_short_help(true)
            }
        }
    })
}
