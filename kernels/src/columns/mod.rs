//! Sums over the rows of a matrix on GPUs, column by column, of whatever is made of its values.
//!
//! Contract: the order of the sums depends on the matrix' size alone, so repeated runs give the same bits, on every GPU.

pub(crate) mod cuda;

pub(crate) use cuda::ColumnSums;
