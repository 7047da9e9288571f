//! Mini-batches of edges: which edges are learnt and which are held out, and the pairs of a
//! mini-batch on one rank.

mod batch;
mod relation;
mod split;

pub use batch::{EdgeBatch, HostPairs};
pub use relation::LinkRelation;
pub use split::{HeldOut, LinkSplit, is_known};
