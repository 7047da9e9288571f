//! `gsplit convert`.

use std::path::PathBuf;
use std::time::Instant;

use clap::Subcommand;
use gsplit_preprocess::Error;
use gsplit_preprocess::convert::{ConvertOptions, OgbSource, Outcome, SnapSource, Source, convert};

use crate::describe::report;
use crate::ui::{self, Ui};

/// Turn a raw graph into a dataset directory
///
/// Done once: presample, partition and train read the directory where it lies. Converting the same input with the same
/// options again reuses what is there.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gsplit convert ogb dataset/ogbn_arxiv --out arxiv --features fastrp:128")]
pub struct Args {
    #[command(subcommand)]
    format: Format,
}

#[derive(Subcommand)]
enum Format {
    /// A folder that OGB unpacked: the CSV layout (raw/edge.csv.gz ...) or the binary one (raw/data.npz)
    ///
    /// OGB lists some undirected graphs with each edge once (ogbn-products: `add_inverse_edge` in its master table):
    /// pass --symmetrise for those.
    #[command(after_help = "Examples:\n  \
        gsplit convert ogb dataset/ogbn_products --out products --symmetrise\n  \
        gsplit convert ogb dataset/ogbn_arxiv --out arxiv --features fastrp:128")]
    Ogb {
        #[command(flatten)]
        source: OgbSource,
        #[command(flatten)]
        to: To,
    },
    /// An edge list as SNAP publishes them: `FROM TO` lines, plain or gzip
    ///
    /// Vertex ids may have gaps: they are compacted in ascending order, and nodes/original_id.npy keeps the old ones.
    #[command(after_help = "Example:\n  \
        gsplit convert snap com-lj.ungraph.txt.gz --out lj --symmetrise --features random:64 --random-split 0.6,0.2,0.2")]
    Snap {
        #[command(flatten)]
        source: SnapSource,
        #[command(flatten)]
        to: To,
    },
}

/// Where and how to write.
#[derive(clap::Args)]
struct To {
    /// The dataset directory to make
    #[arg(long, short, value_name = "DATASET")]
    out: PathBuf,
    #[command(flatten)]
    options: ConvertOptions,
    /// Replace the dataset at --out, its presamples and partitions included
    #[arg(long)]
    force: bool,
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    let (source, to) = match args.format {
        Format::Ogb { source, to } => (Source::Ogb(source), to),
        Format::Snap { source, to } => (Source::Snap(source), to),
    };
    let start = Instant::now();
    let (dataset, outcome) = convert(&source, &to.out, &to.options, to.force, ui).map_err(|error| match error {
        Error::Option(problem) => ui::usage(problem),
        error => error.into(),
    })?;
    report(&dataset, outcome == Outcome::Reused, start.elapsed().as_secs_f64(), ui)
}
