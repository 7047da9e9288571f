//! The command line of `gsplit`: one file per subcommand, each with its `Args` and `run`.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::ui::{self, Output};
use crate::{
    clean, completions, convert, doctor, evaluate, export, generate, headings, inspect, partition,
    place, presample, report, schema, shard, verify,
};

/// Prepares large graphs for training graph neural networks, and trains on them split-parallel.
///
/// A raw graph becomes a dataset directory once (convert or generate); presample estimates how
/// often training touches each vertex and edge; partition cuts the graph with those weights; train
/// reads these artifacts in place.
#[derive(Parser)]
#[command(version = crate::VERSION, max_term_width = 110)]
pub struct Cli {
    #[command(flatten)]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Convert(Box<convert::Args>),
    Schema(Box<schema::Args>),
    Generate(generate::Args),
    Presample(presample::Args),
    Partition(partition::Args),
    Evaluate(evaluate::Args),
    Shard(shard::Args),
    /// Take a raw graph to a trained model: convert, presample, partition, train, infer and report,
    /// in one command
    #[cfg(feature = "train")]
    Run,
    /// Train a graph neural network on a dataset
    #[cfg(feature = "train")]
    Train,
    /// Predict with a trained model, for every vertex of a graph of any size
    #[cfg(feature = "train")]
    Infer,
    /// Compare training systems on a dataset, or training runs by their logs
    #[cfg(feature = "train")]
    Compare,
    /// Predict which training system is fastest on given hardware, and why
    #[cfg(feature = "train")]
    Plan,
    Export(export::Args),
    Inspect(inspect::Args),
    Report(report::Args),
    Verify(verify::Args),
    Clean(clean::Args),
    Place(place::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Man(completions::ManArgs),
}

/// The command line of `gsplit`, with options under headings.
pub fn command() -> clap::Command {
    headings::of_table(Cli::command())
}

impl Cli {
    /// Runs the subcommand, and returns the exit code.
    pub fn run(self) -> ExitCode {
        ui::guard(self.output, |ui| match self.command {
            Command::Convert(args) => convert::run(*args, ui),
            Command::Schema(args) => schema::run(*args, ui),
            Command::Generate(args) => generate::run(args, ui),
            Command::Presample(args) => presample::run(args, ui),
            Command::Partition(args) => partition::run(args, ui),
            Command::Evaluate(args) => evaluate::run(args, ui),
            Command::Shard(args) => shard::run(args, ui),
            #[cfg(feature = "train")]
            Command::Run | Command::Train | Command::Infer | Command::Compare | Command::Plan => {
                unreachable!("gsplit-train runs it")
            }
            Command::Export(args) => export::run(args, ui),
            Command::Inspect(args) => inspect::run(args, ui),
            Command::Report(args) => report::run(args, ui),
            Command::Verify(args) => verify::run(args, ui),
            Command::Clean(args) => clean::run(args, ui),
            Command::Place(args) => place::run(args, ui),
            Command::Doctor(args) => doctor::run(args, ui),
            Command::Completions(args) => completions::run(&args, command()),
            Command::Man(args) => completions::man(&args, command()),
        })
    }
}
