//! Items in the order of their keys, on GPUs: the transpose of an index.
//!
//! Contract: stable, so items of one key keep their order, and what is summed over them has one order of sums.

pub(crate) mod cuda;

pub(crate) use cuda::{Grouped, Keyed, group_by_key};
