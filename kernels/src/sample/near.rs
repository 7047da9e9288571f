//! The vertices that a rank draws more often than others: those whose rows it keeps, and those from whose neighbourhoods these are
//! reached.
//!
//! Returns: a set for each layer. S_0 are the vertices whose rows the rank keeps: what the lowest layer draws is loaded, so it is drawn
//! from S_0 more often. S_j = S_{j-1} ∪ N(S_{j-1}) for the layer j above it, with N(S) the vertices that have an in-neighbour in S: a
//! vertex that is drawn there has something to draw from S_{j-1} in the layer below. How the sampler draws from a set, and corrects
//! sums for it: `locality.rs`. A set that holds all in-neighbours of a vertex changes nothing for it, so on
//! graphs where S_j soon is everything the factor acts in the lowest layers alone.
//!
//! Samples stay a function of (seed, epoch, step, layer, vertex), and of these sets: ranks that keep the same rows draw alike.
//! Source: Song and Jiang, "Rethinking graph data placement for graph neural network training on multiple GPUs", ICS 2022.
//! Cost: at most a look at each edge for each layer but the lowest, once a run; a bit a vertex for each layer.

use super::{Draw, Graph, VertexSet};

/// Vertices that a rank draws more often, and how much more.
#[derive(Clone, Debug)]
pub struct Near {
    /// For each layer, from the seeds down.
    sets: Vec<VertexSet>,
    factor: f64,
}

impl Near {
    /// For a rank that keeps the rows of `kept`, vertices of `graph`, and samples so many `layers` of it. Nothing is drawn more often
    /// yet.
    pub fn new(graph: &Graph<'_>, kept: &[u32], layers: usize) -> Self {
        let lowest = VertexSet::new(graph.num_vertices(), kept.iter().copied());
        let above = |set: &VertexSet| Some(set.with_targets(graph));
        let mut sets: Vec<VertexSet> = std::iter::successors(Some(lowest), above).take(layers).collect();
        sets.reverse();
        Self { sets, factor: 1.0 }
    }

    /// The same sets, drawn from `factor` times more often.
    pub fn set_factor(&mut self, factor: f64) {
        self.factor = factor;
    }

    /// `draw` as layer `depth`, from the seeds down, draws.
    pub fn of<'a>(&'a self, draw: Draw<'a>, depth: usize) -> Draw<'a> {
        draw.near(&self.sets[depth], self.factor)
    }
}
