//! Columns of the dataset's edges that a run reads: weights to draw in-neighbours by, and factors
//! of rows in sums.
//!
//! Edges of weight 0, which are never drawn, do not belong to the run's graph: no degree counts
//! them, no evaluation reads them.
//!
//! Cost: 4 bytes per vertex for the sums of the latter weights, and for degrees if some edges are
//! never drawn; 4 bytes per edge for each column of a graph with held-out edges, or of a type other
//! than f32.

use gsplit_kernels::Graph;
use gsplit_store::{Dataset, EdgeWeights};

use crate::Result;

/// Weights of the edges of a graph.
#[derive(Clone, Debug, Default)]
pub struct EdgeColumns {
    /// Weights to draw by, with the number of drawable in-edges per vertex unless all can be drawn.
    drawn_by: Option<(EdgeWeights, Option<Vec<u32>>)>,
    /// Weights to multiply by, with their sums over the in-edges of each vertex.
    summed_by: Option<(EdgeWeights, Vec<f32>)>,
}

impl EdgeColumns {
    /// Opens the columns of `dataset` with these names, to draw by and to multiply by in sums.
    pub fn open(
        dataset: &Dataset,
        drawn_by: Option<&String>,
        summed_by: Option<&String>,
    ) -> Result<Self> {
        let open = |name: Option<&String>| name.map(|name| dataset.edge_weights(name)).transpose();
        let graph = Graph::new(dataset.topology().indptr(), dataset.topology().indices())?;
        Self::new(graph, open(drawn_by)?, open(summed_by)?)
    }

    fn new(
        graph: Graph<'_>,
        drawn_by: Option<EdgeWeights>,
        summed_by: Option<EdgeWeights>,
    ) -> Result<Self> {
        let drawn = match &drawn_by {
            Some(weights) => graph.with_weights(weights)?,
            None => graph,
        };
        let (drawable, sums) = (
            drawn.num_drawable(),
            summed_by.as_ref().map(|weights| drawn.weighted_degrees(weights)),
        );
        let summed_by = summed_by.zip(sums.transpose()?);
        Ok(Self { drawn_by: drawn_by.map(|weights| (weights, drawable)), summed_by })
    }

    /// True if there are no columns.
    pub fn is_empty(&self) -> bool {
        self.drawn_by.is_none() && self.summed_by.is_none()
    }

    /// The columns of `graph`, whose edges are at `positions` in the graph of these columns.
    pub fn select(&self, graph: &Graph<'_>, positions: &[u64]) -> Result<Self> {
        let drawn_by = self.drawn_by.as_ref().map(|(weights, _)| weights.select(positions));
        let summed_by = self.summed_by.as_ref().map(|(weights, _)| weights.select(positions));
        Self::new(*graph, drawn_by, summed_by)
    }

    /// Adds these columns to `graph`.
    pub fn of<'a>(&'a self, mut graph: Graph<'a>) -> Result<Graph<'a>> {
        if let Some((weights, drawable)) = &self.drawn_by {
            graph = graph.with_weights(weights)?;
            if let Some(drawable) = drawable {
                graph = graph.with_drawable(drawable)?;
            }
        }
        if let Some((weights, sums)) = &self.summed_by {
            graph = graph.with_factors(weights, sums)?;
        }
        Ok(graph)
    }
}
