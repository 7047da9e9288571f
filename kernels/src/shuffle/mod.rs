//! The index of a shuffle on a GPU: which rows go to which rank, forwards and backwards.
//!
//! Contract: the result of `gsplit_trainer::Exchange` on the host, to the bit.

pub(crate) mod cuda;

pub use cuda::{DeviceShuffle, DeviceSplit, select_on_device};
