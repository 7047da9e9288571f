//! `gsplit pack` and `gsplit unpack`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use gsplit_preprocess::Error;
use gsplit_preprocess::pack::{self as packing, PackOptions, PackSummary};
use gsplit_store::Dataset;
use serde_json::json;

use gsplit::outputs::Outputs;
use gsplit::ui::{self, Ui, bytes};

/// Pack a dataset into Parquet files, for moving and keeping it
///
/// The folder holds one Parquet file for each array, compressed by zstd, which any reader of Parquet opens, and the
/// documents as they are. Presamples and partitions come along. `gsplit unpack` makes the same dataset of it, bit for bit.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gsplit pack products --out products.packed --level 9")]
pub struct PackArgs {
    /// Dataset directory
    dataset: PathBuf,
    /// The folder to make
    #[arg(long, short, value_name = "DIR")]
    out: PathBuf,
    /// Level of zstd: higher is smaller and slower
    #[arg(long, default_value_t = 3, value_name = "LEVEL", value_parser = clap::value_parser!(i32).range(1..=22))]
    level: i32,
    /// Replace what is packed at --out
    #[arg(long)]
    force: bool,
}

/// Make a dataset of what `gsplit pack` wrote
///
/// Every file is checked: the packed ones before they are read, and the dataset's own while they are written.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gsplit unpack products.packed --out products")]
pub struct UnpackArgs {
    /// The folder that `gsplit pack` made
    #[arg(value_name = "PACKED")]
    packed: PathBuf,
    /// The dataset directory to make
    #[arg(long, short, value_name = "DATASET")]
    out: PathBuf,
    /// Replace the dataset at --out, its presamples and partitions included
    #[arg(long)]
    force: bool,
}

/// Runs `gsplit pack`.
pub fn pack(args: PackArgs, ui: &Ui) -> anyhow::Result<()> {
    let start = Instant::now();
    Outputs::new(args.force).reads("DATASET", &args.dataset).artifact("--out", &args.out)?;
    let dataset = Dataset::open(&args.dataset)?;
    let options = PackOptions { level: args.level, force: args.force };
    let summary = packing::pack(&dataset, &args.out, &options, ui).map_err(usage)?;
    report("packed", &args.out, summary, start, ui);
    Ok(())
}

/// Runs `gsplit unpack`.
pub fn unpack(args: UnpackArgs, ui: &Ui) -> anyhow::Result<()> {
    let start = Instant::now();
    Outputs::new(args.force).reads("PACKED", &args.packed).artifact("--out", &args.out)?;
    let summary = packing::unpack(&args.packed, &args.out, args.force, ui)?;
    report("unpacked", &args.out, summary, start, ui);
    Ok(())
}

fn usage(error: Error) -> anyhow::Error {
    match error {
        Error::Option(problem) => ui::usage(problem),
        error => error.into(),
    }
}

fn report(done: &str, out: &Path, summary: PackSummary, start: Instant, ui: &Ui) {
    let seconds = start.elapsed().as_secs_f64();
    let PackSummary { files, dataset_bytes, packed_bytes } = summary;
    let ratio = dataset_bytes as f64 / packed_bytes.max(1) as f64;
    ui.say(format_args!(
        "{}: {done} {files} files in {seconds:.1} s; dataset {}, packed {}: {ratio:.2} to 1",
        out.display(),
        bytes(dataset_bytes),
        bytes(packed_bytes)
    ));
    ui.json(&json!({
        "path": out.display().to_string(), "files": files, "dataset_bytes": dataset_bytes,
        "packed_bytes": packed_bytes, "ratio": ratio, "seconds": seconds,
    }));
}
