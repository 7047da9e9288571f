//! The vertices that a rank draws more often than others: the vertices whose rows it keeps, and
//! vertices from whose neighbourhoods these are reached.
//!
//! Returns: a set for each layer. S_0 are the vertices whose rows the rank keeps: the vertices
//! drawn by the lowest layer are loaded, so it draws from S_0 more often. S_j = S_{j-1} ∪
//! N(S_{j-1}) for the layer j above it, with N(S) the vertices that have an in-neighbour in S: a
//! vertex that is drawn there can draw from S_{j-1} in the layer below. How the sampler draws from
//! a set, and corrects sums for it: `locality.rs`. A set that holds all in-neighbours of a vertex
//! changes nothing for it, so on graphs where S_j soon contains every vertex the factor only
//! affects the lowest layers.
//!
//! Samples stay a function of (seed, epoch, step, layer, vertex), and of these sets: ranks that
//! keep the same rows draw alike. Source: Song and Jiang, "Rethinking graph data placement for
//! graph neural network training on multiple GPUs", ICS 2022. Cost: at most a look at each edge for
//! each layer except the lowest, once per run; a bit per vertex for each layer.

use super::{Draw, Graph, VertexSet};

/// Vertices that a rank draws more often, and the factor.
#[derive(Clone, Debug)]
pub struct PreferredVertices {
    /// For each layer, from the seeds down.
    sets: Vec<VertexSet>,
    factor: f64,
}

impl PreferredVertices {
    /// Creates the sets for a rank that keeps the rows of `kept`, vertices of `graph`, and samples
    /// `layers` layers of it. Nothing is drawn more often yet.
    pub fn new(graph: &Graph<'_>, kept: &[u32], layers: usize) -> Self {
        let lowest = VertexSet::new(graph.num_vertices(), kept.iter().copied());
        let above = |set: &VertexSet| Some(set.with_targets(graph));
        let mut sets: Vec<VertexSet> =
            std::iter::successors(Some(lowest), above).take(layers).collect();
        sets.reverse();
        Self { sets, factor: 1.0 }
    }

    /// Sets how many times more often the sets are drawn from.
    pub fn set_factor(&mut self, factor: f64) {
        self.factor = factor;
    }

    /// `draw` with the set of layer `depth`, counted from the seeds down.
    pub fn of<'a>(&'a self, draw: Draw<'a>, depth: usize) -> Draw<'a> {
        draw.prefer(&self.sets[depth], self.factor)
    }
}
