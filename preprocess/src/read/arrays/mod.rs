//! Binary files: a reader opens arrays (`numbers`, each of one type), recognises their roles by
//! their names (`catalog`), and makes `edges` of two of them, and columns of the others.
//!
//! ```text
//! npy, npz, pt (pickle)                     arrays by name ──▶ catalog ─┐
//! folders                                    datasets as published ─────────┴─▶ edges, sparse, held (columns in memory)
//! webgraph                                   no arrays: records of bits
//! ```

pub mod catalog;
mod edges;
pub mod folders;
pub mod npy;
pub mod npz;
mod numbers;
mod pickle;
pub mod pt;
mod sparse;
pub mod webgraph;
