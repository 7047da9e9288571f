//! Neighbourhoods as a layer sees them: the sampled edges, and the degrees of the whole graph.
//!
//! A sum over sampled in-edges estimates the sum over all of them: with d in-edges in the graph, s
//! of them sampled, each counts d / s times, which makes the sampled sum right in expectation, and
//! exact with fanout `all` (the estimator of Horvitz and Thompson, 1952). Degrees are always the
//! graph's, never the sample's: a source's edges within the sample depend on the mini-batch and on
//! the rank, the graph's do not, so every parallelism computes the same. Edges of weight 0, which
//! can never be drawn, do not count as edges of the graph.
//!
//! Edges may have factors: the weights of the dataset's edges, the correction for non-uniform
//! draws, or the product of both. Operators multiply rows by them ([`Edges::with_factors`]), so
//! layers need not handle them.

use std::sync::Arc;

use gsplit_kernels::schedule::Step;
use gsplit_kernels::{DeviceGraph, Graph, SampledCsc, Stream, symmetric, symmetric_on_device};
use tch::Tensor;

use crate::operator::{Dropout, Edges, Ids, Place, filled_of};
use crate::{Error, Result, autograd};

/// The sampled edges of one layer, and their end vertices.
#[derive(Clone, Debug)]
pub struct LayerEdges<'a> {
    /// Edges from rows of the mixed frontier to rows of the frontier; row `i` of the frontier is
    /// row `i` of the mixed frontier.
    pub edges: Arc<Edges>,
    vertices: Ids,
    /// Number of vertices of the frontier.
    frontier: usize,
    graph: Graph<'a>,
    /// The graph in the form that the GPU reads, if the GPU sampled the layer.
    graph_on_gpu: Option<DeviceGraph<'a>>,
    /// The mini-batch and the layer, during training.
    trained_at: Option<(Step, u8)>,
    /// Counts that [`LayerEdges::counts`] returns instead of these edges' own.
    typical: Option<[usize; 3]>,
}

impl<'a> LayerEdges<'a> {
    /// In-edges of frontier row `i` come from rows `local[indptr[i]..indptr[i + 1]]`, of `layer`,
    /// of the mixed frontier, which holds `vertices` of `graph`. The edges are stored at `place`.
    ///
    /// # Errors
    /// Errors of [`Edges::new`].
    pub fn new(
        place: &Place,
        graph: Graph<'a>,
        layer: SampledCsc,
        vertices: &[u32],
    ) -> Result<Self> {
        let edges = Edges::new(place, layer.indptr, layer.local, vertices.len())?
            .with_factors(layer.factors)?;
        Ok(Self::made(graph, None, Arc::new(edges), vertices.into()))
    }

    /// Like [`LayerEdges::new`], with existing edges, and on a GPU with the graph in the form that
    /// the GPU reads.
    pub(crate) fn made(
        graph: Graph<'a>,
        graph_on_gpu: Option<DeviceGraph<'a>>,
        edges: Arc<Edges>,
        vertices: Ids,
    ) -> Self {
        let frontier = edges.num_targets();
        Self { edges, vertices, frontier, graph, graph_on_gpu, trained_at: None, typical: None }
    }

    /// Declares that the targets are the rows of a frontier of `frontier` vertices, which have
    /// several types.
    pub(crate) fn into_rows_of(self, frontier: usize) -> Self {
        Self { frontier, ..self }
    }

    /// Number of vertices of the frontier.
    pub fn num_frontier(&self) -> usize {
        self.frontier
    }

    /// Positions in the frontier of the vertices of each type, ascending: the targets of the edges
    /// are the rows of these vertices, type after type.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) if vertices have one type.
    pub fn by_type(&self) -> Result<Vec<Vec<u32>>> {
        let layout = self.graph.layout();
        let layout = layout.ok_or_else(|| Error::Option("a graph of one type".into()))?;
        Ok(layout.positions(&self.vertices()?[..self.frontier])?)
    }

