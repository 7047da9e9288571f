//! Items in the order of their keys, on GPUs: the transpose of an index.
//!
//! Contract: stable, so items of one key keep their order, and sums over them have a fixed order.

pub(crate) mod cuda;

pub(crate) use cuda::{Grouped, Keyed, group_by_key};
