//! Everything that a dataset can hold, written in stages, killed at many moments, and refused when
//! it is wrong.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::*;
use crate::FeatureDtype;

mod columns;
mod resume;

const INDPTR: [u64; 5] = [0, 2, 2, 3, 6];
const INDICES: [u32; 6] = [1, 3, 0, 0, 1, 2];

pub(crate) fn provenance() -> Provenance {
    Provenance {
        tool_version: "0".into(),
        command: "test".into(),
        options: json!({ "seed": 3 }),
        sources: Vec::new(),
        facts: BTreeMap::from([("told_at_the_end".into(), 1)]),
        decisions: Vec::new(),
        schema: Default::default(),
    }
}

/// Content of every file below `folder`, by name.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    tree::lengths(folder)
        .unwrap()
        .into_keys()
        .map(|name| (name.clone(), fs::read(folder.join(name)).unwrap()))
        .collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for (name, bytes) in contents(from) {
        let path = to.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// Writes a dataset of 4 vertices and 6 edges at `path` in stages, from where an earlier run
/// stopped. Calls `at` between any two steps, and returns the stages that were not done before.
fn run(path: &Path, mut at: impl FnMut(&DatasetWriter)) -> Result<(Dataset, Vec<&'static str>)> {
    let mut writer =
        DatasetWriter::resume(path, true, &json!({ "input": "a graph", "bytes": 12 }))?;
    let mut ran = Vec::new();
    at(&writer);
    if !writer.is_done("buckets") {
        ran.push("buckets");
        let scratch = writer.scratch();
        fs::write(scratch.join("bucket-0"), bytemuck::cast_slice::<u32, u8>(&INDICES))
            .map_err(Error::io(&scratch))?;
        at(&writer);
        *writer.facts_mut().entry("edges_read".into()).or_default() += 6;
        writer.complete("buckets")?;
        at(&writer);
    }
    if !writer.is_done("topology") {
        ran.push("topology");
        let bytes = fs::read(writer.scratch().join("bucket-0")).map_err(Error::io(path))?;
        let indices: Vec<u32> =
            bytes.chunks(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())).collect();
        let mut topology = writer.topology_writer()?;
        topology.push(&[2, 0], &indices[..2])?;
        at(&writer);
        topology.push(&[1, 3], &indices[2..])?;
        writer.add_topology(topology)?;
        at(&writer);
        writer.complete("topology")?;
        at(&writer);
    }
    assert_eq!((writer.num_vertices(), writer.num_edges()), (4, 6));
    assert_eq!(writer.topology()?.indices(), INDICES);
    if !writer.is_done("columns") {
        ran.push("columns");
        let mut weight = writer.edge_column_writer("weight", "<f4", 1)?;
        weight.push(bytemuck::cast_slice(&[0.5f32, 1.0, 1.5, 2.0, 2.5, 3.0]))?;
        writer.add_edge_column("weight", weight)?;
        let mut year = writer.node_column_writer("year", "<i2", 2)?;
        year.push(bytemuck::cast_slice(&[1999i16, 1, 2000, 2, 2001, 3, -5, 4]))?;
        at(&writer);
        writer.add_node_column("year", year)?;
        let mut names = writer.original_names_writer()?;
        ["a", "b b", "", "ü"].iter().try_for_each(|name| names.push(name))?;
        writer.add_original_names(names)?;
        writer.add_labels(&[2, -1, 0, 1])?;
        at(&writer);
        writer.complete("columns")?;
        at(&writer);
    }
    let mut features = writer.feature_writer(FeatureDtype::I8, 3)?;
    features.push_rows(&[0.5, -1.0, 0.25, 0.0, 0.0, 0.0, 3.0, 2.0, 1.0, -4.0, 4.0, 1e-3])?;
    writer.add_features(features, None)?;
    writer.add_split(Split::Train, vec![3, 0])?;
    at(&writer);
    Ok((writer.finish(provenance())?, ran))
}

/// The dataset that [`run`] writes when nothing happens to it.
fn undisturbed() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ds");
    run(&path, |_| {}).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    (folder, path)
}
