//! Binary files: a reader opens arrays (`numbers`, each of a type), finds out by their names what they are (`catalog`), and
//! makes `edges` of two of them, and columns of the others.
//!
//! ```text
//! npy, npz, pt (pickle)                     arrays by name ──▶ catalog ─┐
//! folders                                    datasets as handed out ─────┴─▶ edges, sparse, held (columns in memory)
//! webgraph                                   no arrays: records of bits
//! ```

pub mod catalog;
mod edges;
pub mod folders;
mod held;
pub mod npy;
pub mod npz;
mod numbers;
mod pickle;
pub mod pt;
mod sparse;
pub mod webgraph;
