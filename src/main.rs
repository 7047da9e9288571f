//! The gsplit command line: one file per subcommand, each with its `Args` and `run`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(feature = "train")]
mod compare;
mod convert;
mod describe;
mod generate;
mod inspect;
mod partition;
mod presample;
#[cfg(feature = "train")]
mod train;
mod ui;
mod verify;

/// Prepares large graphs for training graph neural networks, and trains on them split-parallel.
///
/// A raw graph becomes a dataset directory once (convert or generate); presample learns how often training touches each
/// vertex and edge; partition cuts the graph with those weights; train reads these artifacts where they lie.
#[derive(Parser)]
#[command(version, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    output: ui::Output,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Convert(convert::Args),
    Generate(generate::Args),
    Presample(presample::Args),
    Partition(partition::Args),
    #[cfg(feature = "train")]
    Train(train::Args),
    #[cfg(feature = "train")]
    Compare(compare::Args),
    Inspect(inspect::Args),
    Verify(verify::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    ui::guard(cli.output, |ui| match cli.command {
        Command::Convert(args) => convert::run(args, ui),
        Command::Generate(args) => generate::run(args, ui),
        Command::Presample(args) => presample::run(args, ui),
        Command::Partition(args) => partition::run(args, ui),
        #[cfg(feature = "train")]
        Command::Train(args) => train::run(args, ui),
        #[cfg(feature = "train")]
        Command::Compare(args) => compare::run(args, ui),
        Command::Inspect(args) => inspect::run(args, ui),
        Command::Verify(args) => verify::run(args, ui),
    })
}
