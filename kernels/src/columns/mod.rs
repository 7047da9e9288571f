//! Sums over the rows of a matrix on GPUs, column by column, of any function of its values.
//!
//! Contract: the order of the sums depends only on the matrix' size, so repeated runs give the same
//! bits, on every GPU.

pub(crate) mod cuda;

pub(crate) use cuda::ColumnSums;
