//! From seeds to a rank's sampled mini-batch, at the place that computes it: [`BatchSampler`] → [`Sampled`]. `batch` loads its feature
//! rows.
//!
//! What a host samples is plain data (`gsplit_sample`), of which [`Sampled::at`] makes edges, ids and exchanges. A GPU makes the same
//! itself.

mod on_gpu;
mod sampled;
mod sampler;

pub use on_gpu::{OnDevice, SampledOnGpu};
pub use sampled::{Sampled, SampledLayer, sample, sample_all};
pub use sampler::BatchSampler;
