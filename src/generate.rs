//! `gsplit generate`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use gsplit_preprocess::Error;
use gsplit_preprocess::generate::{Generator, community, generate, rmat};
use gsplit_store::Split;
use serde_json::json;

use crate::ui::{self, Ui};

/// Generate a random graph as a dataset directory
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gsplit generate community --vertices 50000 --edges 500000 --out community")]
pub struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(clap::Subcommand)]
enum Kind {
    /// R-MAT with the parameters of Graph500: the skewed degrees of social networks, no labels
    Rmat(Target<rmat::Options>),
    /// Communities with power-law degrees: labels, and features that tell little without the neighbours'
    Community(Target<community::Options>),
}

#[derive(clap::Args)]
struct Target<O: clap::Args> {
    #[command(flatten)]
    options: O,
    /// Dataset directory to make
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace a dataset that was made otherwise, and everything derived from it
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
    let (dataset, reused) = generate(&generator, &out, force, ui).map_err(|error| match error {
        Error::Option(problem) => ui::usage(problem),
        error => error.into(),
    })?;
    let seconds = started.elapsed().as_secs_f64();

    let manifest = dataset.manifest();
    let has = |split: &Split| manifest.files.contains_key(&format!("splits/{}.npy", split.name()));
    let splits: Vec<(Split, usize)> = Split::ALL
        .into_iter()
        .filter(has)
        .map(|split| Ok((split, dataset.split(split)?.len())))
        .collect::<Result<_>>()?;
    ui.json(&json!({
        "path": dataset.path(),
        "vertices": manifest.num_vertices,
        "edges": manifest.num_edges,
        "facts": manifest.provenance.facts,
        "features": manifest.features,
        "classes": manifest.num_classes,
        "splits": splits.iter().map(|(split, count)| (split.name(), count)).collect::<BTreeMap<_, _>>(),
        "seconds": seconds,
        "reused": reused,
    }));
    let made = if reused { "already there, made with the same options".into() } else { format!("{seconds:.1} s") };
    ui.say(format_args!(
        "{}: {} vertices, {} edges ({made})",
        dataset.path().display(),
        manifest.num_vertices,
        manifest.num_edges
    ));
    let list = |entries: Vec<String>| entries.join(", ");
    let facts = manifest.provenance.facts.iter().map(|(fact, count)| format!("{} {count}", fact.replace('_', " ")));
    ui.say(format_args!("  {}", list(facts.collect())));
    if let Some(features) = &manifest.features {
        let how = features.generated.as_deref().unwrap_or("given");
        ui.say(format_args!("  features {how}, {} values of {} a vertex", features.dim, features.dtype));
    }
    if let Some(classes) = manifest.num_classes {
        ui.say(format_args!("  {classes} classes"));
    }
    let sizes = splits.iter().map(|(split, count)| format!("{} {count}", split.name()));
    ui.say(format_args!("  splits {}", list(sizes.collect())));
    Ok(())
}
