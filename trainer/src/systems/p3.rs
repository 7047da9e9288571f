//! P3: the bottom layer by columns of the features.

use gsplit_kernels::Fanout;

use super::{DGL, System};
use crate::config::{Device, Parallelism};

/// P3 (Gandhi and Iyer, OSDI 2021): each rank holds some columns of all feature rows and computes
/// from them its part of every rank's bottom layer. The settings are of its evaluation (section
/// 5.1), GraphSAGE, and of its pipeline (section 3.3).
pub const P3: System = System {
    key: "p3",
    name: "P3",
    paper: "Gandhi and Iyer, P3, OSDI 2021",
    about: "Push-pull parallelism: the bottom layer by columns of the features, which do not move; three mini-batches in flight",
    parallelism: Parallelism::PushPull,
    settings: |config| {
        (config.model.layers, config.model.hidden) = (2, 32);
        config.data.fanouts = [25, 10].map(Fanout::Take).into();
        config.data.batch_size = 1000;
        config.run.optimizer.staleness = 3;
    },
    problem: |device| match device {
        Device::Cpu => None,
        Device::Cuda => Some("its columns are computed on CPUs only (--device cpu)"),
    },
    ..DGL
};
