//! `gsplit report`: training runs and the partitions of their dataset on one HTML page.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use gsplit_store::Dataset;
use gsplit_store::staging::{Staging, Target};
use serde_json::{Value, json};

use crate::describe::number_of;
use crate::outputs::Outputs;
use crate::ui::{Ui, bytes};
use found::Found;
use page::{MAKER, Page};

mod chart;
mod found;
mod page;
mod partitions;
mod scores;
mod training;

/// Show training runs and the partitions of their dataset on one HTML page
///
/// The page is one file that fetches nothing: it can be mailed, and opens without a network. It
/// shows how well each run predicts, beside a baseline and class by class; the loss and the valid
/// score by epoch; and the partitions of the dataset side by side, those that runs used first. What
/// there is no data for is listed with the command that makes it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit report products
  gsplit report runs --dataset products --out runs.html")]
pub struct Args {
    /// A dataset directory, the folder of a training run's checkpoints, or a folder with both
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The dataset of the runs, if DIR has none
    #[arg(long, value_name = "DATASET")]
    dataset: Option<PathBuf>,
    /// The HTML page to write
    #[arg(long, short, value_name = "FILE.html", default_value = "report.html")]
    out: PathBuf,
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> Result<()> {
    let started = Instant::now();
    let found = Found::within(&args.folder, args.dataset.as_deref())?;
    // Fail on an unwritable output before the work.
    let mut outputs = Outputs::default().reads("DIR", &args.folder);
    outputs.file("--out", &args.out, Some(|line| line.contains(MAKER)))?;
    let output = Staging::begin(Target::file(&args.out), true)?;

    let dataset = found.dataset.as_ref().map(Dataset::open).transpose()?;
    let mut page = Page::default();
    if found.runs.is_empty() {
        let why = "no checkpoint of a run is here: gsplit train DATASET --checkpoint DIR, then report on a folder with both";
        page.leave_out("Scores", why);
    } else {
        scores::show(&mut page, &found.runs);
        training::show(&mut page, &found.runs);
    }
    if let Some(dataset) = &dataset {
        partitions::show(&mut page, dataset, &found.runs)?;
    }
    let html =
        page.finish(&title(dataset.as_ref(), &args.folder), &subtitle(&found, dataset.as_ref()));
    let file = output.file();
    std::fs::write(&file, &html).map_err(gsplit_store::Error::io(&file))?;
    let path = output.commit()?;
    ui.say(format_args!(
        "{}: {}, {}",
        path.display(),
        bytes(html.len() as u64),
        page.sections.join(", ")
    ));
    for [title, why] in &page.left_out {
        ui.say(format_args!("  left out: {title}: {why}"));
    }
    let left_out: Vec<Value> =
        page.left_out.iter().map(|[title, why]| json!({ "title": title, "why": why })).collect();
    ui.json(&json!({
        "path": path.display().to_string(), "bytes": html.len(), "sections": page.sections, "left_out": left_out,
        "runs": found.runs.iter().map(|run| &run.name).collect::<Vec<_>>(), "seconds": started.elapsed().as_secs_f64(),
    }));
    Ok(())
}

/// The name of the dataset. `gsplit run` always calls it `dataset`, so then the name of the folder
/// around it is used.
fn title(dataset: Option<&Dataset>, folder: &Path) -> String {
    let name = dataset.map(Dataset::name).filter(|name| *name != "dataset");
    let folder = dataset.map_or(folder.into(), |dataset| dataset.path().join(".."));
    let folder_name =
        || Some(folder.canonicalize().ok()?.file_name()?.to_string_lossy().into_owned());
    name.map(str::to_string).or_else(folder_name).unwrap_or_else(|| "gsplit".into())
}

fn subtitle(found: &Found, dataset: Option<&Dataset>) -> String {
    let graph = dataset.map(|dataset| {
        let manifest = dataset.manifest();
        format!("{} vertices, {} edges", manifest.num_vertices, manifest.num_edges)
    });
    let runs = number_of(found.runs.len() as u64, "training run", "training runs");
    graph.into_iter().chain((!found.runs.is_empty()).then_some(runs)).collect::<Vec<_>>().join("; ")
}
