//! Arrays named as the attributes of PyG's `Data`, and a loader of them.
//!
//! ```text
//! edge_index.npy   (2, m) int64: sources, targets       edge_attr.npy, edge_weight.npy   the edge columns feat and weight
//! x.npy            (n, d) float32                       edge_<name>.npy                  further edge columns
//! y.npy            (n,) int64, -1 = unlabelled;         train_mask.npy, val_mask.npy, test_mask.npy   (n,) uint8
//!                  (n, classes) float32, multi-label,   <name>.npy                       further node columns
//!                  NaN = no value; (n,) float32, numbers, NaN = unlabelled
//! num_nodes.txt    n, which isolated vertices need      class_names.json                 where classes have names
//! load.py          load() returns the Data               feature_names.json               where features have names
//! ```

use gsplit_store::{Progress, Split};
use serde_json::json;

use super::Written;
use super::arrays::{copy, write_edges, write_features, write_labels, write_mask};
use super::output::Target;
use super::source::{Part, Source, WEIGHT};
use crate::Result;

/// The loader.
const LOAD: &str = include_str!("load.py");
/// Attributes that a node column may not take.
const TAKEN: [&str; 6] = ["x", "y", "train_mask", "val_mask", "test_mask", "num_nodes"];

/// Writes the folder.
pub(super) fn write(
    source: &Source<'_>,
    target: &mut Target,
    progress: &dyn Progress,
) -> Result<Written> {
    let n = source.topology().num_vertices();
    write_edges(source, target, "edge_index.npy", progress)?;
    if let Some(table) = &source.features {
        write_features(source, table, &target.path("x.npy")?, progress)?;
    }
    if let Some(labels) = &source.labels {
        write_labels(labels, &target.path("y.npy")?, n)?;
    }
    for (of, names) in [("class", source.class_names()), ("feature", source.feature_names())] {
        if let Some(names) = names {
            target.write(&format!("{of}_names.json"), &format!("{}\n", json!(names)))?;
        }
    }
    for (split, vertices) in &source.splits {
        let name = if *split == Split::Valid { "val" } else { split.name() };
        write_mask(vertices, &target.path(&format!("{name}_mask.npy"))?, n)?;
    }
    for (name, column) in &source.node_columns {
        // A column that begins with edge_ would be taken for one of the edges.
        let taken = TAKEN.contains(&name.as_str()) || name.starts_with("edge_");
        let attribute = attribute(if taken { "node_" } else { "" }, name);
        copy(column.path(), &target.path(&format!("{attribute}.npy"))?)?;
    }
    for (name, column) in &source.edge_columns {
        let attribute = match name.as_str() {
            "feat" => "edge_attr".to_string(),
            WEIGHT => "edge_weight".to_string(),
            name => attribute("edge_", name),
        };
        copy(column.path(), &target.path(&format!("{attribute}.npy"))?)?;
    }
    target.write("num_nodes.txt", &format!("{n}\n"))?;
    target.write("load.py", LOAD)?;
    let mut holds = source.parts();
    holds.retain(|part| !matches!(part, Part::Links | Part::OriginalIds));
    Ok(Written { num_edges: source.topology().num_edges() as u64, holds })
}

/// A column's name as one of Python.
fn attribute(prefix: &str, name: &str) -> String {
    let first =
        if prefix.is_empty() && name.starts_with(|c: char| c.is_ascii_digit()) { "_" } else { "" };
    format!("{prefix}{first}{}", name.replace('-', "_"))
}
