//! Sums of everything before: how many things come before each, from how many there are of each.
//!
//! On the host a loop does it; here is what GPUs need.

pub(crate) mod cuda;
