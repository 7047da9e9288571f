//! `gsplit generate`.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use gsplit_preprocess::generate::{Generator, community, generate, rmat, typed};
use gsplit_store::Dataset;

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
    /// Papers, authors, institutions and fields of study, with the relations between them
    Typed(Target<typed::TypedOptions>),
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

fn of(generator: Generator, out: PathBuf, force: bool, ui: &Ui) -> Result<(Dataset, bool)> {
    Outputs::new(force).artifact("--out", &out)?;
    Ok(generate(&generator, &out, force, ui)?)
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> Result<()> {
    let started = Instant::now();
    let (dataset, reused) = match args.kind {
        Kind::Rmat(target) => of(Generator::Rmat(target.options), target.out, target.force, ui)?,
        Kind::Community(target) => {
            of(Generator::Community(target.options), target.out, target.force, ui)?
        }
        Kind::Typed(Target { options, out, force }) => {
            Outputs::new(force).artifact("--out", &out)?;
            typed::generate(&options, &out, force, ui)?
        }
    };
    report(&dataset, reused, started.elapsed().as_secs_f64(), ui)
}
