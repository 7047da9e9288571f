//! The gsplit command line: one file per subcommand, each with its `Args` and `run`.
//!
//! Training is in a program of its own, `gsplit-train`, in the same folder; `run`, `train`, `infer`, `compare` and `plan` are
//! handed over to it: loading libtorch takes a few tenths of a second and a hundred megabytes, which the other subcommands save.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use gsplit::{arguments, child, convert, describe, evaluate, headings, partition, presample, ui};
use gsplit_store::Allocator;

mod clean;
mod completions;
#[cfg(feature = "train")]
mod delegate;
mod doctor;
mod export;
mod figures;
mod generate;
mod inspect;
mod installed;
mod place;
mod report;
mod shard;
mod verify;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Prepares large graphs for training graph neural networks, and trains on them split-parallel.
///
/// A raw graph becomes a dataset directory once (convert or generate); presample estimates how often training touches
/// each vertex and edge; partition cuts the graph with those weights; train reads these artifacts in place.
#[derive(Parser)]
#[command(version = gsplit::VERSION, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    output: ui::Output,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Convert(Box<convert::Args>),
    Generate(generate::Args),
    Presample(presample::Args),
    Partition(partition::Args),
    Evaluate(evaluate::Args),
    Shard(shard::Args),
    /// Take a raw graph to a trained model: convert, presample, partition, train, infer and report, in one command
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

/// The command line, with options under headings.
fn command() -> clap::Command {
    let command =
        Cli::command().mut_subcommand("convert", convert::grouped).mut_subcommand("partition", partition::grouped);
    let others = ["presample", "evaluate", "export", "place"];
    others.into_iter().fold(command, |command, name| command.mut_subcommand(name, headings::of_table))
}

fn main() -> ExitCode {
    if let Err(problem) = child::end_with_parent() {
        return ui::refuse(&problem, 1);
    }
    // NCCL is only used by processes that train.
    gsplit_kernels::before_cuda(false);
    #[cfg(feature = "train")]
    if let Some(code) = delegate::to_trainer() {
        return code;
    }
    let given = command().try_get_matches_from(arguments::given()).unwrap_or_else(|error| ui::end(&ui::sober(error)));
    let cli = Cli::from_arg_matches(&given).unwrap_or_else(|error| ui::end(&error));
    let code = ui::guard(cli.output, |ui| match cli.command {
        Command::Convert(args) => convert::run(*args, ui),
        Command::Generate(args) => generate::run(args, ui),
        Command::Presample(args) => presample::run(args, ui),
        Command::Partition(args) => partition::run(args, ui),
        Command::Evaluate(args) => evaluate::run(args, ui),
        Command::Shard(args) => shard::run(args, ui),
        #[cfg(feature = "train")]
        Command::Run | Command::Train | Command::Infer | Command::Compare | Command::Plan => {
            unreachable!("was handed over above")
        }
        Command::Export(args) => export::run(args, ui),
        Command::Inspect(args) => inspect::run(args, ui),
        Command::Report(args) => report::run(args, ui),
        Command::Verify(args) => verify::run(args, ui),
        Command::Clean(args) => clean::run(args, ui),
        Command::Place(args) => place::run(args, ui),
        Command::Doctor(args) => doctor::run(args, ui),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => completions::man(args),
    });
    // The C library flushes METIS's output into a pipe only when the process exits: keep it out of the results on standard output.
    let _ = rustix::stdio::dup2_stdout(std::io::stderr());
    code
}
