//! `gsplit clean`.

use std::path::PathBuf;

use gsplit_store::{Cleaned, Dataset, Progress};
use serde_json::json;

use crate::ui::{Ui, bytes};

/// Empty the cache of a dataset: artifacts that plan and compare made
///
/// It holds presamples, partitions and placements, in the folder `tried` of the dataset, and saves
/// work for later runs of plan and compare; gsplit inspect shows its size. The dataset's own
/// artifacts stay, and so do all files that gsplit did not make.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gsplit clean products")]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
}

/// Empties the cache and prints the artifacts that were removed.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    let Cleaned { removed, bytes: size, left } = Dataset::open_unchecked(&args.dataset)?.clean()?;
    for name in &left {
        ui.note(&format!(
            "note: {} stays: it is not, or not only, gsplit's own",
            args.dataset.join(name).display()
        ));
    }
    ui.say(format_args!(
        "{}: {} artifacts removed, {}",
        args.dataset.display(),
        removed.len(),
        bytes(size)
    ));
    ui.json(&json!({ "removed": removed, "bytes": size, "left": left }));
    Ok(())
}
