//! Aggregation: for each target of a layer's [`HostEdges`](crate::HostEdges) the sum, mean or
//! maximum of its sources' rows, and the gradients of all three.
//!
//! Contract, on every device: matrices are row-major. Rows are added in the order of the edges,
//! forwards within a target and backwards within a source, so the result does not depend on the
//! number of threads. A target without edges gets zeros. No row per edge is ever built. Source:
//! Wang et al., "Deep Graph Library", 2019 (g-SpMM).

mod cpu;
pub(crate) mod cuda;
mod max;
pub(crate) mod sum;
#[cfg(test)]
pub(crate) mod tests;

pub use cpu::{Aggregation, Reduce};
pub use cuda::{
    DeviceAggregation, DeviceRows, aggregate_max_backward_on_device, aggregate_max_on_device,
};
pub use max::{aggregate_max, aggregate_max_backward};
