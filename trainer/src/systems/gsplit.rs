//! GSplit, and what its paper compares it with: other maps, and no exchange.

use super::{DGL, Map, System};
use crate::config::Parallelism;

/// GSplit (Polisetty et al., MLSys 2025): each vertex of a layer is computed, and its feature row
/// loaded, by the rank that owns its part. Parts balance the work that a presample counted, and cut
/// few of the edges that it drew.
pub const GSPLIT: System = System {
    key: "gsplit",
    name: "GSplit",
    paper: "Polisetty et al., GSplit, MLSys 2025",
    about: "Split parallelism, parts that balance pre-sampled work, few pre-sampled edges cut (weights presampled)",
    parallelism: Parallelism::Split,
    placement: "partitioned",
    map: Some(Map::Presampled),
    ..DGL
};

/// GSplit with parts by pre-sampled vertices and all edges alike (section 7.4, "Node").
pub const NODE: System = System {
    key: "gsplit-node",
    name: "Node",
    about: "Split parallelism, parts that balance pre-sampled work, few edges cut (weights vertex)",
    map: Some(Map::Vertex),
    ..GSPLIT
};

/// GSplit with parts by in-degrees and targets (section 7.4, "Edge").
pub const EDGE: System = System {
    key: "gsplit-edge",
    name: "Edge",
    about: "Split parallelism, parts that balance in-edges and targets, few edges cut (weights degree)",
    map: Some(Map::Degree),
    ..GSPLIT
};

/// GSplit with random parts (section 7.4, "Rand").
pub const RANDOM: System = System {
    key: "gsplit-rand",
    name: "Rand",
    about: "Split parallelism, random parts",
    map: Some(Map::Random),
    ..GSPLIT
};

/// GSplit's parts without its exchange: each rank takes the seeds that it owns and computes
/// everything that they need.
pub const OWNED: System = System {
    key: "owned",
    name: "Owned",
    about: "Seeds by owner, computed and loaded locally, nothing exchanged; GSplit's parts",
    parallelism: Parallelism::Owned,
    placement: "replicated",
    ..GSPLIT
};
