//! `gsplit completions` and the hidden `gsplit man`: files that packagers install with the
//! programs.
//!
//! `gsplit-train` writes them, whose subcommands are then among those of `gsplit`; in a build
//! without training `gsplit` does.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;

/// Print a script that completes gsplit's commands and options in a shell
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  gsplit completions bash > ~/.local/share/bash-completion/completions/gsplit\n  \
                        gsplit completions zsh > ~/.zfunc/_gsplit\n  \
                        gsplit completions fish > ~/.config/fish/completions/gsplit.fish"
)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script for `command`.
pub fn run(args: &Args, mut command: Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "gsplit", &mut script);
    match std::io::stdout().write_all(&script) {
        // A reader that closed the pipe has seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("standard output")
        }
        _ => Ok(()),
    }
}

/// Write the man pages
#[derive(clap::Args)]
pub struct ManArgs {
    /// Folder for the pages
    folder: PathBuf,
}

/// Writes a man page for `command` and one for each of its subcommands that is not hidden.
pub fn man(args: &ManArgs, command: Command) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.folder)?;
    Ok(clap_mangen::generate_to(command, &args.folder)?)
}
