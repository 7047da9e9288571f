//! Links: the graph without the held-out edges, and the pairs of a mini-batch of edges.

use gsplit_kernels::Graph;
use gsplit_sample::HostExchange;
use gsplit_sample::links::{HeldOut, HostPairs, LinkSplit};
use gsplit_store::{Dataset, EdgeWeights};
use pyo3::prelude::*;

use crate::batch::{Problem, wide};

/// Edges held out if the dataset has no split of links of its own; a dictionary in Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct HeldOutEdges {
    valid_edges: f64,
    test_edges: f64,
    edge_seed: u64,
}

/// Edges of a dataset as links to learn.
pub struct LinkPlan {
    pub split: LinkSplit,
    /// Position in the dataset of each edge that is not held out; `None` if the graph is the
    /// dataset's.
    positions: Option<Vec<u64>>,
    /// Number of negative pairs drawn for each edge; `None` if mini-batches are of vertices.
    pub negatives: Option<usize>,
}

impl LinkPlan {
    /// The dataset's own split of links, or one that holds out `edges`.
    pub fn new(
        dataset: &Dataset,
        edges: HeldOutEdges,
        negatives: Option<usize>,
    ) -> Result<Self, Problem> {
        let topology = dataset.topology();
        let whole = Graph::new(topology.indptr(), topology.indices())?;
        let HeldOutEdges { valid_edges: valid, test_edges: test, edge_seed: seed } = edges;
        let split = match dataset.links()? {
            Some(links) => LinkSplit::given(links, topology)?,
            None => LinkSplit::new(&whole, HeldOut { valid, test, seed }, None)?,
        };
        let positions = split.positions_in(&whole);
        let split = split.of_kinds(dataset.kinds()?);
        Ok(Self { split, positions, negatives })
    }

    /// Positions in the dataset of `edges`, which are positions in the graph.
    pub fn in_dataset(&self, edges: Vec<u64>) -> Vec<u64> {
        match &self.positions {
            Some(positions) => edges.into_iter().map(|edge| positions[edge as usize]).collect(),
            None => edges,
        }
    }

    /// Weights of the graph's edges, selected from the dataset's `weights`.
    pub fn weights(&self, weights: EdgeWeights) -> EdgeWeights {
        match &self.positions {
            Some(positions) => weights.select(positions),
            None => weights,
        }
    }
}

/// A rank's pairs of a mini-batch: each edge is followed by its negatives.
pub struct EdgePairs {
    /// Sources, then targets, as rows.
    pub ends: Vec<i64>,
    /// Position of each edge in the dataset.
    pub edge_ids: Vec<u64>,
    /// Rows of the seeds that move between ranks; `None` if none move.
    pub exchange: Option<HostExchange>,
}

impl EdgePairs {
    pub fn new(pairs: HostPairs, edge_ids: Vec<u64>) -> Self {
        Self { ends: wide(&pairs.ends.concat()), edge_ids, exchange: pairs.exchange }
    }
}
