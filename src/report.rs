//! `gsplit report`: a dataset and its training runs on one HTML page.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use gsplit_store::Dataset;
use gsplit_store::staging::{Staging, Target};
use serde_json::{Value, json};

use crate::describe::number_of;
use crate::figures::Figures;
use found::Found;
use gsplit::outputs::Outputs;
use gsplit::ui::{Ui, bytes};
use page::{MAKER, Page};

mod chart;
mod configuration;
mod found;
mod graph;
mod page;
mod partitions;
mod predictions;
mod scores;
mod training;

/// Show a dataset and its training runs on one HTML page
///
/// The page is one file that fetches nothing: it can be mailed, and opens without a network. It shows how well each run predicts, beside a
/// baseline and class by class, and the classes that were predicted; what the graph is like; its
/// partitions side by side, those that runs used first; cross edges and balance by layer, measured on fresh mini-batches as by evaluate;
/// of every run the losses, the times and the work of the last epoch, and the options that are not at their defaults. What there is no
/// data for is listed with the command that makes it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit report products
  gsplit report runs --dataset products --out runs.html
  gsplit report . --batches 200 --full")]
pub struct Args {
    /// A dataset directory, the folder of a training run's logs and checkpoints, or a folder with both
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The dataset of the runs, if DIR has none
    #[arg(long, value_name = "DATASET")]
    dataset: Option<PathBuf>,
    /// The HTML page to write
    #[arg(long, short, value_name = "FILE.html", default_value = "report.html")]
    out: PathBuf,
    /// Mini-batches to measure partitions on
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batches: u32,
    /// Compute all figures and measure partitions, however many edges there are
    #[arg(long)]
    full: bool,
    /// Replace the file at --out, even if gsplit did not make it
    #[arg(long)]
    force: bool,
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> Result<()> {
    let started = Instant::now();
    let found = Found::within(&args.folder, args.dataset.as_deref())?;
    // Fail on an unwritable output before the expensive work.
    let mut outputs = Outputs::new(args.force).reads("DIR", &args.folder);
    outputs.file("--out", &args.out, Some(|line| line.contains(MAKER)))?;
    let output = Staging::begin(Target::file(&args.out), true)?;

    let dataset = found.dataset.as_ref().map(Dataset::open).transpose()?;
    let mut page = Page::default();
    let mut figures = None;
    scores::show(&mut page, &found);
    predictions::show(&mut page, &found);
    training::show(&mut page, &found);
    match &dataset {
        Some(dataset) => {
            let measured = Figures::of(dataset, args.full, ui)?;
            graph::show(&mut page, dataset, &measured)?;
            partitions::show(&mut page, (dataset, &found), (args.batches, measured.edges.is_some()), ui)?;
            figures = Some(measured);
        }
        None => page.leave_out("Graph", "no dataset is here: gsplit report with a folder that has one too"),
    }
    configuration::show(&mut page, &found);

    let (title, subtitle) = (title(dataset.as_ref(), &args.folder), subtitle(&found, dataset.as_ref()));
    let html = page.finish(&title, &subtitle, &configuration::makers(dataset.as_ref(), &found)?);
    let file = output.file();
    std::fs::write(&file, &html).map_err(gsplit_store::Error::io(&file))?;
    let path = output.commit()?;
    ui.say(format_args!("{}: {}, {}", path.display(), bytes(html.len() as u64), page.sections.join(", ")));
    for (title, why) in &page.left_out {
        ui.say(format_args!("  left out: {title}: {why}"));
    }
    let left_out: Vec<Value> = page.left_out.iter().map(|(title, why)| json!({ "title": title, "why": why })).collect();
    ui.json(&json!({
        "path": path.display().to_string(), "bytes": html.len(), "sections": page.sections, "left_out": left_out,
        "figures": figures, "runs": found.runs.iter().map(|run| &run.name).collect::<Vec<_>>(),
        "seconds": started.elapsed().as_secs_f64(),
    }));
    Ok(())
}

/// The name of the dataset. `gsplit run` always calls it `dataset`, so then the name of the folder around it is used.
fn title(dataset: Option<&Dataset>, folder: &Path) -> String {
    let name = dataset.map(Dataset::name).filter(|name| *name != "dataset");
    let folder = dataset.map_or(folder.into(), |dataset| dataset.path().join(".."));
    let folder_name = || Some(folder.canonicalize().ok()?.file_name()?.to_string_lossy().into_owned());
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
