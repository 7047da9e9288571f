//! Hybrid partitioning, as in Intel's fused sampling.

use super::{Map, System};
use crate::config::Parallelism;

/// Hybrid partitioning of Intel's fused sampling: the graph is on every host, and feature rows are
/// fetched from their owners. Seeds go to their owners; only the feature rows of the lowest layer
/// move. Parts balance in-edges and targets.
pub const INTEL: System = System {
    key: "intel",
    name: "Intel",
    paper: "Intel, Communication-efficient graph neural networks with fused sampling, 2023",
    about: "Hybrid partitioning of Intel's fused sampling: seeds by owner, sampled and computed locally, feature rows fetched from \
            their owners; parts that balance in-edges and targets",
    parallelism: Parallelism::Split,
    split_layers: Some(1),
    placement: "partitioned",
    map: Some(Map::Multilevel { weights: "degree" }),
    settings: |_| {},
    own_draws: false,
    problem: |_| None,
};
