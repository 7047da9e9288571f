//! Split sampling on the host: the mini-batch of one rank, from its seeds down, as plain data.
//!
//! ```text
//! local frontier = my seeds                                               Seeds::of
//! for each layer from the top:                                            HostSampler::sample
//!     sampled edges  = sample(local frontier)
//!     mixed frontier = local frontier ++ newly sampled vertices
//!     local frontier = my vertices among all ranks' mixed frontiers       HostShuffle::new, one exchange of ids
//! ```
//!
//! Draws are keyed by (seed, epoch, step, layer, vertex), so the union of the ranks' edges is the
//! sample that a single rank would draw, and each vertex of a layer is on exactly one rank (GSplit,
//! MLSys 2025, section 5, Algorithm 1). [`Frontiers`] says who holds which rows. Where the next
//! frontier is [`Ownership::Mine`], nothing is exchanged: the next local frontier is the mixed
//! frontier.
//!
//! Mini-batches of edges, for link prediction, have seeds of their own: the ends of pairs
//! ([`links`]).
//!
//! This crate does not use tensors: the trainer builds them from a [`HostSample`] and moves rows as
//! each [`HostExchange`] says.
//!
//! ```
//! use gsplit_kernels::schedule::Step;
//! use gsplit_kernels::{Graph, Sampler, Solo};
//! use gsplit_sample::{Frontiers, HostSampler, Ownership, Seeds};
//!
//! // Edges 1 → 0, 2 → 0 and 0 → 1.
//! let graph = Graph::new(&[0, 2, 3, 3], &[1, 2, 0])?;
//! let frontiers = Frontiers::all(Ownership::Mine, 2);
//! let seeds = Seeds::of(&[1], frontiers.seeds(), 0, 1);
//! let (fanouts, step) = ("15,10".parse()?, Step { seed: 0, epoch: 1, step: 0 });
//! let sample = HostSampler::new(Sampler::new(1), graph).sample(seeds, &fanouts, step, &frontiers, &Solo)?;
//! assert_eq!((sample.frontier(0), sample.frontier(1), sample.frontier(2)), (&[1][..], &[1, 0][..], &[1, 0, 2][..]));
//! assert_eq!(sample.layers[1].edges.sources(), [1, 0, 2]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod error;
mod frontiers;
pub mod links;
mod sampler;
mod shuffle;
#[cfg(test)]
mod tests;

pub use error::SampleError;
pub use frontiers::{Frontiers, Ownership, Seeds};
pub use sampler::{HostLayer, HostSample, HostSampler};
pub use shuffle::{HostExchange, HostShuffle, RowCounts};
