//! `gsplit generate`.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use gsplit_preprocess::generate::{Generator, community, generate, rmat};

use crate::describe::report;
use crate::outputs::Outputs;
use crate::ui::Ui;

/// Generate a random graph as a dataset directory
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  gsplit generate community --vertices 50000 --edges 500000 --out community"
)]
pub struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(clap::Subcommand)]
enum Kind {
    /// R-MAT with the parameters of Graph500: the skewed degrees of social networks, no labels
    Rmat(Target<rmat::RmatOptions>),
    /// Communities with power-law degrees: labels, and features that predict little without the
    /// neighbours' features
    Community(Target<community::CommunityOptions>),
}

#[derive(clap::Args)]
struct Target<O: clap::Args> {
    #[command(flatten)]
    options: O,
    /// Dataset directory to make
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace a dataset that was made with other options, and everything derived from it
    #[arg(long)]
    force: bool,
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> Result<()> {
    let (generator, out, force) = match args.kind {
        Kind::Rmat(target) => (Generator::Rmat(target.options), target.out, target.force),
        Kind::Community(target) => (Generator::Community(target.options), target.out, target.force),
    };
    let started = Instant::now();
    Outputs::new(force).artifact("--out", &out)?;
    let (dataset, reused) = generate(&generator, &out, force, ui)?;
    report(&dataset, reused, started.elapsed().as_secs_f64(), ui)
}
