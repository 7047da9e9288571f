//! OGB's binary layout, e.g. of ogbn-papers100M: `data.npz` with `edge_index` (2, m), `node_feat`
//! (n, d), `num_nodes_list` and `num_edges_list`; `node-label.npz` with `node_label` (n) or (n, 1),
//! NaN for unlabelled. Other members `node_NAME` and `edge_NAME` become columns of vertices and
//! edges.

use std::path::Path;

use super::short_name;
use crate::read::arrays::catalog::few;
use crate::read::arrays::edges::ArrayEdges;
use crate::read::arrays::npz::Npz;
use crate::read::arrays::numbers::{Numbers, NumbersColumn};
use crate::read::options::Schema;
use crate::read::raw::{Column, Ids, Raw, check_size};
use crate::{Error, Result};

/// Opens the archives in the folder `raw`.
pub fn open(raw: &Path, edge_columns: &Schema) -> Result<Raw> {
    let (path, label_path) = (raw.join("data.npz"), raw.join("node-label.npz"));
    let mut data = Npz::open(&path)?;
    let num_vertices = count(&wanted(&mut data, &path, "num_nodes_list")?, u32::MAX.into())?;
    let num_edges = count(&wanted(&mut data, &path, "num_edges_list")?, i64::MAX as u64)?;
    check_size(&path, num_vertices as usize, num_edges)?;
    let index = wanted(&mut data, &path, "edge_index")?;
    if *index.shape() != [2, num_edges] {
        let problem = format!(
            "expected shape [2, {num_edges}] after num_edges_list, found {:?}",
            index.shape()
        );
        return Err(index.error(problem));
    }
    let mut edges = ArrayEdges::index(index)?.within(num_vertices);
    let mut names = data.arrays();
    names.sort();
    let mut columns = Vec::new();
    for member in names {
        let mut open = || wanted(&mut data, &path, &member);
        match (short_name(&member, "node"), short_name(&member, "edge")) {
            (Some("feat"), _) | (_, Some("index")) => {}
            (Some(name), _) => columns.push(column(open()?, name, num_vertices)?),
            (_, Some(name)) if edge_columns.keeps(name) => {
                edges = edges.with_values(name, open()?)?
            }
            _ => {}
        }
    }
    let mut raw = Raw::of(edges, Ids::Dense(Some(num_vertices)), vec![path]);
    raw.columns = columns;
    if let Some(features) = data.numbers("node_feat")? {
        raw.features = Some(column(features, "node_feat", num_vertices)?);
    }
    if label_path.exists() {
        let labels = wanted(&mut Npz::open(&label_path)?, &label_path, "node_label")?;
        raw.labels = Some(column(labels, "node_label", num_vertices)?);
        raw.files.push(label_path);
    }
    Ok(raw)
}

fn wanted(archive: &mut Npz, path: &Path, name: &str) -> Result<Numbers> {
    let missing =
        || Error::input(path, format!("has no member {name}: expected the binary layout of OGB"));
    archive.numbers(name)?.ok_or_else(missing)
}

/// The only element of an array of counts, which has one element per graph.
fn count(numbers: &Numbers, at_most: u64) -> Result<u64> {
    if numbers.shape().iter().any(|&length| length != 1) {
        return Err(numbers
            .error(format!("expected one graph, found counts of shape {:?}", numbers.shape())));
    }
    match few(numbers)?[..] {
        [only] if only <= at_most => Ok(only),
        ref other => Err(numbers.error(format!("{other:?}, expected 0 to {at_most}"))),
    }
}

/// Numbers of every vertex; fails unless there is a row for each.
fn column(numbers: Numbers, name: &str, num_vertices: u64) -> Result<Box<dyn Column>> {
    let (rows, _) = numbers.rows()?;
    if rows != num_vertices {
        let problem =
            format!("{rows} rows for {num_vertices} vertices (num_nodes_list): expected one each");
        return Err(numbers.error(problem));
    }
    Ok(Box::new(NumbersColumn::new(numbers, name)?))
}
