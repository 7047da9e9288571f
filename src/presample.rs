//! `gsplit presample`.

use std::path::PathBuf;

use anyhow::Result;
use gsplit_kernels::Gpu;
use gsplit_preprocess::Error;
use gsplit_preprocess::presample::{Options, presample};
use gsplit_store::{Dataset, Presample};
use serde_json::json;

use crate::ui::Ui;

/// Sample mini-batches as training will, and count how often each vertex and edge is touched.
///
/// Training with the same fanouts and batch size draws its mini-batches by the same rule. The
/// counters are stored in the dataset: input (loads of a feature row), appear (appearances of a
/// vertex at any layer), work (sampled in-edges of a vertex) and edge (samplings of an edge).
/// `gsplit partition` cuts the graph with them.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  gsplit presample products --fanouts 15,10,5 --batch-size 1024 --epochs 10"
)]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
    #[command(flatten)]
    options: Options,
    /// Name to store the counters under [default: made of the options, e.g. f15-10-5_b1024_e10_s0]
    #[arg(long, value_parser = gsplit_store::artifact_key)]
    key: Option<String>,
    /// Device that samples; a GPU gives the same counts in less time
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    device: Device,
    /// Sample again if counters of that name exist
    #[arg(long)]
    force: bool,
}

impl Args {
    /// The name that the counters are stored under.
    pub fn key(&self) -> String {
        self.key.clone().unwrap_or_else(|| self.options.default_key())
    }
}

/// Device that samples mini-batches, or is measured.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Device {
    /// The host's processors
    Cpu,
    /// The GPUs that CUDA_VISIBLE_DEVICES leaves; the first of them samples
    Cuda,
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> Result<()> {
    let dataset = Dataset::open(&args.dataset)?;
    let gpu = match args.device {
        Device::Cpu => None,
        Device::Cuda => Some(Gpu::open(0).map_err(Error::from)?),
    };
    let outcome =
        presample(&dataset, &args.options, args.key.as_deref(), args.force, gpu.as_ref(), ui)?;
    let (stored, seconds) = (&outcome.presample, outcome.seconds);

    let sum = |counter: &[u32]| counter.iter().map(|&count| u64::from(count)).sum::<u64>();
    let (batches, edges) = (stored.meta().num_batches, sum(stored.edge()));
    let rows_per_batch = sum(stored.input()) as f64 / batches as f64;
    let edges_per_second = seconds.map(|seconds| edges as f64 / seconds);
    let path = Presample::folder(&dataset, stored.key());
    ui.json(&json!({
        "key": stored.key(),
        "path": path.display().to_string(),
        "batches": batches,
        "sampled_edges": edges,
        "input_rows_per_batch": rows_per_batch,
        "seconds": seconds,
        "edges_per_second": edges_per_second,
        "reused": seconds.is_none(),
    }));
    let speed = match (seconds, edges_per_second) {
        (Some(seconds), Some(speed)) => {
            format!("{seconds:.1} s, {:.1} million edges a second", speed / 1e6)
        }
        _ => "already there, made with the same options".into(),
    };
    ui.say(format_args!("{batches} mini-batches, {edges} sampled edges ({speed})"));
    ui.say(format_args!("  {rows_per_batch:.0} input vertices a mini-batch on average"));
    ui.say(format_args!("  key {}, in {}", stored.key(), path.display()));
    Ok(())
}
