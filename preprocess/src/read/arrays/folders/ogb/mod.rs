//! The folder that OGB unpacks: its files in the CSV or the binary layout, and its splits.
//!
//! ```text
//! DIR/raw/{num-node-list,num-edge-list,edge}.csv.gz             always, in the CSV layout
//! DIR/raw/{node-feat,node-label}.csv.gz                         where the graph has them
//! DIR/raw/node_year.csv.gz, node_species.csv.gz ...             columns: year, species ...
//! DIR/raw/data.npz, DIR/raw/node-label.npz                      the binary layout
//! DIR/split/NAME/{train,valid,test}.csv.gz                      splits of vertices
//! DIR/split/NAME/split_dict.pt                                  the same, of OGB's DatasetSaver
//! DIR/split/NAME/{train,valid,test}.pt                          splits of links: see [`links`]
//! ```
//! Unpacked `.csv` files are read too. Graphs of several types of vertices or edges are refused.
//! Numbers of the edges (`edge-feat.csv.gz`, `edge_feat` in `data.npz`) are left out, with a note.
//! Anything else in the folder is ignored.

use std::path::{Path, PathBuf};

use gsplit_store::Progress;

use crate::read::raw::Raw;
use crate::read::text::listed_numbers;
use crate::{Error, Result};
pub use links::RawLinks;

mod csv;
mod links;
mod npz;
mod splits;

/// Files in `raw` that only graphs of several types have.
pub const HETEROGENEOUS: [&str; 3] =
    ["triplet-type-list.csv.gz", "num-node-dict.csv.gz", "edge_index_dict.npz"];

/// Opens the folder `dir`, with the split called `split`, or the only one, if `with_splits`.
pub fn open(
    dir: &Path,
    split: Option<&str>,
    with_splits: bool,
    progress: &dyn Progress,
) -> Result<Raw> {
    std::fs::metadata(dir).map_err(Error::io(dir))?;
    let raw = dir.join("raw");
    let mut graph = if raw.join("data.npz").exists() {
        npz::open(&raw, progress)?
    } else if candidates(&raw, "edge").iter().any(|path| path.exists()) {
        note_left_out(&raw, &edge_numbers(&raw)?, progress);
        csv::open(&raw, progress)?
    } else if HETEROGENEOUS.iter().any(|file| raw.join(file).exists()) {
        let problem = "a graph of several types of vertices or edges (e.g. ogbl-biokg or ogbn-mag): gsplit reads graphs of one type";
        return Err(Error::input(dir, problem));
    } else {
        let problem = "expected raw/edge.csv.gz or raw/data.npz in it: pass the folder that OGB unpacks (ogbn_arxiv)";
        return Err(Error::input(dir, problem));
    };
    let folder = splits::choose(&dir.join("split"), split);
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

/// Names of the tables in `folder` with numbers of the edges.
fn edge_numbers(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for path in gsplit_store::entries(folder).map_err(Error::io(folder))? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_table = name.ends_with(".csv") || name.ends_with(".csv.gz");
        names.extend(
            Some(name).filter(|name| {
                is_table && (name.starts_with("edge-") || name.starts_with("edge_"))
            }),
        );
    }
    Ok(names)
}

/// Prints a note about numbers of the edges that are not read.
pub fn note_left_out(path: &Path, names: &[String], progress: &dyn Progress) {
    if !names.is_empty() {
        let names = names.join(", ");
        progress.note(&format!(
            "note: {}: {names}: left out: OGB's numbers of edges are not read",
            path.display()
        ));
    }
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
