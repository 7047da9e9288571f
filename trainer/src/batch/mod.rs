//! From the epoch's seed order to a mini-batch that is ready to compute, one type per stage, each made from the one
//! before: [`Seeds`] → [`Sampled`] → [`Loaded`].

mod load;
mod sample;
mod seeds;

pub use load::{Loaded, load};
pub use sample::{Sampled, SampledLayer, sample};
pub use seeds::{Ownership, Seeds};
