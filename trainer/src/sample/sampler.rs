//! The sampler of a rank's mini-batches: the host, or the GPU that computes them.
//!
//! Both draw the same samples, to the bit. On a GPU the graph is in its memory or in the host's,
//! read over the bus ([`Topology`](crate::residence::topology::Topology)); frontiers and edges stay
//! on the GPU, and the host reads only their sizes.

use gsplit_kernels::{Graph, PreferredVertices, Sampler};
use gsplit_sample::HostSampler;

use super::on_gpu::{GpuSampler, OnDevice};
use crate::Result;
use crate::operator::Place;

/// Sampler of the mini-batches of one rank, one after another.
pub enum BatchSampler<'a> {
    /// The host, for a rank at this place.
    Host(Box<HostSampler<'a>>, Place),
    /// The GPU that computes.
    Gpu(Box<GpuSampler<'a>>),
}

impl<'a> BatchSampler<'a> {
    /// Sampler on the host, from `graph` with `sampler`, for a rank at `place`.
    pub fn on_host(sampler: Sampler, graph: Graph<'a>, place: &Place) -> Self {
        Self::Host(Box::new(HostSampler::new(sampler, graph)), place.clone())
    }

    /// Sampler on the GPU of `place`, from `inputs`; with `ahead` on a separate stream.
    pub fn on_device(place: &Place, inputs: OnDevice<'a>, ahead: bool) -> Result<Self> {
        Ok(Self::Gpu(Box::new(GpuSampler::new(place, inputs, ahead)?)))
    }

    /// Prefers the vertices of `preferred`, if the host samples.
    pub fn prefer(&mut self, preferred: PreferredVertices) {
        if let Self::Host(sampler, _) = self {
            sampler.prefer(preferred);
        }
    }

    /// Draws preferred vertices `factor` times more often.
    pub fn set_factor(&mut self, factor: f64) {
        if let Self::Host(sampler, _) = self {
            sampler.set_factor(factor);
        }
    }
}