    /// The row of the graph that each target is, and its relation, by its place in
    /// [`RowLayout::relations`](gsplit_kernels::RowLayout::relations).
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) if vertices have one type.
    pub fn relations(&self) -> Result<[Vec<u32>; 2]> {
        let layout = self.graph.layout();
        let layout = layout.ok_or_else(|| Error::Option("a graph of one type".into()))?;
        let mut rows = Vec::new();
        layout.rows_of(&self.vertices()?[..self.frontier], &mut rows)?;
        let relations = rows.iter().map(|&row| layout.relation_of(row) as u32).collect();
        Ok([rows, relations])
    }

    /// The same edges in training, in the mini-batch `step`, for layer `index` from the features
    /// upwards.
    pub(super) fn trained_at(&self, step: Step, index: usize) -> Self {
        Self { trained_at: Some((step, index as u8)), ..self.clone() }
    }

    /// The same edges, with the counts of targets, sources and edges of a typical part of the
    /// layer: choices based on them are then the same for all parts, whatever their sizes.
    pub(crate) fn counted_as(self, typical: [usize; 3]) -> Self {
        Self { typical: Some(typical), ..self }
    }

    /// Numbers of targets, sources and edges by which a layer chooses the order of its products and
    /// sums.
    pub(super) fn counts(&self) -> [usize; 3] {
        let edges = &self.edges;
        self.typical.unwrap_or([edges.num_targets(), edges.num_sources(), edges.num_edges()])
    }

    /// Dropout of a fraction `probability` of the weights of
    /// [`attention`](crate::operator::attention()): the same on whichever rank an edge is computed.
    /// `None` outside training.
    pub fn attention_dropout(&self, probability: f32) -> Option<Dropout> {
        let (step, layer) = self.trained_at.filter(|_| probability > 0.0)?;
        Some(Dropout {
            ids: self.vertices.clone(),
            probability,
            key: step.key(Stream::Attention, layer),
        })
    }

    /// Place of the layer's rows and computation.
    pub fn place(&self) -> &Place {
        self.edges.place()
    }

    /// The vertex of each row of the mixed frontier. If a GPU sampled them, they are copied to the
    /// host on first use.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) if the GPU reports an error.
    pub fn vertices(&self) -> Result<&[u32]> {
        self.vertices.on_host()
    }

    /// In-degrees of the frontier's rows in the graph, unweighted, f32 `[num_frontier, 1]`:
    /// multiplied by a mean over the sampled edges they estimate the sum over all edges.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) if the tensor exceeds any possible memory.
    pub fn degrees(&self) -> Result<Tensor> {
        let targets = self.edges.num_targets();
        if let (Some(graph), Some((gpu, device, _))) = (&self.graph_on_gpu, self.edges.on_device())
        {
            let vertices = self.vertices.on_gpu(gpu)?.part(0, targets)?;
            return filled_of::<f32>(device, &[targets, 1], |out| {
                Ok(graph.degrees_as_f32(gpu, vertices, out)?)
            });
        }
        let degree = |&v: &u32| self.graph.drawable(v) as f32;
        let degrees: Vec<f32> = self.vertices()?[..targets].iter().map(degree).collect();
        Ok(self.place().upload(&degrees)?.f_view([targets as i64, 1])?)
    }

    /// The edges with a loop at each frontier row before its own, and the weights of D⁻¹ᐟ² (A + I)
    /// D⁻¹ᐟ² (Kipf and Welling, ICLR 2017, equation 2), f32 `[edges]`:
    /// [`gsplit_kernels::symmetric`]. The weights include the factors of the edges.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) if a frontier row is not a row of the mixed
    /// frontier.
    pub fn symmetric(&self) -> Result<(Arc<Edges>, Tensor)> {
        if let (Some(graph), Some((gpu, device, edges))) =
            (&self.graph_on_gpu, self.edges.on_device())
        {
            let degrees = graph.degrees(gpu, self.vertices.on_gpu(gpu)?)?;
            let mut with_loops = None;
            let weights =
                filled_of::<f32>(device, &[edges.num_edges() + edges.num_targets()], |out| {
                    with_loops = Some(symmetric_on_device(gpu, edges, degrees.slice(), out)?);
                    Ok(())
                })?;
            if let Some(with_loops) = with_loops {
                return Ok((Arc::new(Edges::of_device(self.place(), with_loops)), weights));
            }
        }
        let (edges, vertices) = (self.edges.on_host()?, self.vertices()?);
        let degrees: Vec<u64> =
            vertices.iter().take(edges.num_targets()).map(|&v| self.graph.drawable(v)).collect();
        let of_sources: Vec<f32> =
            vertices.iter().map(|&v| self.graph.degree_with_loop(v)).collect();
        let (with_loops, weights) = symmetric(edges, &degrees, &of_sources, self.edges.factors())?;
        let count = weights.len() as i64;
        let weights = self.place().bring(&autograd::adopt(weights, &[count])?)?;
        Ok((Arc::new(Edges::of_host(self.place(), with_loops)?), weights))
    }
}
