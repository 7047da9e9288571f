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
//! alone would draw, and each vertex of a layer is on exactly one rank (GSplit, section 5, Algorithm 1). With
//! [`Ownership::Mine`] nothing is exchanged and the next local frontier is the mixed frontier itself: data parallelism.

use gsplit_kernels::schedule::{Fanouts, layer_key};
use gsplit_kernels::{Communicator, EdgeIds, Graph, Sampler, Uniform};

use super::{Ownership, Seeds};
use crate::{Exchange, Result};

/// One layer of one rank's mini-batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledLayer {
    /// Local frontier: the vertices whose rows this layer computes.
    pub frontier: Vec<u32>,
    /// Sampled in-edges of frontier position `i` are `local[indptr[i]..indptr[i + 1]]`.
    pub indptr: Vec<u32>,
    /// Source of each sampled edge, as a position in `mixed`.
    pub local: Vec<u32>,
    /// Mixed frontier: the vertices whose rows this layer reads; starts with `frontier`.
    pub mixed: Vec<u32>,
    /// From the next local frontier's rows to those of `mixed`.
    pub exchange: Exchange,
}

/// A rank's mini-batch: what to compute and what to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// Layers from the seeds downwards; the first computes the seeds.
    pub layers: Vec<SampledLayer>,
    /// Bottom local frontier: the vertices whose features this rank loads.
    pub input: Vec<u32>,
}

impl Sampled {
    /// Sampled edges over all layers.
    pub fn num_edges(&self) -> usize {
        self.layers.iter().map(|layer| layer.local.len()).sum()
    }

    /// Rows that come from other ranks in one forward pass, features included.
    pub fn rows_exchanged(&self) -> usize {
        self.layers.iter().map(|layer| layer.exchange.rows_received()).sum()
    }
}

/// Samples the mini-batch of this rank with what `sampler` has kept of earlier ones. Collective under a partition map: every rank calls it for every mini-batch, with
/// no seeds if it owns none.
pub fn sample(
    sampler: &mut Sampler,
    graph: &Graph<'_>,
    seeds: Seeds,
    fanouts: &Fanouts,
    (seed, epoch, step): (u64, u32, u32),
    ownership: Ownership<'_>,
    comm: &dyn Communicator,
) -> Result<Sampled> {
    let mut frontier = seeds.local;
    let mut layers = Vec::with_capacity(fanouts.len());
    for (depth, fanout) in (0..).zip(fanouts.iter()) {
        let mut csc = gsplit_kernels::SampledLayer::default();
        // The mixed frontier that the sampler holds is the next local frontier only where nothing is exchanged.
        if depth == 0 || matches!(ownership, Ownership::Map(_)) {
            sampler.start(&frontier);
        }
        let key = layer_key(seed, epoch, step, depth);
        let draw = Uniform::new(fanout);
        let draw = seeds.excluded.as_ref().map_or(draw, |excluded| draw.without(excluded));
        sampler.layer(graph, &draw, &key, EdgeIds::Drop, &mut csc)?;
        let mixed = sampler.mixed().to_vec();
        let (below, exchange) = match ownership {
            Ownership::Mine => (mixed.clone(), Exchange::Identity),
            Ownership::Map(part) => Exchange::shuffle(comm, &mixed, |v| part[v as usize] as usize)?,
        };
        let frontier = std::mem::replace(&mut frontier, below);
        layers.push(SampledLayer { frontier, indptr: csc.indptr, local: csc.local, mixed, exchange });
    }
    Ok(Sampled { layers, input: frontier })
}
