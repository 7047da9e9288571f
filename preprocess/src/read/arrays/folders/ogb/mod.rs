//! The folder that OGB unpacks: its files in the CSV or the binary layout, and its splits.
//!
//! ```text
//! DIR/raw/{num-node-list,num-edge-list,edge}.csv.gz             always, in the CSV layout
//! DIR/raw/{node-feat,node-label}.csv.gz                         where the graph has them
//! DIR/raw/node_year.csv.gz, node_species.csv.gz ...             columns: year, species ...
//! DIR/raw/edge-feat.csv.gz, edge_weight.csv.gz ...              columns of edges: feat, weight ...
//! DIR/raw/data.npz, DIR/raw/node-label.npz                      the binary layout
//! DIR/split/NAME/{train,valid,test}.csv.gz                      splits of vertices
//! DIR/split/NAME/split_dict.pt                                  the same, of OGB's DatasetSaver
//! DIR/split/NAME/{train,valid,test}.pt                          splits of links: see [`links`]
//! ```
//! Unpacked `.csv` files are read too. Graphs of several types: see [`typed`]. Anything else in the
//! folder is ignored.

use std::path::{Path, PathBuf};

use gsplit_store::{LinkNegatives, Progress};

use crate::read::options::ReadOptions;
use crate::read::raw::Raw;
use crate::read::text::{listed_numbers, name_of};
use crate::{Error, Result};
pub use links::RawLinks;

mod csv;
mod links;
mod npz;
mod splits;
mod typed;

/// Files in `raw` that only graphs of several types have.
pub const HETEROGENEOUS: [&str; 3] =
    ["triplet-type-list.csv.gz", "num-node-dict.csv.gz", "edge_index_dict.npz"];

/// Whether `path` is a folder that OGB unpacks. Counts suffice, so that the reader can report that
/// edges are missing.
pub fn recognises(path: &Path) -> bool {
    let files =
        ["edge.csv.gz", "edge.csv", "data.npz", "num-node-list.csv.gz", "num-node-list.csv"];
    let mut files = files.iter().chain(&HETEROGENEOUS);
    files.any(|file| path.join("raw").join(file).is_file())
}

/// Folders of vertices whose edges have no direction: OGB lists each edge once, as in sets of links
/// with negative pairs, and adds the reverses.
const LISTED_ONCE: [&str; 4] = ["ogbn_products", "ogbn_proteins", "products", "proteins"];

/// Opens the folder `dir`, with the split that the schema names, or the only one, if `with_splits`.
pub fn open(
    dir: &Path,
    options: &ReadOptions,
    with_splits: bool,
    progress: &dyn Progress,
) -> Result<Raw> {
    std::fs::metadata(dir).map_err(Error::io(dir))?;
    let (wanted, raw) = (&options.schema, dir.join("raw"));
    let mut graph = if raw.join("data.npz").exists() {
        npz::open(&raw, wanted)?
    } else if candidates(&raw, "edge").iter().any(|path| path.exists()) {
        csv::open(&raw, wanted, progress)?
    } else if HETEROGENEOUS.iter().any(|file| raw.join(file).exists()) {
        return typed::open(dir, options, with_splits, progress);
    } else {
        let problem = "expected raw/edge.csv.gz or raw/data.npz in it: pass the folder that OGB unpacks (ogbn_arxiv)";
        return Err(Error::input(dir, problem));
    };
    wanted.check_edge_columns(dir, graph.edges.columns())?;
    graph.lists_once = LISTED_ONCE.contains(&name_of(dir).as_str());
    let folder = splits::choose(&dir.join("split"), wanted.split_name.as_deref());
    // With --random-split, several splits are not an error: none is read.
    let folder = if with_splits { folder? } else { folder.ok().flatten() };
    if let Some((splits, file)) = folder.as_deref().map_or(Ok(None), splits::in_dict)? {
        if with_splits {
            graph.splits = Some(splits);
            graph.files.push(file);
        }
        return Ok(graph);
    }
    graph.links = folder.as_ref().map_or(Ok(None), |folder| RawLinks::open(folder, progress))?;
    if let Some(links) = &graph.links {
        graph.lists_once |= links.info.negatives == Some(LinkNegatives::Pairs);
        graph.files.extend(links.files.clone());
    } else if let Some(folder) = folder.filter(|_| with_splits) {
        let files = splits::files(&folder)?;
        let [train, valid, test] =
            files.each_ref().map(|file| listed_numbers(file, u32::MAX.into(), progress));
        graph.splits = Some([train?, valid?, test?]);
        graph.files.extend(files);
    }
    Ok(graph)
}

/// The short name of the numbers called `stem`, of `kind` node or edge: `year` of `edge_year`.
fn short_name<'a>(stem: &'a str, kind: &str) -> Option<&'a str> {
    stem.strip_prefix(kind)?.strip_prefix(['_', '-'])
}

/// Possible paths of the table called `stem`.
fn candidates(folder: &Path, stem: &str) -> [PathBuf; 2] {
    ["csv.gz", "csv"].map(|extension| folder.join(format!("{stem}.{extension}")))
}

/// The table called `stem`, gzip or plain, if there is one.
pub fn find_optional(folder: &Path, stem: &str) -> Option<PathBuf> {
    candidates(folder, stem).into_iter().find(|path| path.exists())
}

/// The table called `stem`; fails if it does not exist.
pub fn find(folder: &Path, stem: &str) -> Result<PathBuf> {
    let [usual, _] = candidates(folder, stem);
    let missing = || Error::io(usual)(std::io::Error::from(std::io::ErrorKind::NotFound));
    find_optional(folder, stem).ok_or_else(missing)
}
