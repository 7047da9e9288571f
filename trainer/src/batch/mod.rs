//! From the epoch's seed order to a sampled mini-batch, each made from the one before: [`Seeds`] → [`Sampled`]. `source` loads its
//! feature rows, `pipeline` says how both come ahead of time.

mod frontiers;
mod on_gpu;
mod on_host;
mod sample;
mod sampler;
mod seeds;

pub use frontiers::{Frontiers, Ownership};
pub use on_gpu::GpuSampler;
pub use on_host::HostSampler;
pub use sample::{Sampled, SampledLayer, sample, sample_all};
pub use sampler::{BatchSampler, OnDevice, SampledThere};
pub use seeds::Seeds;
