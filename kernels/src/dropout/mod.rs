//! Dropout masks drawn by vertex.
//!
//! Contract, on every device: the mask of a vertex is a function of the key and the vertex, so it is the same on
//! every rank and in every batch order. One Philox group of four words serves eight features: feature `8 b + 2 w`
//! takes the low half of word `w` of group `b`, feature `8 b + 2 w + 1` its high half. A feature is dropped if its 16
//! bits are below `p · 2^16`.

mod cpu;

pub(crate) use cpu::RowMask;
pub use cpu::{MAX_DROPOUT_DIM, dropout_mask};
