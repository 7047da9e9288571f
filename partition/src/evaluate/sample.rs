//! The mini-batch that one rank alone would sample: what all ranks sample together.

use gsplit_kernels::schedule::{Fanouts, layer_key};
use gsplit_kernels::{Graph, neighbours, sample_layer, unique_frontier_first};

use crate::Result;

/// One layer of a mini-batch, of all ranks together.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    indptr: Vec<u32>,
    /// Source of each sampled edge, as a position in `mixed`.
    sources: Vec<u32>,
    /// Mixed frontier: the vertices that this layer computes, then the others that it reads. It is the frontier of the layer
    /// below.
    pub mixed: Vec<u32>,
}

impl Layer {
    /// Number of vertices that this layer computes: the first ones of `mixed`.
    pub fn num_vertices(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Number of sampled edges.
    pub fn num_edges(&self) -> usize {
        self.sources.len()
    }

    /// The sampled in-neighbours of frontier position `i`, as positions in `mixed`.
    pub fn sources_of(&self, i: usize) -> &[u32] {
        &self.sources[self.indptr[i] as usize..self.indptr[i + 1] as usize]
    }
}

/// A sampled mini-batch.
#[derive(Clone, Debug)]
pub(super) struct MiniBatch {
    /// Layers from the seeds downwards, at least one; the first computes the seeds.
    pub layers: Vec<Layer>,
}

impl MiniBatch {
    /// Samples layer by layer from `seeds`, distinct vertices, down, with the draws of step `step` of `epoch`.
    pub fn sample(
        graph: &Graph<'_>,
        seeds: &[u32],
        fanouts: &Fanouts,
        (seed, epoch, step): (u64, u32, u32),
    ) -> Result<Self> {
        let mut layers: Vec<Layer> = Vec::with_capacity(fanouts.len());
        for (depth, fanout) in (0..).zip(fanouts.iter()) {
            let frontier = layers.last().map_or(seeds, |above| &above.mixed);
            let sampled = sample_layer(graph, frontier, fanout, &layer_key(seed, epoch, step, depth))?;
            let relabelled = unique_frontier_first(frontier, &neighbours(graph, &sampled.edges));
            layers.push(Layer { indptr: sampled.indptr, sources: relabelled.local, mixed: relabelled.mixed });
        }
        Ok(Self { layers })
    }

    /// The vertices whose feature rows are loaded.
    pub fn input(&self) -> &[u32] {
        self.layers.last().map_or(&[], |bottom| &bottom.mixed)
    }

    /// Number of seeds.
    pub fn num_seeds(&self) -> usize {
        self.layers.first().map_or(0, Layer::num_vertices)
    }
}
