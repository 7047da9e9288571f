//! The mini-batch that a single rank would sample, which is also the union of the samples of all
//! ranks.

use gsplit_kernels::schedule::{Fanouts, Step};
use gsplit_kernels::{Draw, EdgeIds, Graph, SampledCsc, Sampler};

use crate::Result;

/// One layer of a mini-batch, of all ranks together.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    csc: SampledCsc,
    /// Mixed frontier: the vertices that this layer computes, then the others that it reads. It is
    /// the frontier of the layer below.
    pub mixed_frontier: Vec<u32>,
}

impl Layer {
    /// Number of vertices that this layer computes: the first ones of `mixed_frontier`.
    pub fn num_vertices(&self) -> usize {
        self.csc.num_vertices()
    }

    /// Number of sampled edges.
    pub fn num_edges(&self) -> usize {
        self.csc.num_edges()
    }

    /// The sampled in-neighbours of frontier position `i`, as positions in `mixed_frontier`.
    pub fn sources_of(&self, i: usize) -> &[u32] {
        &self.csc.local[self.csc.indptr[i] as usize..self.csc.indptr[i + 1] as usize]
    }
}

/// A sampled mini-batch.
#[derive(Clone, Debug)]
pub(super) struct MiniBatch {
    /// Layers from the seeds downwards, at least one; the first computes the seeds.
    pub layers: Vec<Layer>,
}

impl MiniBatch {
    /// Samples layer by layer from `seeds`, distinct vertices, down, with the draws of `step`.
    pub fn sample(
        sampler: &mut Sampler,
        graph: &Graph<'_>,
        seeds: &[u32],
        fanouts: &Fanouts,
        step: Step,
    ) -> Result<Self> {
        let mut layers: Vec<Layer> = Vec::with_capacity(fanouts.len());
        sampler.start(seeds);
        for (key, fanout) in step.layers(fanouts) {
            let mut csc = SampledCsc::default();
            let frontier = graph.layout().map(|layout| (layout, sampler.mixed_frontier().to_vec()));
            sampler.layer(graph, &Draw::of(fanout), &key, EdgeIds::Drop, &mut csc)?;
            if let Some((layout, frontier)) = frontier {
                csc = layout.by_vertex(&frontier, &csc)?;
            }
            layers.push(Layer { csc, mixed_frontier: sampler.mixed_frontier().to_vec() });
        }
        Ok(Self { layers })
    }

    /// The vertices whose feature rows are loaded.
    pub fn input(&self) -> &[u32] {
        self.layers.last().map_or(&[], |bottom| &bottom.mixed_frontier)
    }

    /// The seeds.
    pub fn seeds(&self) -> &[u32] {
        self.layers.first().map_or(&[], |top| &top.mixed_frontier[..top.num_vertices()])
    }

    /// Number of seeds.
    pub fn num_seeds(&self) -> usize {
        self.layers.first().map_or(0, Layer::num_vertices)
    }
}
