//! Sums of values on GPUs over all ranks.
//!
//! Contract: the bits that a [`Communicator`](crate::Communicator) gives for the same values on the
//! host.

pub(crate) mod cuda;

pub use cuda::{DeviceAddend, device_all_reduce_sum};
