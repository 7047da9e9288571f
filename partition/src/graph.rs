//! Partitions of graphs in memory.

use gsplit_store::{NoProgress, Topology};

use crate::multilevel::Multilevel;
use crate::options::check_cut;
use crate::partitioner::Partitioner;
use crate::{Error, Problem, Quality, Result};

/// Options of [`partition_graph`].
#[derive(Clone, Copy, Debug)]
pub struct GraphOptions {
    /// Number of parts, from 1 to 65,535 and at most one for each vertex.
    pub parts: u32,
    /// Allowed imbalance: no part has more than 1 + `epsilon` times the mean number of vertices.
    pub epsilon: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Work for a smaller cut.
    pub quality: Quality,
}

impl GraphOptions {
    /// `parts` parts, 3 % of imbalance, and the default quality.
    pub fn parts(parts: u32) -> Self {
        Self { parts, epsilon: 0.03, seed: 0, quality: Quality::Default }
    }
}

/// Cuts `graph` by the multilevel partitioner and returns the part of each vertex. Edges count in
/// both directions, and vertices and edges weigh 1. No part is empty. The result does not depend on
/// the number of threads.
///
/// # Errors
/// [`Error::Option`] for options out of range, [`Error::TooManyParts`] for more parts than
/// vertices.
///
/// ```
/// use gsplit_partition::{GraphOptions, partition_graph};
/// use gsplit_store::Topology;
///
/// // Two triangles, and an edge between them.
/// let graph = Topology::of_edges(6, &[0, 1, 2, 3, 4, 5, 2], &[1, 2, 0, 4, 5, 3, 3])?;
/// let parts = partition_graph(&graph, &GraphOptions::parts(2))?;
/// assert!(parts[..3] == [parts[0]; 3] && parts[3..] == [1 - parts[0]; 3]);
/// # Ok::<(), gsplit_partition::Error>(())
/// ```
pub fn partition_graph(graph: &Topology, options: &GraphOptions) -> Result<Vec<u16>> {
    let GraphOptions { parts, epsilon, seed, quality } = *options;
    check_cut("", parts, epsilon)?;
    match graph.num_vertices() {
        vertices if parts as usize > vertices => Err(Error::TooManyParts { parts, vertices }),
        vertices if parts == 1 => Ok(vec![0; vertices]),
        _ => Multilevel
            .assign(&Problem { epsilon, seed, quality, ..Problem::of(graph, parts) }, &NoProgress),
    }
}
