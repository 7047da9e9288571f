//! GraNNDis: mini-batches that are made once, server by server.

use super::{DGL, Map, System};
use crate::config::{Device, ModelKind, Parallelism};

/// GraNNDis (Song et al., PACT 2024): few large mini-batches, or the whole graph, made once with
/// all in-edges of a server's own vertices; only gradients are sent between servers. The settings
/// are of its deep models (section 7.1): ResGCN+ of 28 layers, as for ogbn-arxiv.
pub const GRANNDIS: System = System {
    key: "granndis",
    name: "GraNNDis",
    paper: "Song et al., GraNNDis, PACT 2024",
    about: "Full-graph training, or few large mini-batches (--batches-per-epoch), made once, server by server (--groups); only \
            gradients are sent between servers",
    parallelism: Parallelism::Cooperative,
    map: Some(Map::Degree),
    settings: |config| {
        (config.model.kind, config.model.layers, config.model.hidden) = (ModelKind::Resgcn, 28, 64);
        config.model.dropout = 0.5;
        config.run.optimizer.lr = 0.01;
    },
    problem: |device| match device {
        Device::Cpu => None,
        Device::Cuda => Some("its mini-batches are made for CPUs only (--device cpu)"),
    },
    ..DGL
};
