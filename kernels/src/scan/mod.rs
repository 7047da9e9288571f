//! Sums of all values before each one, on GPUs.
//!
//! Contract: sums are of `u32` and wrap; the total takes no place. In three launches (Merrill and Garland's "reduce, then scan"):
//! the sum of every tile, the scan of these sums, the scan of every tile from there.

pub(crate) mod cuda;

pub(crate) use cuda::exclusive_scan;
