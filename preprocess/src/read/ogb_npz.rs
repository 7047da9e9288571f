//! OGB's binary layout, as of ogbn-papers100M: `data.npz` with `edge_index` (2, m), `node_feat` (n, d),
//! `num_nodes_list` and `num_edges_list`; `node-label.npz` with `node_label` (n) or (n, 1), NaN for unlabelled.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gsplit_store::{FeatureWriter, NoProgress, Progress};

use super::field::{check_feature, class};
use super::npz::{ElementError, Member, Npz, Number};
use super::splits::Splits;
use super::{FeatureShape, Raw, RawFeatures, check_size};
use crate::{Error, Result};

/// The archives of a graph.
pub struct Files {
    data: PathBuf,
    labels: Option<PathBuf>,
}

impl Files {
    /// The archives in the folder `raw`.
    pub fn find(raw: &Path) -> Self {
        Self { data: raw.join("data.npz"), labels: Some(raw.join("node-label.npz")).filter(|path| path.exists()) }
    }

    /// The archives that are there.
    pub fn all(&self) -> Vec<&Path> {
        [Some(&self.data), self.labels.as_ref()].into_iter().flatten().map(PathBuf::as_path).collect()
    }

    /// Reads everything but the feature rows, the small arrays first.
    pub fn read(&self, splits: impl FnOnce(usize) -> Result<Option<Splits>>, progress: &dyn Progress) -> Result<Raw> {
        let mut data = Npz::open(&self.data)?;
        let num_vertices = count(data.member("num_nodes_list")?, u32::MAX.into())? as usize;
        let num_edges = count(data.member("num_edges_list")?, i64::MAX as u64)?;
        check_size(&self.data, num_vertices, num_edges)?;
        let features = match data.contains("node_feat") {
            true => Some(RawFeatures {
                dim: dim(&data.member("node_feat")?, num_vertices)?,
                path: self.data.clone(),
                read: write_features,
            }),
            false => None,
        };
        let labels = self.labels.as_ref().map(|path| read_labels(path, num_vertices, progress)).transpose()?;
        let splits = splits(num_vertices)?;
        let (sources, targets) = read_edges(data.member("edge_index")?, num_vertices, num_edges, progress)?;
        let facts = BTreeMap::from([("edges_read".to_string(), num_edges)]);
        Ok(Raw { num_vertices, sources, targets, original_ids: None, labels, splits, features, facts })
    }
}

/// The one element of an array of counts, one a graph.
fn count(member: Member<'_>, at_most: u64) -> Result<u64> {
    if member.shape().iter().any(|&length| length != 1) {
        return Err(member.error(format!("expected one graph, found counts of shape {:?}", member.shape())));
    }
    let mut count = 0;
    member.for_each(&NoProgress, |_, number| {
        count = below(number, u128::from(at_most) + 1)?;
        Ok(())
    })?;
    Ok(count)
}

/// An integer from 0 to below `bound`.
fn below(number: Number, bound: u128) -> Result<u64, String> {
    match number {
        Number::Integer(number) => match u128::try_from(number) {
            Ok(id) if id < bound => Ok(id as u64),
            _ => Err(format!("{number}, expected 0 to {}", bound.saturating_sub(1))),
        },
        Number::Real(_) => Err("floating-point numbers, expected integers".into()),
    }
}

/// Source and target of every edge.
fn read_edges(
    member: Member<'_>,
    num_vertices: usize,
    num_edges: u64,
    progress: &dyn Progress,
) -> Result<(Vec<u32>, Vec<u32>)> {
    if *member.shape() != [2, num_edges] {
        let problem = format!("expected shape [2, {num_edges}] after num_edges_list, found {:?}", member.shape());
        return Err(member.error(problem));
    }
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    let column_major = member.column_major();
    member.for_each(progress, |position, number| {
        let id = below(number, num_vertices as u128)? as u32;
        let is_source = if column_major { position % 2 == 0 } else { position < num_edges };
        if is_source {
            sources.push(id)
        } else {
            targets.push(id)
        }
        Ok(())
    })?;
    Ok((sources, targets))
}

fn read_labels(path: &Path, num_vertices: usize, progress: &dyn Progress) -> Result<Vec<i32>> {
    let mut archive = Npz::open(path)?;
    let member = archive.member("node_label")?;
    match *member.shape() {
        [n] | [n, 1] if n == num_vertices as u64 => {}
        [_] | [_, 1] => return Err(wrong_rows(&member, "labels", num_vertices)),
        [_, columns] => return Err(member.error(format!("expected one label a vertex, found {columns}"))),
        _ => return Err(member.error(format!("expected one label a vertex, found shape {:?}", member.shape()))),
    }
    let mut labels = Vec::new();
    member.for_each(progress, |_, number| {
        let real = match number {
            Number::Integer(number) => number as f64,
            Number::Real(number) => number,
        };
        labels.push(class(real, &real.to_string(), num_vertices)?);
        Ok(())
    })?;
    Ok(labels)
}

/// Width of the feature rows; fails unless there is one row a vertex.
fn dim(member: &Member<'_>, num_vertices: usize) -> Result<usize> {
    let [rows, dim] = *member.shape() else {
        return Err(member.error(format!("expected rows of features, found shape {:?}", member.shape())));
    };
    if rows != num_vertices as u64 {
        return Err(wrong_rows(member, "rows", num_vertices));
    }
    if member.column_major() && rows > 1 && dim > 1 {
        return Err(member.error("stored column by column, expected row by row: save it through np.ascontiguousarray"));
    }
    match i32::try_from(dim) {
        Ok(dim @ 1..) => Ok(dim as usize),
        _ => Err(member.error(format!("{dim} features a vertex: expected 1 to {}", i32::MAX))),
    }
}

fn wrong_rows(member: &Member<'_>, what: &str, num_vertices: usize) -> Error {
    let found = member.shape()[0];
    member.error(format!("{found} {what} for {num_vertices} vertices (num_nodes_list): expected one each"))
}

fn write_features(
    path: &Path,
    shape: &FeatureShape,
    writer: &mut FeatureWriter,
    progress: &dyn Progress,
) -> Result<()> {
    let mut data = Npz::open(path)?;
    let member = data.member("node_feat")?;
    let mut row = Vec::new();
    member.for_each(progress, |_, number| {
        let value = match number {
            Number::Integer(number) => number as f32,
            Number::Real(number) => number as f32,
        };
        check_feature(value, shape.dtype)?;
        row.push(value);
        if row.len() == shape.dim {
            writer.push_rows(&row).map_err(|error| ElementError::Other(error.into()))?;
            row.clear();
        }
        Ok(())
    })
}
