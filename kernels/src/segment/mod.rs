//! Softmax over segments: consecutive rows that belong together, as the edges of one target do.
//!
//! Contract, on every device: segment `s` is rows `indptr[s]..indptr[s + 1]` of a row-major matrix,
//! and each column is taken by itself. Rows are added in their order, so the result does not depend
//! on the number of threads.

mod cpu;
pub(crate) mod cuda;

pub(crate) use cpu::{kept, softmax, softmax_backward};
