//! `gsplit`: the command line of [`gsplit::cli`].
//!
//! Training is in a program of its own, `gsplit-train`, in the same folder; subcommands that need
//! libtorch are handed over to it: loading libtorch takes a few tenths of a second and a hundred
//! megabytes, which the other subcommands save.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::FromArgMatches;
use gsplit::cli::{Cli, command};
use gsplit::{arguments, child, ui};
use gsplit_store::Allocator;

#[cfg(feature = "train")]
mod delegate;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

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
    let given = command()
        .try_get_matches_from(arguments::given())
        .unwrap_or_else(|error| ui::end(&ui::sober(error)));
    let code = Cli::from_arg_matches(&given).unwrap_or_else(|error| ui::end(&error)).run();
    // The C library flushes METIS's output into a pipe only when the process exits: keep it out of
    // the results on standard output.
    let _ = rustix::stdio::dup2_stdout(std::io::stderr());
    code
}
