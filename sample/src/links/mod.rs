//! Mini-batches of edges: which edges are learnt and which are held out, and the pairs of a
//! mini-batch on one rank.

mod batch;
mod split;

pub use batch::{EdgeBatch, HostPairs};
pub use split::{HeldOut, LinkSplit, is_known};
