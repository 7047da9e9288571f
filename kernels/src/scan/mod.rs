//! Exclusive prefix sums: positions, from the number of items of each.
//!
//! On the host this is a loop; here is the version for GPUs.

pub(crate) mod cuda;
