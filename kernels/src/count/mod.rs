//! The counters of pre-sampling: how often training touches each vertex and each edge.
//!
//! Contract, on every device: four counts of different things, never mixed up. `input[v]`: batches that load the
//! features of v (it ranks caches). `appear[v]`: appearances of v at any layer (the load of GSplit, section 4).
//! `work[v]`: sampled in-edges charged to v (the load in edges). `edge[e]`: times e was sampled (the communication).
//! Totals do not depend on the order of batches.

mod cpu;
pub(crate) mod cuda;

pub use cpu::Counters;
pub(crate) use cpu::EdgeCounts;
pub use cuda::DeviceCounters;

/// The final counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CounterParts {
    /// Batches that load the features of each vertex.
    pub input: Vec<u32>,
    /// Appearances of each vertex at any layer.
    pub appear: Vec<u32>,
    /// Sampled in-edges of each vertex; their sum equals that of `edge`.
    pub work: Vec<u32>,
    /// Times each edge was sampled, in the order of the graph's `indices`.
    pub edge: Vec<u32>,
}
