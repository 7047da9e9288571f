//! Hybrid partitioning, as in Intel's fused sampling.

use super::{GSPLIT, Map, System};

/// Hybrid partitioning of Intel's fused sampling: the graph is on every host, and feature rows are
/// fetched from their owners. Seeds go to their owners; only the feature rows of the lowest layer
/// move. Parts balance in-edges and targets.
pub const INTEL: System = System {
    key: "intel",
    name: "Intel",
    paper: "Intel, Communication-efficient graph neural networks with fused sampling, 2023",
    about: "Hybrid partitioning of Intel's fused sampling: seeds by owner, sampled and computed locally, feature rows fetched from \
            their owners; parts that balance in-edges and targets",
    split_layers: Some(1),
    map: Some(Map::Degree),
    ..GSPLIT
};
