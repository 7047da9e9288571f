//! Split sampling: the mini-batch of one rank, layer by layer from the seeds down.
//!
//! ```text
//! local frontier = my seeds
//! for each layer from the top:
//!     sampled edges  = sample(local frontier)
//!     mixed frontier = local frontier ++ newly sampled vertices
//!     local frontier = my vertices among all ranks' mixed frontiers       (one exchange of ids)
//! ```
//!
//! Draws are keyed by (seed, epoch, step, layer, vertex), so the union of the ranks' edges is the sample that one rank
//! alone would draw, and each vertex of a layer is on exactly one rank (GSplit, section 5, Algorithm 1). Where the next
//! frontier is [`Ownership::Mine`], nothing is exchanged and the next local frontier is the mixed frontier itself.

use std::sync::Arc;

use gsplit_kernels::schedule::{Fanouts, Step};
use gsplit_kernels::{Communicator, Fanout};

use super::sampler::SampledThere;
use super::{BatchSampler, Frontiers, HostSampler, Seeds};
use crate::operator::Edges;
use crate::operator::Ids;
use crate::{Exchange, Result};

/// One layer of one rank's mini-batch. Clones share what is in it.
#[derive(Clone, Debug)]
pub struct SampledLayer {
    /// Local frontier: the vertices whose rows this layer computes.
    pub frontier: Ids,
    /// Whether other ranks may compute rows of the same vertices.
    pub replicated: bool,
    /// Sampled in-edges of the frontier, from positions in `read`, where they are computed with.
    pub edges: Arc<Edges>,
    /// The vertices whose rows this layer reads; starts with `frontier`. The mixed frontier, or what the exchange makes of it.
    pub read: Ids,
    /// Brings the rows that other ranks own.
    pub exchange: Arc<Exchange>,
}

/// A rank's mini-batch: what to compute and what to load. Clones share what is in it.
#[derive(Clone, Debug)]
pub struct Sampled<'a> {
    /// Layers from the seeds downwards; the first computes the seeds.
    pub layers: Vec<SampledLayer>,
    /// Bottom local frontier: the vertices whose features this rank loads.
    pub input: Ids,
    /// The GPU that sampled it, if it was one.
    pub there: Option<SampledThere<'a>>,
}

impl Sampled<'_> {
    /// The layer that reads feature rows.
    pub fn bottom(&self) -> &SampledLayer {
        &self.layers[self.layers.len() - 1]
    }

    /// Sampled edges over all layers.
    pub fn num_edges(&self) -> usize {
        self.layers.iter().map(|layer| layer.edges.num_edges()).sum()
    }

    /// Rows that come from other ranks in one forward pass, features included.
    pub fn rows_exchanged(&self) -> usize {
        self.layers.iter().map(|layer| layer.exchange.rows_received()).sum()
    }
}

/// Samples the mini-batch of this rank with what `sampler` has kept of earlier ones. Collective under a partition map: every rank
/// calls it for every mini-batch, with no seeds if it owns none.
pub fn sample<'a>(
    sampler: &mut BatchSampler<'a>,
    seeds: Seeds,
    fanouts: &Fanouts,
    step: Step,
    frontiers: &Frontiers<'_>,
    comm: &dyn Communicator,
) -> Result<Sampled<'a>> {
    let sampler = match sampler {
        BatchSampler::Host(sampler) => sampler,
        BatchSampler::Gpu(sampler) => return sampler.sample(seeds, fanouts, step, frontiers, comm),
    };
    let excluded = seeds.excluded;
    let mut frontier = Ids::from(seeds.local);
    let mut layers = Vec::with_capacity(fanouts.len());
    for (depth, (key, fanout)) in step.layers(fanouts).enumerate() {
        // The mixed frontier that the sampler holds is the next local frontier only where nothing is exchanged.
        if depth == 0 || frontiers.at(depth).map().is_some() {
            sampler.start(&frontier)?;
        }
        let (layer, below) = sampler.layer(frontier, fanout, excluded.as_ref(), &key, (frontiers, depth), comm)?;
        layers.push(layer);
        frontier = below;
    }
    Ok(Sampled { layers, input: frontier, there: None })
}

/// As [`sample`], of `layers` layers with all in-edges, all of them split. Once no rank's frontier grows any more, the layers below are
/// one and share its memory: a deep model takes no more than a shallow one. Collective.
pub fn sample_all<'a>(
    sampler: &mut HostSampler<'_>,
    seeds: Vec<u32>,
    layers: usize,
    frontiers: &Frontiers<'_>,
    comm: &dyn Communicator,
) -> Result<Sampled<'a>> {
    // Nothing is drawn by it.
    let step = Step { seed: 0, epoch: 0, step: 0 };
    let mut frontier = Ids::from(seeds);
    let mut found: Vec<SampledLayer> = Vec::with_capacity(layers);
    while found.len() < layers {
        sampler.start(&frontier)?;
        let (depth, before) = (found.len(), frontier.len());
        let key = step.layer_key(depth as u8);
        let (layer, below) = sampler.layer(frontier, Fanout::All, None, &key, (frontiers, depth), comm)?;
        let mut grown = [u64::from(below.len() > before)];
        comm.all_reduce_sum_u64(&mut grown)?;
        let repeated = if grown[0] == 0 { layers - depth } else { 1 };
        found.extend(std::iter::repeat_n(layer, repeated));
        frontier = below;
    }
    Ok(Sampled { layers: found, input: frontier, there: None })
}
