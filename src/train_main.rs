//! `gsplit-train`: the subcommands of gsplit that need libtorch. `gsplit` hands them over to it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gsplit::ui;

mod compare;
mod environment;
mod infer;
mod train;

/// Trains graph neural networks on the datasets that gsplit prepares.
#[derive(Parser)]
#[command(name = "gsplit", bin_name = "gsplit", version, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    output: ui::Output,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Train(train::Args),
    Infer(infer::Args),
    Compare(compare::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    ui::guard(cli.output, |ui| match cli.command {
        Command::Train(args) => train::run(args, ui),
        Command::Infer(args) => infer::run(args, ui),
        Command::Compare(args) => compare::run(args, ui),
    })
}
