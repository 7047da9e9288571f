//! Raw graphs, one file per format. Every reader opens its input, checks what is small, and hands over a [`raw::Raw`] whose
//! edges and columns are streamed later.
//!
//! ```text
//! ogb (ogb_csv, ogb_npz), snap, mtx, metis           ──▶ text (whole lines of plain or compressed files), field
//! links (splits of pairs, for ogb)                    ──▶ pickle (arrays in .pt files), npz, text
//! planetoid                                          ──▶ pickle, sparse, held
//! mat (its variables)                                ──▶ held (columns in memory), catalog (masks)
//! npy, npz_graph, pt (torch)                         ──▶ catalog (arrays by name) ─┐
//! igb, mag240m, graphsaint, graphbolt                ──────────────────────────────┴─▶ numbers, dtype ──▶ arrays
//! table (Parquet, Arrow, CSV with a header)
//! webgraph                                           ──▶ bvgraph (records of bits)
//! detect    which of them reads a path
//! ```

use std::path::{Path, PathBuf};

use gsplit_store::Progress;

use crate::{Error, Result};
use catalog::Catalog;
use detect::Format;
use raw::{Raw, ReadOptions};

mod arrays;
#[cfg(test)]
mod bombs;
mod bvgraph;
mod catalog;
pub mod detect;
mod dtype;
pub(crate) mod field;
#[cfg(test)]
pub(crate) mod golden;
mod graphbolt;
mod graphsaint;
mod held;
mod igb;
pub mod links;
mod mag240m;
mod mat;
mod metis;
mod mtx;
mod npy;
mod npz;
mod npz_graph;
mod numbers;
mod ogb;
mod ogb_csv;
mod ogb_npz;
mod pickle;
mod planetoid;
mod pt;
pub mod raw;
mod snap;
mod sparse;
mod splits;
pub(crate) mod table;
mod text;
mod value;
mod webgraph;

pub use splits::RandomSplit;

/// What the user names by `path`: itself, or the properties of a BVGraph, whose own name is no file's.
pub fn named(path: &Path) -> PathBuf {
    match path.exists() {
        false if webgraph::recognises(path, &[]) => webgraph::properties(path),
        _ => path.to_path_buf(),
    }
}

/// Opens the graph at `path`, which is of `format`; its splits only if they are wanted.
pub fn open(
    path: &Path,
    format: Format,
    options: &ReadOptions,
    with_splits: bool,
    progress: &dyn Progress,
) -> Result<Raw> {
    match format {
        Format::Ogb => ogb::open(path, options, with_splits, progress),
        Format::Snap => snap::open(path, options),
        Format::Csv => table::open_as(path, Some(table::Format::Csv), options, progress),
        Format::Parquet | Format::Arrow => table::open(path, options, progress),
        Format::Npy => npy::open(path, options, progress),
        Format::Npz => npz_graph::open(path, options, progress),
        Format::Mat => mat::open(path, options, progress),
        Format::Pt => pt::open(path, options, progress),
        Format::Igb => igb::open(path, options, progress),
        Format::Mag240m => mag240m::open(path, options, progress),
        Format::Planetoid => planetoid::open(path, options, progress),
        Format::Graphsaint => graphsaint::open(path, options, progress),
        Format::Mtx => mtx::open(path, options, progress),
        Format::Metis => metis::open(path, options, progress),
        Format::Graphbolt => graphbolt::open(path, options, progress),
        Format::Webgraph => webgraph::open(path, options, progress),
    }
}

/// Adds what `--nodes` names to the edges of `raw`: a table of vertices, or a folder or archive of arrays.
pub fn attach_nodes(path: &Path, raw: &mut Raw, options: &ReadOptions, progress: &dyn Progress) -> Result<()> {
    let catalog = match path.extension() {
        Some(extension) if extension == "npz" => Catalog::Archive(path.to_path_buf(), npz::Npz::open(path)?),
        Some(extension) if extension == "pt" => pt::tensors(path, options.budget(), progress)?.0,
        _ => Catalog::Folder(path.to_path_buf()),
    };
    match catalog.has_rows() {
        true => catalog.attach(raw, options, progress),
        false => table::nodes(path, raw.edges.as_ref(), options, progress)?.attach(raw),
    }
}

/// Refuses a number of vertices that only a damaged count or id explains, before memory and disk are taken for it.
fn check_size(path: &Path, num_vertices: usize, num_edges: u64) -> Result<()> {
    plausible(num_vertices as u64, num_edges).map_err(|problem| Error::input(path, problem))
}

/// What is wrong with so many vertices, if `borne_out` edges or ids are all that there are.
pub(crate) fn plausible(num_vertices: u64, borne_out: u64) -> Result<(), String> {
    const ALWAYS_FINE: u64 = 1 << 26;
    if num_vertices <= ALWAYS_FINE || num_vertices / 64 <= borne_out {
        return Ok(());
    }
    Err(format!(
        "{num_vertices} vertices and only {borne_out} edges: expected an edge for every 64 vertices; check the counts and ids"
    ))
}
