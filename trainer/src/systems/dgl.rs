//! DGL: data parallelism from host memory.

use super::System;
use crate::config::Parallelism;

/// DGL's usual training on several GPUs (Wang et al., 2019, "Deep Graph Library"): each rank
/// computes its share of the seeds, and loads every feature row that it needs from the host's
/// memory.
pub const DGL: System = System {
    key: "dgl",
    name: "DGL",
    paper: "Wang et al., Deep Graph Library, 2019",
    about: "Data parallelism, all rows in host memory",
    parallelism: Parallelism::Data,
    split_layers: None,
    placement: "host",
    map: None,
    settings: |_| {},
    own_draws: false,
    problem: |_| None,
};
