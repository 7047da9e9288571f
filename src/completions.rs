//! `gsplit completions` and the hidden `gsplit man`: files that packagers install with the programs.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap_complete::Shell;

use gsplit::manual;

/// Print a script that completes gsplit's commands and options in a shell
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gsplit completions bash > ~/.local/share/bash-completion/completions/gsplit\n  \
                        gsplit completions zsh > ~/.zfunc/_gsplit\n  \
                        gsplit completions fish > ~/.config/fish/completions/gsplit.fish")]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub fn run(args: Args) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut of_both_programs()?, "gsplit", &mut script);
    match std::io::stdout().write_all(&script) {
        // A reader that closed the pipe has seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("standard output"),
        _ => Ok(()),
    }
}

/// Write the man pages
#[derive(clap::Args)]
pub struct ManArgs {
    /// Folder for the pages
    folder: PathBuf,
}

/// Writes the pages of this program, then the pages of `gsplit-train`.
pub fn man(args: ManArgs) -> anyhow::Result<()> {
    manual::write_pages(crate::command(), true, &args.folder)?;
    #[cfg(feature = "train")]
    crate::delegate::ask_trainer(&["man".as_ref(), args.folder.as_os_str()])?;
    Ok(())
}

#[cfg(feature = "train")]
fn of_both_programs() -> anyhow::Result<clap::Command> {
    let told = crate::delegate::ask_trainer(&["outline".as_ref()])?;
    Ok(manual::with_outline(crate::command(), &serde_json::from_slice(&told)?))
}

#[cfg(not(feature = "train"))]
fn of_both_programs() -> anyhow::Result<clap::Command> {
    Ok(crate::command())
}
