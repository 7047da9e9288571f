//! From the epoch's seed order to a mini-batch that is ready to compute, one type per stage, each made from the one
//! before: [`Seeds`] → [`Sampled`] → [`Loaded`]; and how they come ahead of time, [`for_each_batch`].

mod sample;
mod sampler;
mod seeds;

pub use sample::{Sampled, SampledLayer, sample};
pub use sampler::{BatchSampler, OnDevice, SampledThere};
pub use seeds::{Frontiers, Ownership, Seeds};
