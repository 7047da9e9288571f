//! Tables as other programs write them (tests/data/make_tables.py), large ones that are made here,
//! and damaged ones.

use std::path::{Path, PathBuf};

use gsplit_store::NoProgress;

use super::*;
use crate::edges::{EdgeBatch, EdgeColumn, EdgeSource, Piece, ValueType};
use crate::read::options::{Answer, ReadOptions, Scale, Schema};

mod csv;
mod damage;
mod edges;
mod large;
mod nodes;

/// Path of a fixture.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/tables").join(name)
}

/// The graph of tests/data/make.py.
const SOURCES: [u64; 10] = [0, 0, 1, 2, 2, 3, 3, 4, 5, 0];
const TARGETS: [u64; 10] = [1, 2, 2, 0, 3, 3, 4, 5, 4, 1];

/// The graph of the table of edges at `path`, with the vertices of its folder, read by `options`.
fn opened(path: &Path, options: &ReadOptions) -> Result<Raw> {
    let mut raw = open(path, None, options, &NoProgress, &mut Vec::new())?;
    if let Some(path) = raw.nodes.take() {
        let edges = Some(raw.edges.as_ref());
        super::nodes(&path, edges, options, &NoProgress, &mut Vec::new())?.attach(&mut raw)?;
    }
    Ok(raw)
}

/// Opens the table without options.
fn by_default(path: &Path) -> Result<Raw> {
    opened(path, &ReadOptions::default())
}

/// The message by which the table at `path` is refused.
fn problem(path: &Path) -> String {
    by_default(path)
        .and_then(|raw| read_once(raw.edges.as_ref()))
        .map(drop)
        .unwrap_err()
        .to_string()
}

/// Reads all pieces, and returns the edges; again gives the same.
fn read(source: &dyn EdgeSource) -> Result<EdgeBatch> {
    let first = read_once(source)?;
    assert_eq!(read_once(source)?, first);
    Ok(first)
}

fn read_once(source: &dyn EdgeSource) -> Result<EdgeBatch> {
    source.rewind()?;
    let (mut all, mut batch, mut piece) =
        (EdgeBatch::default(), EdgeBatch::default(), Piece::default());
    while source.next(&mut piece)? {
        batch.clear();
        source.parse(&mut piece, &mut batch)?;
        all.sources.append(&mut batch.sources);
        all.targets.append(&mut batch.targets);
        all.values.append(&mut batch.values);
        all.names.append(&mut batch.names);
    }
    all.names.sort();
    all.names.dedup();
    assert_eq!(source.bytes_done(), source.estimate()?.bytes, "all of it is read");
    assert_eq!(all.values.len(), all.len() * crate::edges::row_bytes(source.columns()));
    Ok(all)
}
