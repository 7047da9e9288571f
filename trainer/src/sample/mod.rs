//! From the epoch's seed order to a sampled mini-batch, each made from the one before: [`Seeds`] → [`Sampled`]. `batch` loads its
//! feature rows, ahead of time.

mod frontiers;
mod on_gpu;
mod on_host;
mod sampled;
mod sampler;
mod seeds;

pub use frontiers::{Frontiers, Ownership};
pub use on_gpu::GpuSampler;
pub use on_host::HostSampler;
pub use sampled::{Sampled, SampledLayer, sample, sample_all};
pub use sampler::{BatchSampler, OnDevice, SampledThere};
pub use seeds::Seeds;
