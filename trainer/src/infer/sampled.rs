//! Inference over sampled neighbourhoods: estimates for a few vertices of a graph too large for
//! exact inference.
//!
//! Returns: the rows of the last layer for the wanted vertices, chunk by chunk in their order.
//! Idea: a mini-batch as in training, without gradients and whole on one worker; workers take the
//! next chunk when they are free. The draws depend only on the seed, the layer and the vertex, not
//! on the workers or chunks. Cost: a training epoch over the same number of seeds, without its
//! backward passes.

use std::sync::atomic::AtomicBool;

use gsplit_kernels::schedule::{Fanouts, Step};
use gsplit_kernels::{Draw, EdgeIds, Graph, SampledCsc, Sampler};
use gsplit_store::Stage;
use tch::Tensor;

use super::Team;
use super::chunks::{Bounds, Chunks, Limit, Visit};
use crate::Result;
use crate::model::{LayerEdges, Model};
use crate::operator::Rows;
use crate::residence::source::FeatureSource;

/// Inference over neighbourhoods sampled with `fanouts`.
pub struct SampledInference<'a> {
    pub graph: Graph<'a>,
    /// In-neighbours drawn per vertex, from the wanted vertices' layer downwards, one fanout per
    /// layer.
    pub fanouts: &'a Fanouts,
    /// Seed of the draws.
    pub seed: u64,
    /// Vertices per chunk.
    pub chunk: usize,
    /// Flag that becomes true when the run shall stop.
    pub stop: Option<&'static AtomicBool>,
}

impl SampledInference<'_> {
    /// Computes the rows of the `wanted` vertices, ascending, with `team`; passes them to `visit`.
    /// `stage` counts them.
    pub fn run(
        &self,
        team: &mut Team<'_>,
        wanted: &[u32],
        stage: &dyn Stage,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let bounds =
            Bounds { graph: self.graph, wanted: Some(wanted), limit: Limit::Vertices(self.chunk) };
        let chunks = Chunks::<f32>::new(bounds, None, Some(visit));
        team.each(|model, source, failed| {
            let mut sampler = Sampler::default();
            let compute = |vertices: &[u32]| self.rows(model, source, &mut sampler, vertices);
            chunks.work(model.num_layers() - 1, model.place(), failed, self.stop, stage, compute)
        })
    }

    /// Computes the rows of `wanted`, at the model's place.
    fn rows(
        &self,
        model: &Model,
        source: &FeatureSource<'_>,
        sampler: &mut Sampler,
        wanted: &[u32],
    ) -> Result<Tensor> {
        let (place, input) = (model.place(), model.input());
        let mut layers = Vec::with_capacity(self.fanouts.len());
        sampler.start(wanted);
        // Training counts epochs from 1, so epoch 0 has draws of its own.
        for (key, fanout) in (Step { seed: self.seed, epoch: 0, step: 0 }).layers(self.fanouts) {
            let mut drawn = SampledCsc::default();
            sampler.layer(&self.graph, &Draw::new(fanout), &key, EdgeIds::Drop, &mut drawn)?;
            layers.push(LayerEdges::new(place, self.graph, drawn, sampler.mixed_frontier())?);
        }
        let vertices = sampler.mixed_frontier();
        let mut rows = match source.is_read_in_place() && input.is_plain() {
            true => None,
            false => Some(source.rows(vertices, input, 0)?),
        };
        for (layer, edges) in layers.iter().rev().enumerate() {
            let stored = Rows::Stored { features: source.table(), vertices };
            rows = Some(model.infer_layer(
                layer,
                edges,
                rows.as_ref().map_or(stored, Rows::Hidden),
            )?);
        }
        rows.ok_or_else(|| crate::Error::Option("--layers 0: expected 1 or more".into()))
    }
}
