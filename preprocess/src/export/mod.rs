//! Exports a dataset directory to the formats of other tools.
//!
//! Returns: a file or a folder that appears whole or not at all, and its contents. Input: a dataset
//! whose topology passes `verify`; an index that names no vertex is an error, never a wrong line.
//! Idea: the arrays of a dataset are mapped, and their order is the order of the edges: targets
//! ascending, and sources ascending within a target. Every format is one pass over them. Text is
//! formatted by chunks of edges in parallel and written in order (`text`), arrays are streamed or
//! copied (`arrays`). Cost: one reading of the exported arrays, and memory for a few chunks per
//! thread. METIS needs both directions of every edge; its module states its memory.
//!
//! ```text
//! pyg        arrays and load.py         torch_geometric.data.Data
//! metis      .graph text                gpmetis, KaHIP, ParMETIS: the undirected simple graph
//! mtx        Matrix Market coordinate   scipy.io.mmread, GraphBLAS, SuiteSparse
//! parquet    tables of edges and nodes  DuckDB, Spark, pyarrow, polars
//! snap       FROM TO lines, gzip or not SNAP's tools, and whatever reads an edge list
//! ```

use std::fmt;
use std::path::{Path, PathBuf};

use gsplit_store::staging::{self, Mark, tidy};
use gsplit_store::{Dataset, Progress};

use crate::{Error, Result};

mod arrays;
mod edges;
mod metis;
mod mtx;
mod output;
mod parquet;
mod pyg;
mod snap;
mod source;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use output::ExportedLabels;
use output::{Record, Target};
pub(crate) use source::f32_rows;
use source::{Part, Source};

/// Format to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum ExportFormat {
    /// Arrays and load.py, whose load() returns a torch_geometric.data.Data
    Pyg,
    /// METIS's .graph text: undirected, without self-loops; weighted where the edges have a column
    /// `weight`
    Metis,
    /// Matrix Market coordinate text: row = source, column = target, counted from 1
    Mtx,
    /// Parquet tables of edges and nodes, compressed with zstd
    Parquet,
    /// An edge list: FROM TO lines; gzip where --out ends in .gz
    Snap,
}

impl ExportFormat {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pyg => "pyg",
            Self::Metis => "metis",
            Self::Mtx => "mtx",
            Self::Parquet => "parquet",
            Self::Snap => "snap",
        }
    }

    /// Whether it is a folder; the others are one file.
    pub fn is_folder(self) -> bool {
        matches!(self, Self::Pyg | Self::Parquet)
    }
}

impl fmt::Display for ExportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How to write it.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct ExportOptions {
    /// snap, parquet: name the ends of edges as the raw input did, where ids were changed
    #[cfg_attr(feature = "cli", arg(long))]
    pub original_ids: bool,
    /// Replace the folder that an earlier export left at --out, or the file there, whatever it is
    #[cfg_attr(feature = "cli", arg(long))]
    pub force: bool,
}

/// Counts of an export.
#[derive(Clone, Debug, PartialEq)]
pub struct Exported {
    /// The file or folder.
    pub path: PathBuf,
    /// Vertices described.
    pub num_vertices: u64,
    /// Edges written; for METIS the undirected ones.
    pub num_edges: u64,
    /// Bytes written, and in how many files.
    pub bytes: u64,
    /// Files written.
    pub files: u64,
    /// Parts of the dataset that the format cannot hold, e.g. `features`.
    pub left_out: Vec<String>,
    /// True if it was there already, made the same way.
    pub reused: bool,
}

/// Writes `dataset` to `out` as `format`. One note lists the parts that the format cannot hold. A
/// folder that was written in the same way is reused.
pub fn export(
    dataset: &Dataset,
    format: ExportFormat,
    out: &Path,
    options: &ExportOptions,
    progress: &dyn Progress,
) -> Result<Exported> {
    if options.original_ids && !matches!(format, ExportFormat::Snap | ExportFormat::Parquet) {
        let problem =
            format!("--original-ids is for --format snap or parquet, not {format}: leave it out");
        return Err(Error::Option(problem));
    }
    dataset.expect_one_type("export")?;
    let source = Source::open(dataset)?;
    let record = Record::new(dataset, format, options);
    if let Some(finished) = record.finished(out).filter(|_| !options.force) {
        tidy(&staging::Target::new(out, Mark::EXPORT));
        return Ok(finished);
    }
    let mut target = Target::begin(out, format, options.force)?;
    let written = match format {
        ExportFormat::Pyg => pyg::write(&source, &mut target, progress),
        ExportFormat::Metis => metis::write(&source, &mut target, progress),
        ExportFormat::Mtx => mtx::write(&source, &mut target, progress),
        ExportFormat::Parquet => parquet::write(&source, &mut target, options, progress),
        ExportFormat::Snap => snap::write(&source, &mut target, options, progress),
    }?;
    let left_out = source.parts().into_iter().filter(|part| !written.holds.contains(part));
    let left_out: Vec<String> = left_out.map(|part| part.to_string()).collect();
    if !left_out.is_empty() {
        progress
            .note(&format!("note: {format} has no place for {}: left out", left_out.join(", ")));
    }
    target.finish(record, written.num_edges, left_out)
}

/// Result of a format's writer.
struct Written {
    /// Edges written.
    num_edges: u64,
    /// Parts of the dataset in the output.
    holds: Vec<Part>,
}
