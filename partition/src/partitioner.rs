//! What a partitioner is, and the one place that turns a [`Method`] into one.

use gsplit_store::{Progress, Topology, Unit};

use crate::baseline::{Hash, Random};
use crate::multilevel::{Multilevel, Quality};
use crate::repair::{Loads, balance, fill_empty_parts};
use crate::spread::spread;
use crate::{Adjacency, Method, Result, VertexWeights, metis};

/// A graph to be cut into parts.
pub(crate) struct Problem<'a> {
    /// The graph.
    pub topology: &'a Topology,
    /// What the parts share evenly.
    pub weights: VertexWeights,
    /// What cutting an edge costs, one count per edge of the topology; `None` when every adjacent pair costs 1.
    pub edge_counts: Option<&'a [u32]>,
    /// Number of parts: at least 2, at most as many as there are vertices.
    pub parts: u32,
    /// Allowed imbalance.
    pub epsilon: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// How much work goes into a small cut.
    pub quality: Quality,
}

/// Cuts graphs into parts.
pub(crate) trait Partitioner {
    /// The part of every vertex, below `problem.parts`; no part is empty. The same problem gets the same answer, for any
    /// number of threads.
    fn assign(&self, problem: &Problem<'_>, progress: &dyn Progress) -> Result<Vec<u16>>;
}

impl Method {
    /// The partitioner of that name.
    pub(crate) fn partitioner(self) -> &'static dyn Partitioner {
        match self {
            Self::Multilevel => &Multilevel,
            Self::Metis => &Metis,
            Self::Random => &Random,
            Self::Hash => &Hash,
        }
    }
}

/// METIS on the vertices that have neighbours, the others spread, then what METIS only aimed at made true.
struct Metis;

impl Partitioner for Metis {
    fn assign(&self, problem: &Problem<'_>, progress: &dyn Progress) -> Result<Vec<u16>> {
        let Problem { weights, parts, epsilon, .. } = problem;
        let stage = progress.stage("symmetrise", None, Unit::Items("edges"));
        let graph = Adjacency::build(problem.topology, problem.edge_counts)?;
        stage.advance(problem.topology.num_edges() as u64);
        drop(stage);

        let stage = progress.stage("metis", None, Unit::Items("vertices"));
        let mut assignment = vec![0; problem.topology.num_vertices()];
        let mut loads = Loads::empty(*parts, weights);
        let mut left = vec![true; assignment.len()];
        // METIS needs more vertices than parts.
        if graph.num_rows() > *parts as usize {
            let found = metis::kway(&graph, weights, *parts, *epsilon, problem.seed)?;
            for (&v, part) in graph.vertices().iter().zip(found) {
                assignment[v as usize] = part;
                loads.add(part, weights.of(v));
                left[v as usize] = false;
            }
        }
        stage.advance(graph.num_rows() as u64);
        let mut left: Vec<u32> = (0..assignment.len() as u32).filter(|&v| left[v as usize]).collect();
        spread(&mut left, weights, &mut loads, &mut assignment);
        fill_empty_parts(&mut assignment, weights, *parts);
        balance(&mut assignment, &graph, weights, *parts, *epsilon);
        Ok(assignment)
    }
}
