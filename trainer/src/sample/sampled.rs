//! The sampled mini-batch of one rank, ready to compute: converted from the host's sample, or made
//! by a GPU.

use std::sync::Arc;

use gsplit_kernels::schedule::{Fanouts, Step};
use gsplit_kernels::{Communicator, Graph, Sampler};
use gsplit_sample::{Frontiers, HostSample, HostSampler, Seeds};

use super::{BatchSampler, SampledOnGpu};
use crate::operator::{Edges, Ids, Place};
use crate::{Exchange, Result};

/// One layer of one rank's mini-batch. Clones share its contents.
#[derive(Clone, Debug)]
pub struct SampledLayer {
    /// Local frontier: the vertices whose rows this layer computes.
    pub frontier: Ids,
    /// Whether other ranks may compute rows of the same vertices.
    pub replicated: bool,
    /// Sampled in-edges of the frontier, from positions in `read`, at the place that computes.
    pub edges: Arc<Edges>,
    /// Vertices whose rows this layer reads; starts with `frontier`. The mixed frontier, perhaps
    /// reordered by the exchange.
    pub read: Ids,
    /// Brings the rows that other ranks own.
    pub exchange: Arc<Exchange>,
}

/// A rank's mini-batch: the layers to compute and the vertices to load. Clones share its contents.
#[derive(Clone, Debug)]
pub struct Sampled<'a> {
    /// Layers from the seeds downwards; the first computes the seeds.
    pub layers: Vec<SampledLayer>,
    /// Bottom local frontier: the vertices whose features this rank loads.
    pub input: Ids,
    /// The GPU that sampled it, if it was one.
    pub on_gpu: Option<SampledOnGpu<'a>>,
}

impl Sampled<'_> {
    /// Converts the mini-batch that the `host` has sampled, for a rank at `place`.
    pub fn at(place: &Place, host: HostSample) -> Result<Self> {
        let input = Ids::from(host.input);
        let mut below = input.clone();
        let mut layers = Vec::with_capacity(host.layers.len());
        for layer in host.layers.into_iter().rev() {
            let (exchange, read) = match layer.exchange {
                None => (Exchange::Identity, below),
                Some(exchange) => Exchange::of_host(exchange, below.len()),
            };
            let edges = Arc::new(Edges::of_host(place, layer.edges)?.with_factors(layer.factors)?);
            let (frontier, exchange) = (Ids::from(layer.frontier), Arc::new(exchange));
            below = frontier.clone();
            layers.push(SampledLayer {
                frontier,
                replicated: layer.replicated,
                edges,
                read,
                exchange,
            });
        }
        layers.reverse();
        Ok(Self { layers, input, on_gpu: None })
    }

    /// The layer that reads feature rows.
    pub fn bottom(&self) -> &SampledLayer {
        &self.layers[self.layers.len() - 1]
    }

    /// Number of sampled edges over all layers.
    pub fn num_edges(&self) -> usize {
        self.layers.iter().map(|layer| layer.edges.num_edges()).sum()
    }

    /// Number of rows that come from other ranks in one forward pass, including features.
    pub fn rows_exchanged(&self) -> usize {
        self.layers.iter().map(|layer| layer.exchange.rows_received()).sum()
    }
}

/// Samples the mini-batch of this rank ([`HostSampler::sample`]), on the host or on a GPU.
/// Collective under a partition map.
pub fn sample<'a>(
    sampler: &mut BatchSampler<'a>,
    seeds: Seeds,
    fanouts: &Fanouts,
    step: Step,
    frontiers: &Frontiers<'_>,
    comm: &dyn Communicator,
) -> Result<Sampled<'a>> {
    match sampler {
        BatchSampler::Host(sampler, place) => {
            Sampled::at(place, sampler.sample(seeds, fanouts, step, frontiers, comm)?)
        }
        BatchSampler::Gpu(sampler) => sampler.sample(seeds, fanouts, step, frontiers, comm),
    }
}

/// Samples `layers` layers with all in-edges of `graph`, on the host, for a rank at `place`. Equal
/// layers share their memory, so a deep model takes no more than a shallow one. Collective.
pub fn sample_all<'a>(
    graph: Graph<'_>,
    place: &Place,
    seeds: Vec<u32>,
    layers: usize,
    frontiers: &Frontiers<'_>,
    comm: &dyn Communicator,
) -> Result<Sampled<'a>> {
    let mut sampler = HostSampler::new(Sampler::default(), graph);
    let mut sampled = Sampled::at(place, sampler.sample_all(seeds, layers, frontiers, comm)?)?;
    let last = sampled.bottom().clone();
    sampled.layers.resize(layers, last);
    Ok(sampled)
}
