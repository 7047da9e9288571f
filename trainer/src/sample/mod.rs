//! Samples a rank's mini-batch from seeds, at the place that computes it: [`BatchSampler`] →
//! [`Sampled`]. `batch` loads its feature rows.
//!
//! The samples of a host are plain data (`gsplit_sample`), which [`Sampled::at`] turns into edges,
//! ids and exchanges. A GPU makes these itself.

mod on_gpu;
mod sampled;
mod sampler;

pub use on_gpu::{OnDevice, SampledOnGpu};
pub use sampled::{Sampled, SampledLayer, sample, sample_all};
pub use sampler::BatchSampler;
