//! Dropout masks drawn by vertex.
//!
//! Contract, on every device: the mask of a vertex is a function of the key and the vertex, so it
//! is the same on every rank and in every batch order. One Philox group of four words serves eight
//! features, and 16 groups serve 128: feature `128 r + 32 w + 16 h + b` takes half `h` (0 for the
//! low one) of word `w` of group `16 r + b`, so that vector units decide neighbouring features
//! alike. A feature is dropped if its 16 bits are below `p · 2^16`. The same masks decide which
//! [attention weights](crate::Attention) are dropped, by their target.

mod cpu;

pub(crate) use cpu::RowMask;
pub use cpu::{MAX_DROPOUT_DIM, dropout_mask};
