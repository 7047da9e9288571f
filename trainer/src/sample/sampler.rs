//! What samples a rank's mini-batches: the host, or the GPU that computes them.
//!
//! Both draw the same samples, to the bit. On a GPU the graph is in its memory or in the host's, read over the bus
//! ([`Topology`](crate::residence::topology::Topology)); frontiers and edges stay there, and the host learns how many there are.
//!
//! A sampler that works ahead of the computation has a stream of its own, so that its kernels need not wait for those of the
//! mini-batch before. Memory follows three rules, which need no event:
//!
//! * What it reads (the graph, owners, cached rows) was written before [`BatchSampler::on_device`], which lets the new stream
//!   wait for the computing one, and is not written any more.
//! * What it makes is its own memory, in its stream's order, never torch's: torch gives the memory of a tensor that was dropped
//!   to the next one while kernels of the computing stream may still read it.
//! * A mini-batch is handed over when it is done: the preparing thread waits for its stream
//!   ([`Loaded::hand_over`](super::Loaded::hand_over)), then the buffers are the computing stream's, which alone uses and frees
//!   them. The driver gives freed memory to another stream once the stream that freed it has got there.

use gsplit_kernels::{DeviceGraph, DeviceSlice, Gpu, Graph, Near, Sampler};

use super::HostSampler;
use super::on_gpu::GpuSampler;
use crate::Result;
use crate::operator::Place;

/// What a GPU reads to sample.
#[derive(Clone, Copy, Debug)]
pub struct OnDevice<'a> {
    /// In-neighbours.
    pub graph: DeviceGraph<'a>,
    /// Each vertex's rank, where a partition map says it.
    pub owners: Option<DeviceSlice<'a, u16>>,
}

/// Where a mini-batch was sampled, if on a GPU.
#[derive(Clone, Debug)]
pub struct SampledThere<'a> {
    /// With the stream that it was sampled on.
    pub gpu: Gpu,
    /// What it was sampled from.
    pub graph: DeviceGraph<'a>,
}

/// Samples the mini-batches of one rank, one after another.
pub enum BatchSampler<'a> {
    /// The host does.
    Host(HostSampler<'a>),
    /// The GPU that computes them does.
    Gpu(Box<GpuSampler<'a>>),
}

impl<'a> BatchSampler<'a> {
    /// The host samples from `graph` with `sampler`, for a rank at `place`.
    pub fn on_host(sampler: Sampler, graph: Graph<'a>, place: &Place) -> Self {
        Self::Host(HostSampler::new(sampler, graph, place))
    }

    /// The GPU of `place` samples from `there`; with `ahead` on a stream of its own.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu): what the driver says.
    pub fn on_device(place: &Place, there: OnDevice<'a>, ahead: bool) -> Result<Self> {
        Ok(Self::Gpu(Box::new(GpuSampler::new(place, there, ahead)?)))
    }

    /// Draws as `near` says, where the host samples.
    pub fn prefer(&mut self, near: Near) {
        if let Self::Host(sampler) = self {
            sampler.prefer(near);
        }
    }

    /// Draws what it prefers `factor` times more often.
    pub fn set_factor(&mut self, factor: f64) {
        if let Self::Host(sampler) = self {
            sampler.set_factor(factor);
        }
    }
}
