//! The arrays of a dataset, streamed into `.npy` files.
//!
//! Features are widened to single precision (exact, but that int8 rows are multiplied by their
//! scale), labels are int64 as torch's losses want them, and multi-label targets are float32 rows
//! of 0 and 1, NaN for a cell without a value. Columns are copied as they are.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use gsplit_store::{FeatureTable, NpyWriter, Progress, Unit};

use super::edges::{for_each_edge, in_order, pieces};
use super::output::Target;
use super::source::{Labels, Source, f32_rows};
use crate::{Error, Result};

/// Edges, or values of rows, of one piece.
const PIECE: usize = 1 << 18;

/// Writes (2, m) int64: the sources, then the targets.
pub(super) fn write_edges(
    source: &Source<'_>,
    target: &Target,
    name: &str,
    progress: &dyn Progress,
) -> Result<()> {
    let topology = source.topology();
    let m = topology.num_edges();
    let path = target.path(name)?;
    if m == 0 {
        return write_no_edges(&path);
    }
    let stage = progress.stage("writing the edges", Some(2 * m as u64), Unit::Items("ids"));
    let mut out = NpyWriter::<i64>::create_rows(&path, m as u64)?;
    let sources = |range: Range<usize>| -> Result<Vec<i64>> {
        source.check(range.clone())?;
        Ok(topology.indices()[range].iter().map(|&u| i64::from(u)).collect())
    };
    in_order(pieces(m, PIECE), &*stage, sources, |ids| Ok(out.push(&ids)?))?;
    let targets = |range: Range<usize>| {
        let mut targets = Vec::with_capacity(range.len());
        for_each_edge(topology, range, |_, _, v| targets.push(i64::from(v)));
        Ok(targets)
    };
    in_order(pieces(m, PIECE), &*stage, targets, |ids| Ok(out.push(&ids)?))?;
    out.finish()?;
    Ok(())
}

/// An array of shape (2, 0), which has no rows to stream.
fn write_no_edges(path: &Path) -> Result<()> {
    let head = "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 0), }";
    let bytes = [b"\x93NUMPY\x01\0\x76\0", format!("{head:117}\n").as_bytes()].concat();
    let written = File::create(path)
        .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()));
    written.map_err(Error::io(path))
}

/// Writes the feature rows `table` of all vertices as (n, d) float32.
pub(super) fn write_features(
    source: &Source<'_>,
    table: &FeatureTable,
    path: &Path,
    progress: &dyn Progress,
) -> Result<()> {
    let n = source.topology().num_vertices();
    let stage = progress.stage("writing features", Some(n as u64), Unit::Items("rows"));
    let mut out = NpyWriter::<f32>::create_rows(path, table.dim() as u64)?;
    let rows = |piece: Range<usize>| Ok(f32_rows(table, piece.start as u32..piece.end as u32));
    let pieces = pieces(n, (PIECE / table.dim()).max(1));
    in_order(pieces, &*stage, rows, |values| Ok(out.push(&values)?))?;
    out.finish()?;
    Ok(())
}

/// Writes the labels of all `n` vertices: int64, or float32: (n, classes) where vertices can have
/// several classes, or numbers.
pub(super) fn write_labels(labels: &Labels, path: &Path, n: usize) -> Result<()> {
    match labels {
        Labels::Single(labels) => {
            let mut out = NpyWriter::<i64>::create(path)?;
            for &label in &labels[..] {
                out.push(&[i64::from(label)])?;
            }
            out.finish()?;
        }
        Labels::Multi(labels) => {
            let mut out = NpyWriter::<f32>::create_rows(path, u64::from(labels.num_classes()))?;
            for v in 0..n as u32 {
                out.push(&labels.numbers(v).collect::<Vec<f32>>())?;
            }
            out.finish()?;
        }
        Labels::Number(numbers) => {
            let mut out = NpyWriter::<f32>::create(path)?;
            out.push(&numbers[..])?;
            out.finish()?;
        }
    }
    Ok(())
}

/// Writes one byte for each of `n` vertices: 1 for vertices of the split `members`, otherwise 0.
pub(super) fn write_mask(members: &[u32], path: &Path, n: usize) -> Result<()> {
    let mut out = NpyWriter::<u8>::create(path)?;
    let mut next = 0;
    for piece in pieces(n, PIECE) {
        let mut mask = vec![0u8; piece.len()];
        while let Some(&v) = members.get(next).filter(|&&v| (v as usize) < piece.end) {
            mask[v as usize - piece.start] = 1;
            next += 1;
        }
        out.push(&mask)?;
    }
    out.finish()?;
    Ok(())
}

/// Copies a file of the dataset and fsyncs the copy.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map_err(Error::io(from))?;
    File::open(to).and_then(|file| file.sync_all()).map_err(Error::io(to))
}
