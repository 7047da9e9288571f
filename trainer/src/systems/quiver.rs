//! Quiver: data parallelism with a cache over all GPUs.

use super::{DGL, System};
use crate::config::Device;

/// Quiver (Tan et al., 2023): like DGL, but the hottest rows are once in the memory of the GPUs of
/// a host, which read each other's.
pub const QUIVER: System = System {
    key: "quiver",
    name: "Quiver",
    paper: "Tan et al., Quiver, 2023",
    about: "Data parallelism, the hottest rows once over all GPUs, read by peers",
    placement: "peer",
    problem: |device| match device {
        Device::Cpu => Some(
            "it differs from DGL by its caches, which are in the memory of GPUs (--device cuda)",
        ),
        Device::Cuda => None,
    },
    ..DGL
};
