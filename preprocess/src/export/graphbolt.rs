//! The raw dataset of DGL's GraphBolt, as `dgl.graphbolt.OnDiskDataset` preprocesses it (DGL 2.1: ondisk_dataset.py).
//!
//! ```text
//! metadata.yaml            graph, feature_data, tasks
//! edges/edges.npy          (2, m) int64: sources, targets
//! node/feat.npy            (n, d) float32, and node/<name>.npy for every node column, edge/<name>.npy for every edge column
//! set/train-seeds.npy      int64, with set/train-labels.npy; the same for validation and test
//! ```
//!
//! The edges come sorted by target, then source, the order in which GraphBolt stores them, so edge features stay aligned
//! with the edges of its graph. DGL 2.1 calls the seeds `seed_nodes`; later versions `seeds`.

use gsplit_store::{NpyWriter, Progress, Split, Unit};
use serde_json::json;

use super::Written;
use super::arrays::{copy, write_edges, write_features, write_labels};
use super::output::Target;
use super::source::Source;
use crate::Result;

/// Writes the folder.
pub(super) fn write(source: &Source<'_>, target: &mut Target, progress: &dyn Progress) -> Result<Written> {
    let n = source.topology().num_vertices();
    write_edges(source, target, "edges/edges.npy", progress)?;
    let mut holds = Vec::new();
    let mut features = Vec::new();
    let mut describe = |domain: &str, name: &str, path: &str| {
        features.push(format!(
            "  - domain: {domain}\n    name: {}\n    format: numpy\n    in_memory: true\n    path: {path}\n",
            json!(name)
        ));
    };
    if source.features.is_some() {
        let stage = progress.stage("writing features", Some(n as u64), Unit::Items("rows"));
        write_features(source, &target.path("node/feat.npy")?, 0..n, &*stage)?;
        describe("node", "feat", "node/feat.npy");
        holds.push(source.feature_part());
    }
    for (name, column) in &source.node_columns {
        let path = format!("node/{name}.npy");
        copy(column.path(), &target.path(&path)?)?;
        describe("node", name, &path);
        holds.push(source.node_part(name));
    }
    for (name, column) in &source.edge_columns {
        let path = format!("edge/{name}.npy");
        copy(column.path(), &target.path(&path)?)?;
        describe("edge", name, &path);
        holds.push(source.edge_part(name));
    }
    let mut text = format!(
        "dataset_name: {}\ngraph:\n  nodes:\n  - num: {n}\n  edges:\n  - format: numpy\n    path: edges/edges.npy\n",
        json!(source.dataset().name())
    );
    if !features.is_empty() {
        text.push_str("feature_data:\n");
        text.extend(features);
    }
    text.push_str(&write_task(source, target, &mut holds)?);
    target.write("metadata.yaml", &text)?;
    Ok(Written { num_edges: source.topology().num_edges() as u64, holds })
}

/// Writes the sets. Returns the section `tasks`; without labels the seeds stand alone, without splits there is none.
fn write_task(source: &Source<'_>, target: &Target, holds: &mut Vec<String>) -> Result<String> {
    if source.splits.is_empty() {
        return Ok(String::new());
    }
    let kind = if source.dataset().manifest().numeric_label { "node_regression" } else { "node_classification" };
    let mut text = format!("tasks:\n- name: {kind}\n");
    if let Some(classes) = source.dataset().manifest().num_classes {
        text.push_str(&format!("  num_classes: {classes}\n"));
    }
    if let Some(names) = source.class_names() {
        text.push_str(&format!("  class_names: {}\n", json!(names)));
        holds.push(source.class_part());
    }
    if let Some(names) = source.feature_names() {
        text.push_str(&format!("  feature_names: {}\n", json!(names)));
        holds.push(source.feature_names_part());
    }
    for (split, vertices) in &source.splits {
        let set = match split {
            Split::Train => "train",
            Split::Valid => "validation",
            Split::Test => "test",
        };
        let seeds = format!("set/{set}-seeds.npy");
        let mut out = NpyWriter::<i64>::create(target.path(&seeds)?)?;
        for piece in vertices.chunks(1 << 16) {
            out.push(&piece.iter().map(|&v| i64::from(v)).collect::<Vec<_>>())?;
        }
        out.finish()?;
        text.push_str(&format!(
            "  {set}_set:\n  - data:\n    - name: seed_nodes\n      format: numpy\n      path: {seeds}\n"
        ));
        if let Some(labels) = &source.labels {
            let path = format!("set/{set}-labels.npy");
            write_labels(labels, &target.path(&path)?, vertices.iter().copied())?;
            text.push_str(&format!("    - name: labels\n      format: numpy\n      path: {path}\n"));
        }
        holds.push(source.split_part(*split));
    }
    if source.labels.is_some() {
        holds.push(source.label_part());
    }
    Ok(text)
}
