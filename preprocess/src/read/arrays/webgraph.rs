//! WebGraph's BVGraph, as the Laboratory for Web Algorithmics distributes graphs.
//!
//! ```text
//! NAME.properties   lines KEY=VALUE: nodes, arcs, windowsize, minintervallength, zetak, maxrefcount, compressionflags
//! NAME.graph        the records of nodes 0, 1, ..., bit after bit: see `bvgraph`
//! NAME.offsets      where each record starts, and the last one ends: differences in gamma; may be absent
//! ```
//! The successors v of node u are the edges u -> v. A path may be any of the files, or a folder
//! with one such graph. Files of the Java implementation (big-endian, all codes except Golomb,
//! skewed Golomb and nibbles) and of the Rust one in big-endian are read.
//!
//! With offsets, handing out a piece reads only the outdegree of a record, and any thread decodes
//! it: lists that the first records refer to are at most `windowsize` times `maxrefcount` nodes
//! before them. Without offsets, or without a bound on references, one thread decodes records as
//! they are handed out. Memory holds the lists of a piece, or the longest list.

mod bvgraph;
mod properties;
mod records;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use gsplit_store::Progress;

use crate::read::options::Schema;
use crate::read::raw::{Ids, Raw};
use crate::{Error, Result};
use properties::Properties;
use records::Records;

/// Maximum number of nodes before a piece that may be decoded again; above it, references count as
/// unbounded.
const MAX_LOOK_BACK: u64 = 1 << 10;

/// Whether NAME.graph and NAME.properties exist, for one of the two at `path`, or in the folder
/// `path`.
pub fn recognises(path: &Path, _head: &[u8]) -> bool {
    match path.is_dir() {
        true => in_folder(path).is_ok_and(|graphs| !graphs.is_empty()),
        false => is_graph(&base(path)),
    }
}

fn is_graph(base: &Path) -> bool {
    with_extension(base, "graph").is_file() && with_extension(base, "properties").is_file()
}

/// NAME of every graph in `folder`.
fn in_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut graphs = Vec::new();
    for path in gsplit_store::entries(folder).map_err(Error::io(folder))? {
        if path.extension().is_some_and(|extension| extension == "graph") && is_graph(&base(&path))
        {
            graphs.push(base(&path));
        }
    }
    Ok(graphs)
}

/// NAME of the only graph in `folder`.
fn only_in(folder: &Path) -> Result<PathBuf> {
    let mut graphs = in_folder(folder)?;
    let problem = match (graphs.pop(), graphs.is_empty()) {
        (Some(only), true) => return Ok(only),
        (None, _) => "expected NAME.graph next to NAME.properties, as in a BVGraph",
        (Some(_), false) => "several BVGraphs: name the .graph file of one",
    };
    Err(Error::input(folder, problem))
}

/// Opens the graph at `path`, which cannot have edge columns.
pub fn open(path: &Path, schema: &Schema, progress: &dyn Progress) -> Result<Raw> {
    schema.check_edge_columns(path, &[])?;
    let base = if path.is_dir() { only_in(path)? } else { base(path) };
    let [properties, graph, offsets] =
        ["properties", "graph", "offsets"].map(|end| with_extension(&base, end));
    let properties_of = Properties::read(&properties)?;
    let layout = properties_of.layout;
    let bytes = std::fs::metadata(&graph).map_err(Error::io(&graph))?.len();
    // Every outdegree takes at least one bit, so the number of nodes bounds the claimed lists.
    if layout.num_nodes > bytes.saturating_mul(8) {
        let problem = format!(
            "{bytes} bytes for the records of {} nodes: truncated, download it again",
            layout.num_nodes
        );
        return Err(Error::input(graph, problem));
    }
    let mut files = vec![properties.clone(), graph.clone()];
    let has_offsets = offsets.exists();
    let look_back = (layout.window as u64).saturating_mul(properties_of.max_chain);
    let parallel = has_offsets && look_back <= MAX_LOOK_BACK;
    if parallel {
        files.push(offsets.clone());
    } else {
        let why = if has_offsets { "references without a bound" } else { "no offsets" };
        progress.note(&format!("{}: {why}, so one thread decodes it", graph.display()));
    }
    let offsets = parallel.then_some(offsets);
    let num_nodes = layout.num_nodes;
    let records = Records::new(graph, bytes, properties, properties_of, offsets, look_back)?;
    Ok(Raw::of(records, Ids::Dense(Some(num_nodes)), files))
}

/// Path of NAME, without an extension.
fn base(path: &Path) -> PathBuf {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("graph" | "properties" | "offsets") => path.with_extension(""),
        _ => path.to_path_buf(),
    }
}

/// NAME.`extension`; NAME may contain dots.
pub(super) fn with_extension(base: &Path, extension: &str) -> PathBuf {
    let mut name = base.as_os_str().to_os_string();
    name.push(".");
    name.push(extension);
    name.into()
}
