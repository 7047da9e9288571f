//! The training sampler: in-neighbours of a frontier, uniformly and without replacement.
//!
//! Contract, on every device: a vertex of degree at most the fanout keeps all its in-edges. Any other one keeps
//! `fanout` of them, drawn by Floyd's algorithm from the words of its own Philox sequence, one word a pick, and
//! stored ascending. What a vertex gets is a function of (seed, epoch, step, layer, vertex) and the graph, and of
//! nothing else.

mod cpu;
mod fanout;
mod graph;

pub use cpu::{neighbours, sample_layer};
pub use fanout::Fanout;
pub use graph::Graph;

/// The in-edges drawn for a frontier, grouped by frontier position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SampledEdges {
    /// Edges of frontier position `i` are `edges[indptr[i]..indptr[i + 1]]`; length frontier + 1.
    pub indptr: Vec<u32>,
    /// Positions in the graph's `indices`, ascending within a vertex.
    pub edges: Vec<u64>,
}

impl SampledEdges {
    /// Number of sampled edges.
    pub fn num_edges(&self) -> usize {
        self.edges.len()
    }

    /// The edges drawn for frontier position `i`.
    ///
    /// # Panics
    /// If `i` is not a frontier position.
    pub fn of(&self, i: usize) -> &[u64] {
        &self.edges[self.indptr[i] as usize..self.indptr[i + 1] as usize]
    }
}
