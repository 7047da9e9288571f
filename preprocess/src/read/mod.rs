//! Raw graphs, and the way of one through `convert`.
//!
//! ```text
//! path ─▶ file        pick::pick            finds the graph among the files of a folder
//!      ─▶ format      detect::detect        the first format that recognises the path or its first bytes
//!      ─▶ options     ReadOptions           with the Schema: the keys that the user gave
//!      ─▶ Raw         open                  one `match`, a reader for each format: opens and checks headers and sizes
//!                     bipartite::TwoKinds   keeps sources and targets apart, where they are of two kinds
//!                     attach_nodes          adds what --nodes names
//!                     listed::ListedEnds    drops edges at vertices without a row, if asked to
//!                     weights::weigh_vertices   marks the columns that vertex-weights of the schema names
//!      ─▶ edges       EdgeSource::next      cuts the next piece, in sequence
//!                     EdgeSource::parse     makes edges of a piece, by any thread
//!                     EdgeSource::finish    compares the edges read with the counts in headers
//!         rows        Column::read          hands over the rows of a column, some at a time
//!      ─▶ builder     csc::Build::run       sorts and merges the edges: topology and edge columns
//!                     convert::nodes, convert::features    bring rows into the order of the vertices (convert::rows)
//!      ─▶ dataset     gsplit_store::DatasetWriter
//! ```
//! `convert::Input::open` takes the steps to `Raw`, `convert::write` the others. Readers hold
//! little: edges and rows stay in the file until they are asked for.
//!
//! ```text
//! text      lines: edge and adjacency lists, Matrix Market, METIS, DIMACS
//! arrays    binary files: arrays by name, folders of datasets, BVGraph  ──▶ text (a few files of folders)
//! table     Parquet, Arrow, and text in rows of as many fields          ──▶ text (the latter)
//! raw       a graph, opened          schema      the decisions on columns and cells
//! ```

use std::path::Path;

use gsplit_store::Progress;

use crate::{Error, Result};
use arrays::catalog::Catalog;
use arrays::folders::{graphsaint, ogb, planetoid, relations};
use arrays::{npy, npz, pt, webgraph};
use detect::Format;
use options::{Answer, ReadOptions};
use raw::Raw;
use text::{adjlist, dimacs, metis, mtx, snap};

mod arrays;
pub mod bipartite;
pub mod detect;
pub mod listed;
pub mod options;
pub mod pick;
pub mod raw;
pub mod scaled;
pub mod schema;
pub(crate) mod table;
pub(crate) mod text;
pub mod typed;
pub mod weights;

pub use table::nodes;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::golden;

/// Opens the graph at `path`, which is of `format`; its splits only if they are wanted. Appends
/// lines for the user to `decisions`, as all readers do.
pub fn open(
    path: &Path,
    format: Format,
    options: &ReadOptions,
    with_splits: bool,
    progress: &dyn Progress,
    decisions: &mut Vec<String>,
) -> Result<Raw> {
    let raw = open_as(path, format, options, with_splits, progress, decisions)?;
    if options.schema.bipartite == Some(Answer::Yes) {
        decisions.push(format!(
            "{}: two kinds of vertices: the sources come first; the column `kind` distinguishes \
             them",
            path.display()
        ));
        return raw.in_two_kinds(path);
    }
    Ok(raw)
}

fn open_as(
    path: &Path,
    format: Format,
    options: &ReadOptions,
    with_splits: bool,
    progress: &dyn Progress,
    decisions: &mut Vec<String>,
) -> Result<Raw> {
    let schema = &options.schema;
    let ignores_header = schema.ignore_header == Some(Answer::Yes);
    match format {
        Format::Tables => table::keyed::open(path, options, with_splits, progress, decisions),
        Format::Ogb => ogb::open(path, options, with_splits, progress),
        Format::Snap => snap::open(path, options),
        Format::Adjlist => adjlist::open(path, options),
        Format::Csv => {
            table::open(path, Some(table::TableFormat::Csv), options, progress, decisions)
        }
        Format::Parquet | Format::Arrow => table::open(path, None, options, progress, decisions),
        Format::Npy => npy::open(path, schema, progress),
        Format::Npz => npz::open(path, schema, progress),
        Format::Pt => pt::open(path, schema, progress),
        Format::Relations => relations::open(path, options, with_splits, progress),
        Format::Planetoid => planetoid::open(path, schema, progress),
        Format::Graphsaint => graphsaint::open(path, schema, options.budget()),
        Format::Mtx => {
            mtx::open(path, schema, options.schema.bipartite == Some(Answer::Yes), ignores_header)
        }
        Format::Metis => metis::open(path, schema, ignores_header),
        Format::Dimacs => dimacs::open(path, schema, ignores_header),
        Format::Webgraph => webgraph::open(path, schema, progress),
    }
}

/// Adds what `--nodes`, or the folder of the graph, names to the edges of `raw`: a table of
/// vertices, or a folder or archive of arrays.
pub fn attach_nodes(
    path: &Path,
    raw: &mut Raw,
    options: &ReadOptions,
    progress: &dyn Progress,
    decisions: &mut Vec<String>,
) -> Result<()> {
    if raw.types.is_some() {
        let problem = "--nodes names vertices of one type, and the graph has several: leave it out";
        return Err(Error::Option(problem.into()));
    }
    if raw.edges.has_two_kinds() {
        return Err(Error::Option(
            "--nodes names vertices of one kind, and with --bipartite there are two: leave one of \
             them out, or describe the tables in a schema.toml (docs/typed.md)"
                .into(),
        ));
    }
    let catalog = Catalog::at(path, progress)?;
    match catalog.has_rows() {
        true => catalog.attach(raw, options.schema.split_name.as_deref(), progress),
        false => {
            let edges = Some(raw.edges.as_ref());
            table::nodes(path, edges, options, progress, decisions)?.attach(raw)
        }
    }
}
