//! What a layer knows of its neighbourhoods: the sampled edges, and the degrees of the whole graph.
//!
//! A sum over sampled in-edges stands for the sum over all of them: with d in-edges in the graph, s of them sampled, each
//! counts d / s times, which makes the sampled sum right in expectation, and exact with fanout `all` (the estimator of
//! Horvitz and Thompson, 1952). Degrees are always the graph's, never the sample's: a source's edges within the sample
//! depend on the mini-batch and on the rank, the graph's do not, so every parallelism computes the same.

use std::sync::Arc;

use gsplit_kernels::Graph;
use tch::Tensor;

use crate::Result;
use crate::operator::{Edges, column};
use crate::place::Place;

/// The sampled edges of one layer, and the vertices at their ends.
#[derive(Clone, Debug)]
pub struct LayerEdges<'a> {
    /// Edges from rows of the mixed frontier to rows of the frontier; row `i` of the frontier is row `i` of the mixed
    /// frontier.
    pub edges: Arc<Edges>,
    vertices: &'a [u32],
    graph: Graph<'a>,
}

impl<'a> LayerEdges<'a> {
    /// In-edges of frontier row `i` come from rows `local[indptr[i]..indptr[i + 1]]` of the mixed frontier, which holds
    /// `vertices` of `graph`. They are to be used at `place`.
    ///
    /// # Errors
    /// As [`Edges::new`].
    pub fn new(place: &Place, graph: Graph<'a>, indptr: &[u32], local: &[u32], vertices: &'a [u32]) -> Result<Self> {
        let edges = Edges::new(place, indptr.to_vec(), local.to_vec(), vertices.len())?;
        Ok(Self { edges: Arc::new(edges), vertices, graph })
    }

    /// As [`LayerEdges::new`], with edges that were made before.
    pub(crate) fn made(graph: Graph<'a>, edges: Arc<Edges>, vertices: &'a [u32]) -> Self {
        Self { edges, vertices, graph }
    }

    /// Where rows of the layer are, and where it computes.
    pub fn place(&self) -> &Place {
        self.edges.place()
    }

    /// The vertex of each row of the mixed frontier.
    pub fn vertices(&self) -> &'a [u32] {
        self.vertices
    }

    /// In-edges that the vertex of row `row` of the mixed frontier has in the graph, sampled or not.
    ///
    /// # Panics
    /// If there is no such row, or its vertex is not of the graph.
    pub fn degree(&self, row: usize) -> usize {
        self.graph.degree(self.vertices[row]) as usize
    }

    /// In-degrees of the frontier's rows in the graph, f32 `[num_frontier, 1]`: times a mean over the sampled edges they
    /// estimate the sum over all.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) beyond any memory.
    pub fn degrees(&self) -> Result<Tensor> {
        self.place().bring(&column((0..self.edges.num_targets()).map(|target| self.degree(target) as f32))?)
    }

    /// The edges with a loop at each frontier row before its own, and the weights of D⁻¹ᐟ² (A + I) D⁻¹ᐟ² (Kipf and Welling,
    /// ICLR 2017, equation 2), f32 `[edges]`: with d the in-degree in the graph,
    /// 1 / (d(v) + 1) for the loop and (d(v) / s(v)) / √((d(u) + 1)(d(v) + 1)) for each of s(v) sampled edges u → v.
    /// A loop that the graph holds itself counts as one more edge. Cost: O(edges).
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) if a frontier row is no row of the mixed frontier.
    pub fn symmetric(&self) -> Result<(Arc<Edges>, Tensor)> {
        let edges = &self.edges;
        let (targets, total) = (edges.num_targets(), edges.num_edges() + edges.num_targets());
        let (mut indptr, mut sources, mut weights) =
            (Vec::with_capacity(targets + 1), Vec::with_capacity(total), Vec::with_capacity(total));
        let with_loop = |row: usize| (self.degree(row) + 1) as f32;
        let roots: Vec<f32> = (0..edges.num_sources()).map(|row| with_loop(row).sqrt().recip()).collect();
        indptr.push(0);
        for target in 0..targets {
            let of = edges.of(target);
            sources.push(target as u32);
            weights.push(with_loop(target).recip());
            let factor = self.degree(target) as f32 / of.len().max(1) as f32 * roots[target];
            for &source in &edges.sources()[of] {
                sources.push(source);
                weights.push(factor * roots[source as usize]);
            }
            indptr.push(sources.len() as u32);
        }
        let weights = self.place().bring(&column(weights.into_iter())?.view([-1]))?;
        Ok((Arc::new(Edges::new(self.place(), indptr, sources, edges.num_sources())?), weights))
    }
}
