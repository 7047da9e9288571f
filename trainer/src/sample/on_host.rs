//! Layers that the host samples.

use std::sync::Arc;

use gsplit_kernels::{Communicator, Draw, EdgeIds, ExcludedEdges, Fanout, Graph, Near, SampledCsc, Sampler, StreamKey};
use rayon::prelude::*;

use super::{Frontiers, Ownership, SampledLayer};
use crate::operator::Ids;
use crate::operator::{Edges, Place};
use crate::{Exchange, Result};

/// Samples on the host, for a rank at any place.
pub struct HostSampler<'a> {
    place: Place,
    sampler: Box<Sampler>,
    graph: Graph<'a>,
    /// What is drawn more often, if anything is.
    near: Option<Near>,
}

impl<'a> HostSampler<'a> {
    /// From `graph` with `sampler`, for a rank at `place`.
    pub fn new(sampler: Sampler, graph: Graph<'a>, place: &Place) -> Self {
        Self { place: place.clone(), sampler: Box::new(sampler), graph, near: None }
    }

    /// Draws as `near` says.
    pub fn prefer(&mut self, near: Near) {
        self.near = Some(near);
    }

    /// Draws what it prefers `factor` times more often.
    pub fn set_factor(&mut self, factor: f64) {
        self.near.iter_mut().for_each(|near| near.set_factor(factor));
    }

    /// Begins with `frontier`.
    pub(super) fn start(&mut self, frontier: &Ids) -> Result<()> {
        self.sampler.start(frontier.on_host()?);
        Ok(())
    }

    /// Samples a layer whose frontier is `frontier`; returns it with the next local frontier, which it goes on with unless
    /// [`HostSampler::start`] says another. The two are frontiers `depth` and `depth + 1`. Collective where a map holds the next.
    pub(super) fn layer(
        &mut self,
        frontier: Ids,
        fanout: Fanout,
        excluded: Option<&ExcludedEdges>,
        key: &StreamKey,
        (frontiers, depth): (&Frontiers<'_>, usize),
        comm: &dyn Communicator,
    ) -> Result<(SampledLayer, Ids)> {
        let (replicated, next) = (frontiers.at(depth).map().is_none(), frontiers.at(depth + 1));
        let mut csc = SampledCsc::default();
        let mut draw = Draw::new(fanout);
        if let Some(near) = &self.near {
            draw = near.of(draw, depth);
        }
        if let Some(excluded) = excluded {
            draw = draw.without(excluded);
        }
        self.sampler.layer(&self.graph, &draw, key, EdgeIds::Drop, &mut csc)?;
        let (below, read, exchange) = match next {
            Ownership::Mine => {
                let mixed = Ids::from(self.sampler.mixed());
                (mixed.clone(), mixed, Exchange::Identity)
            }
            Ownership::Map(part) => {
                let (mixed, owner) = (self.sampler.mixed(), |v: u32| part[v as usize] as usize);
                let mut shuffled = Exchange::shuffle(comm, mixed, owner)?;
                if replicated {
                    shuffled = shuffled.in_order(Ids::from(mixed));
                } else {
                    let source = shuffled.source.on_host()?;
                    csc.local.par_iter_mut().for_each(|local| *local = source[*local as usize]);
                }
                (shuffled.frontier, shuffled.read, shuffled.exchange)
            }
        };
        let edges = Edges::new(&self.place, csc.indptr, csc.local, read.len())?.with_factors(csc.factors)?;
        let edges = Arc::new(edges);
        let exchange = Arc::new(exchange);
        Ok((SampledLayer { frontier, replicated, edges, read, exchange }, below))
    }
}
