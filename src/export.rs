//! `gsplit export`.

use std::path::PathBuf;
use std::time::Instant;

use gsplit_preprocess::export::{ExportFormat, ExportOptions, export};
use gsplit_store::Dataset;
use serde_json::json;

use crate::outputs::Outputs;
use crate::ui::{Ui, bytes};

/// Write a dataset in the format of another tool
///
/// Parts of the dataset that the format cannot hold are left out and named in a note. The output
/// appears whole or not at all; a folder that the same command made is left unchanged. Features
/// become float32 and labels int64 where the format holds arrays.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit export products --format pyg --out products-pyg
  gsplit export products --format parquet --out products-parquet
  gsplit export products --format metis --out products.graph
  gsplit export products --format mtx --out products.mtx
  gsplit export products --format snap --out products.txt.gz")]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
    /// Format to write
    #[arg(long, short, value_enum)]
    format: ExportFormat,
    /// The folder (pyg, parquet) or the file (metis, mtx, snap) to make
    #[arg(long, short, value_name = "PATH")]
    out: PathBuf,
    #[command(flatten)]
    options: ExportOptions,
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    let started = Instant::now();
    let dataset = Dataset::open(&args.dataset)?;
    let mut outputs = Outputs::new(args.options.force).reads("DATASET", &args.dataset);
    match args.format.is_folder() {
        true => outputs.artifact("--out", &args.out)?,
        false => outputs.file("--out", &args.out, None)?,
    }
    let written = export(&dataset, args.format, &args.out, &args.options, ui)?;
    let seconds = started.elapsed().as_secs_f64();
    ui.json(&json!({
        "path": written.path.display().to_string(), "format": args.format.name(),
        "num_vertices": written.num_vertices, "num_edges": written.num_edges,
        "files": written.files, "bytes": written.bytes, "left_out": written.left_out, "reused": written.reused, "seconds": seconds,
    }));
    if written.reused {
        ui.say(format_args!("already there, made the same way: {}", written.path.display()));
        return Ok(());
    }
    ui.say(format_args!(
        "{}: {} vertices and {} edges as {}, {} in {} ({seconds:.2} s)",
        written.path.display(),
        written.num_vertices,
        written.num_edges,
        args.format,
        bytes(written.bytes),
        if written.files == 1 { "1 file".to_string() } else { format!("{} files", written.files) },
    ));
    Ok(())
}
