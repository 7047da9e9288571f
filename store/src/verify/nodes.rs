//! Checks of the parts of a dataset that have a row for each vertex.

use std::collections::BTreeSet;

use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_128;

use crate::manifest::{Axis, KIND};
use crate::shard::{OWNED, UNLABELLED};
use crate::{Dataset, DatasetManifest, Error, FeatureDtype, FeatureInfo, LinkFile, Result, Split};

/// Checks that type and width match the manifest, and every scale is valid for a row.
pub(super) fn check_features(dataset: &Dataset, info: &FeatureInfo) -> Result<()> {
    let table = dataset.stored_features()?;
    let path = dataset.path().join("nodes/feat.arrow");
    let (found, expected) = ((table.dtype(), table.dim()), (info.dtype, info.dim as usize));
    if found != expected {
        return Err(Error::corrupt(path, format!("expected {expected:?} (type, values a row), found {found:?}")));
    }
    let rows = if table.dtype() == FeatureDtype::I8 { table.num_rows() as u32 } else { 0 };
    let sound = |v: u32| table.scale(v).is_finite() && table.scale(v).is_sign_positive();
    match (0..rows).into_par_iter().find_first(|&v| !sound(v)) {
        None => Ok(()),
        Some(v) => Err(Error::corrupt(path, format!("scale {} of row {v}: expected one from 0", table.scale(v)))),
    }
}

pub(super) fn check_labels(dataset: &Dataset) -> Result<()> {
    if dataset.manifest().multi_label {
        return dataset.stored_multi_labels()?.check_padding();
    }
    if dataset.manifest().numeric_label {
        return check_numbers(dataset);
    }
    if dataset.shard().is_some() {
        dataset.held_labels()?;
    }
    let labels = dataset.stored_labels()?;
    let classes = i64::from(dataset.manifest().num_classes.unwrap_or(0));
    match labels.par_iter().position_first(|&label| label < -1 || i64::from(label) >= classes) {
        None => Ok(()),
        Some(v) => Err(Error::corrupt(
            labels.path(),
            format!("label {} of vertex {v}: expected -1 to {}", labels[v], classes - 1),
        )),
    }
}

fn check_numbers(dataset: &Dataset) -> Result<()> {
    let labels = dataset.held_numeric_labels()?;
    match labels.stored().par_iter().position_first(|label| label.is_infinite()) {
        None => Ok(()),
        Some(v) => {
            let problem = format!("label {} of vertex {v}: expected a finite number, or NaN", labels.stored()[v]);
            Err(Error::corrupt(dataset.path().join("nodes/label.npy"), problem))
        }
    }
}

pub(super) fn check_original_ids(dataset: &Dataset) -> Result<()> {
    let Some(ids) = dataset.listed_ids()? else { return Ok(()) };
    let kinds = kinds(dataset)?;
    match distinct(ids.iter().enumerate().map(|(v, &id)| (kinds(v), id)).collect()) {
        true => Ok(()),
        false => Err(Error::corrupt(ids.path(), "two vertices have the same original id")),
    }
}

/// Checks that every name is text, and that names are distinct, by their digests.
pub(super) fn check_original_names(dataset: &Dataset) -> Result<()> {
    let Some(names) = dataset.original_names()? else { return Ok(()) };
    let kinds = kinds(dataset)?;
    let digest = |v: u32| Ok((kinds(v as usize), xxh3_128(names.get(v)?.as_bytes())));
    let digests = (0..names.len() as u32).into_par_iter().map(digest);
    match distinct(digests.collect::<Result<Vec<(u8, u128)>>>()?) {
        true => Ok(()),
        false => Err(Error::corrupt(names.path(), "two vertices have the same original id")),
    }
}

/// The kind of each vertex, 0 if all are of one kind: ids need to be distinct only within a kind.
fn kinds(dataset: &Dataset) -> Result<impl Fn(usize) -> u8 + Sync> {
    let column = match dataset.manifest().columns.contains_key(KIND) {
        true => Some(dataset.node_column(KIND)?).filter(|column| column.descr() == "|u1" && column.width() == 1),
        false => None,
    };
    Ok(move |vertex: usize| column.as_ref().and_then(|column| column.bytes().get(vertex).copied()).unwrap_or(0))
}

fn distinct<T: Ord + Send + Sync>(mut values: Vec<T>) -> bool {
    values.par_sort_unstable();
    values.par_windows(2).all(|pair| pair[0] != pair[1])
}

pub(super) fn check_splits(dataset: &Dataset) -> Result<()> {
    let mut owner = vec![None; dataset.num_vertices()];
    for split in dataset.manifest().splits() {
        let vertices = dataset.split(split)?;
        for &v in vertices.iter() {
            if let Some(other) = owner[v as usize].replace(split) {
                let other: Split = other;
                return Err(Error::corrupt(
                    vertices.path(),
                    format!("vertex {v} is in the {} split too", other.name()),
                ));
            }
        }
    }
    Ok(())
}

/// The files that the fields of `manifest` describe.
pub(super) fn described_files(manifest: &DatasetManifest) -> BTreeSet<String> {
    let mut names = vec!["topology/indptr.npy".to_string(), "topology/indices.npy".to_string()];
    names.extend(manifest.features.iter().map(|_| "nodes/feat.arrow".to_string()));
    let has_labels = manifest.num_classes.is_some() || manifest.numeric_label;
    names.extend(has_labels.then(|| "nodes/label.npy".to_string()));
    names.push(format!("nodes/original_id.{}", if manifest.string_ids { "arrow" } else { "npy" }));
    names.extend(manifest.columns.keys().map(|name| Axis::Nodes.file(name)));
    names.extend(manifest.edge_columns.keys().map(|name| Axis::Edges.file(name)));
    names.extend(Split::ALL.map(Split::file));
    let of_vertices = manifest.shard.as_ref().is_some_and(|shard| shard.partition().is_some());
    names.extend([OWNED, UNLABELLED].into_iter().filter(|_| of_vertices).map(str::to_string));
    names.extend(manifest.links.iter().flat_map(|links| LinkFile::all(links.negatives)).map(LinkFile::name));
    names.into_iter().collect()
}
