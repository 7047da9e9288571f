//! Pre-sampling on a GPU.
//!
//! Returns: the counters that the CPU would return. Input: a checked topology. Idea: the graph is
//! copied to the GPU if it fits next to the counters and a mini-batch; otherwise the GPU reads it
//! from the host's pinned memory, over the bus. Cost: that of sampling; the GPU holds 16 bytes per
//! vertex and 4 per edge for counters and numbering, and one mini-batch.

use gsplit_kernels::schedule::{FIRST_PRESAMPLE_EPOCH, Step, epoch_seeds};
use gsplit_kernels::{
    CounterParts, DeviceCounters, DeviceDraw, DeviceEdgeIds, DeviceGraph, DeviceLayer,
    DeviceSampler, Gpu, GpuError, Graph,
};
use gsplit_store::Stage;
use gsplit_store::memory::Memory;

use super::Options;
use crate::memory::shown;
use crate::{Error, Result};

/// Share of the free memory that is kept for mini-batches.
const KEPT: u64 = 4;

/// Memory that the GPU reads the graph from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    OnDevice,
    InHostMemory,
}

impl Topology {
    /// The memory of `gpu`, where the graph fits in it; else the host's.
    pub(super) fn choose(gpu: &Gpu, graph: &Graph<'_>) -> Result<Self> {
        let (free, total) = gpu.memory()?;
        let (vertices, edges) = (graph.num_vertices(), graph.num_edges());
        let counters = DeviceCounters::bytes(vertices, edges) + 4 * vertices as u64;
        let left = (free - free / KEPT).checked_sub(counters).ok_or_else(|| {
            let (needed, free, total) = (shown(counters), shown(free), shown(total));
            Error::Gpu(format!(
                "counting needs {needed} on the GPU and room for mini-batches, {free} of {total} \
                 are free; use --device cpu"
            ))
        })?;
        let topology = 8 * (vertices as u64 + 1) + 4 * edges as u64;
        Ok(if topology <= left { Self::OnDevice } else { Self::InHostMemory })
    }
}

/// Samples and counts every mini-batch of every epoch.
pub(super) fn count(
    gpu: &Gpu,
    graph: &Graph<'_>,
    topology: Topology,
    train: &[u32],
    options: &Options,
    stage: &dyn Stage,
) -> Result<CounterParts> {
    let count = |graph: DeviceGraph<'_>| count_from(gpu, &graph, train, options, stage);
    let (indptr, indices) = match topology {
        Topology::OnDevice => {
            let (indptr, indices) = (gpu.upload(graph.indptr)?, gpu.upload(graph.indices)?);
            return count(DeviceGraph::new(gpu, indptr.slice(), indices.slice())?);
        }
        // Mapped files cannot be pinned everywhere, but memory owned by the process can.
        Topology::InHostMemory => {
            let left = Memory::of_this_machine().available() / 2;
            (gpu.map_host_or_copy(graph.indptr, left)?, gpu.map_host_or_copy(graph.indices, left)?)
        }
    };
    count(DeviceGraph::new(gpu, indptr.slice(), indices.slice())?)
}

fn count_from(
    gpu: &Gpu,
    graph: &DeviceGraph<'_>,
    train: &[u32],
    options: &Options,
    stage: &dyn Stage,
) -> Result<CounterParts> {
    let mut counters = DeviceCounters::new(gpu, graph.num_vertices(), graph.num_edges())?;
    let mut sampler = DeviceSampler::new(gpu)?;
    let batch_size = options.batch_of(train.len());
    for epoch in (0..options.epochs).map(|epoch| FIRST_PRESAMPLE_EPOCH + epoch) {
        let seeds = gpu.upload(&epoch_seeds(train, options.seed, epoch)?)?;
        for (step, from) in (0..).zip((0..train.len()).step_by(batch_size)) {
            let seeds = seeds.slice().part(from, train.len().min(from + batch_size))?;
            let mut sizes = vec![seeds.len()];
            sampler.start(graph, seeds)?;
            for (key, fanout) in (Step { seed: options.seed, epoch, step }).layers(&options.fanouts)
            {
                sampler.launch(
                    graph,
                    &DeviceDraw::new(fanout.of_vertices()?),
                    &key,
                    DeviceEdgeIds::Count(&mut counters),
                )?;
            }
            let layers = sampler.finish(graph)?;
            sizes.extend(
                layers
                    .iter()
                    .skip(1)
                    .map(DeviceLayer::num_vertices)
                    .chain([sampler.mixed_frontier().len()]),
            );
            counters.count_vertices(sampler.mixed_frontier(), &sizes)?;
            stage.advance(1);
        }
    }
    Ok(counters.into_parts()?)
}

impl From<GpuError> for Error {
    /// Keeps the CPU's message where an input is refused.
    fn from(error: GpuError) -> Self {
        match error {
            GpuError::Input(error) => Self::Kernel(error),
            GpuError::OutOfMemory { .. } => {
                Self::Gpu(format!("{error}; lower --batch-size or --fanouts, or use --device cpu"))
            }
            error => Self::Gpu(error.to_string()),
        }
    }
}
