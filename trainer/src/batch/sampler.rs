//! What samples a rank's mini-batches: the host, or the GPU that computes them.
//!
//! Both draw the same samples, to the bit. On a GPU the graph is in its memory or in the host's, read over the bus
//! ([`Topology`](crate::topology::Topology)); frontiers and edges stay there, and the host learns how many there are.
//!
//! A sampler that works ahead of the computation has a stream of its own, so that its kernels need not wait for those of the
//! mini-batch before. Memory follows three rules, which need no event:
//!
//! * What it reads (the graph, owners, cached rows) was written before [`BatchSampler::on_device`], which lets the new stream
//!   wait for the computing one, and is not written any more.
//! * What it makes is its own memory, in its stream's order, never torch's: torch gives the memory of a tensor that was dropped
//!   to the next one while kernels of the computing stream may still read it.
//! * A mini-batch is handed over when it is done: the preparing thread waits for its stream
//!   ([`Loaded::hand_over`](super::Loaded::hand_over)), then the buffers are the computing stream's, which alone uses and frees
//!   them. The driver gives freed memory to another stream once the stream that freed it has got there.

use std::sync::Arc;

use gsplit_kernels::{
    Communicator, DeviceDraw, DeviceEdgeIds, DeviceEdges, DeviceExcludedEdges, DeviceGraph, DeviceOwners,
    DeviceSampler, DeviceSlice, Draw, EdgeIds, ExcludedEdges, Fanout, Gpu, Graph, Near, Sampler, StreamKey,
    concat_on_device, select_on_device,
};
use rayon::prelude::*;

use super::{Frontiers, Ownership, SampledLayer};
use crate::ids::Ids;
use crate::operator::Edges;
use crate::operator::Place;
use crate::{Error, Exchange, Result};

/// What a GPU reads to sample.
#[derive(Clone, Copy, Debug)]
pub struct OnDevice<'a> {
    /// In-neighbours.
    pub graph: DeviceGraph<'a>,
    /// Each vertex's rank, where a partition map says it.
    pub owners: Option<DeviceSlice<'a, u16>>,
}

/// Where a mini-batch was sampled, if on a GPU.
#[derive(Clone, Debug)]
pub struct SampledThere<'a> {
    /// With the stream that it was sampled on.
    pub gpu: Gpu,
    /// What it was sampled from.
    pub graph: DeviceGraph<'a>,
}

/// Samples the mini-batches of one rank, one after another.
pub struct BatchSampler<'a> {
    place: Place,
    drawing: Drawing<'a>,
    /// What the host draws more often, if it does.
    near: Option<Near>,
}

enum Drawing<'a> {
    Host { sampler: Box<Sampler>, graph: Graph<'a> },
    Device { gpu: Gpu, sampler: Box<DeviceSampler>, there: OnDevice<'a> },
}

/// Edges that are not to be drawn, where they are asked for.
pub(super) enum Excluded {
    Host(ExcludedEdges),
    Device(DeviceExcludedEdges),
}

impl<'a> BatchSampler<'a> {
    /// The host samples from `graph` with `sampler`, for a rank at `place`.
    pub fn on_host(sampler: Sampler, graph: Graph<'a>, place: &Place) -> Self {
        Self { place: place.clone(), drawing: Drawing::Host { sampler: Box::new(sampler), graph }, near: None }
    }

    /// The GPU of `place` samples from `there`; with `ahead` on a stream of its own.
    ///
    /// # Errors
    /// [`Error::Gpu`]: what the driver says.
    pub fn on_device(place: &Place, there: OnDevice<'a>, ahead: bool) -> Result<Self> {
        let Some(computing) = place.gpu() else {
            return Err(Error::Option("a GPU is to sample for a rank that computes on the host".into()));
        };
        let gpu = match ahead {
            false => computing.clone(),
            true => {
                let side = computing.side_stream()?;
                side.wait_for(computing)?;
                side
            }
        };
        let sampler = Box::new(DeviceSampler::new(&gpu)?);
        Ok(Self { place: place.clone(), drawing: Drawing::Device { gpu, sampler, there }, near: None })
    }

    /// Draws as `near` says, where the host samples.
    pub fn prefer(&mut self, near: Near) {
        self.near = Some(near);
    }

    /// Draws what it prefers `factor` times more often.
    pub fn set_factor(&mut self, factor: f64) {
        self.near.iter_mut().for_each(|near| near.set_factor(factor));
    }

    /// Where it samples, if on a GPU.
    pub(super) fn there(&self) -> Option<SampledThere<'a>> {
        match &self.drawing {
            Drawing::Host { .. } => None,
            Drawing::Device { gpu, there, .. } => Some(SampledThere { gpu: gpu.clone(), graph: there.graph }),
        }
    }

    /// The seeds, on the host, and where they are sampled from.
    pub(super) fn seeds(&self, seeds: Vec<u32>) -> Result<Ids> {
        let seeds = Ids::from(seeds);
        if let Drawing::Device { gpu, .. } = &self.drawing {
            seeds.on_gpu(gpu)?;
        }
        Ok(seeds)
    }

    /// `edges`, where they are asked for.
    pub(super) fn exclude(&self, edges: ExcludedEdges) -> Result<Excluded> {
        Ok(match &self.drawing {
            Drawing::Host { .. } => Excluded::Host(edges),
            Drawing::Device { gpu, .. } => Excluded::Device(DeviceExcludedEdges::new(gpu, &edges)?),
        })
    }

    /// Begins with `frontier`.
    pub(super) fn start(&mut self, frontier: &Ids) -> Result<()> {
        match &mut self.drawing {
            Drawing::Host { sampler, .. } => sampler.start(frontier.on_host()?),
            Drawing::Device { gpu, sampler, .. } => sampler.start(frontier.on_gpu(gpu)?)?,
        }
        Ok(())
    }

    /// Samples a layer whose frontier is `frontier`; returns it with the next local frontier, which it goes on with unless
    /// [`BatchSampler::start`] says another. The two are frontiers `depth` and `depth + 1`. Collective where a map holds the next.
    pub(super) fn layer(
        &mut self,
        frontier: Ids,
        fanout: Fanout,
        excluded: Option<&Excluded>,
        key: &StreamKey,
        (frontiers, depth): (&Frontiers<'_>, usize),
        comm: &dyn Communicator,
    ) -> Result<(SampledLayer, Ids)> {
        let (replicated, next) = (frontiers.at(depth).map().is_none(), frontiers.at(depth + 1));
        let mut drawn = None;
        match &mut self.drawing {
            Drawing::Host { sampler, graph } => {
                let mut csc = gsplit_kernels::SampledCsc::default();
                let mut draw = Draw::new(fanout);
                if let Some(near) = &self.near {
                    draw = near.of(draw, depth);
                }
                if let Some(Excluded::Host(excluded)) = excluded {
                    draw = draw.without(excluded);
                }
                sampler.layer(graph, &draw, key, EdgeIds::Drop, &mut csc)?;
                let (below, read, exchange) = match next {
                    Ownership::Mine => {
                        let mixed = Ids::from(sampler.mixed());
                        (mixed.clone(), mixed, Exchange::Identity)
                    }
                    Ownership::Map(part) => {
                        let (mixed, owner) = (sampler.mixed(), |v: u32| part[v as usize] as usize);
                        let mut shuffled = match frontiers.sums(depth) {
                            None => Exchange::shuffle(comm, mixed, owner)?,
                            Some(sums) => {
                                let (shuffled, degrees) =
                                    Exchange::shuffle_sums(comm, (mixed, &mut csc), owner, (sums, *graph))?;
                                drawn = degrees;
                                shuffled
                            }
                        };
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
                Ok((SampledLayer { frontier, replicated, edges, drawn, read, exchange }, below))
            }
            Drawing::Device { gpu, sampler, there } => {
                let mut draw = DeviceDraw::new(fanout);
                if let Some(Excluded::Device(excluded)) = excluded {
                    draw = draw.without(excluded);
                }
                let layer = sampler.layer(&there.graph, &draw, key, DeviceEdgeIds::Drop)?;
                let mixed = || Ok::<_, Error>(Ids::on_device(concat_on_device(gpu, &[sampler.mixed()])?));
                let (below, read, local, exchange) = match next {
                    Ownership::Mine => {
                        let mixed = mixed()?;
                        (mixed.clone(), mixed, layer.local, Exchange::Identity)
                    }
                    Ownership::Map(part) => {
                        let mut shuffled = match there.owners {
                            Some(owners) => {
                                Exchange::shuffle_on_device(gpu, comm, sampler.mixed(), DeviceOwners::Map(owners))?
                            }
                            None => {
                                let mixed = sampler.mixed().to_vec(gpu)?;
                                Exchange::shuffle(comm, &mixed, |v| part[v as usize] as usize)?
                            }
                        };
                        let local = if replicated {
                            shuffled = shuffled.in_order(mixed()?);
                            layer.local
                        } else {
                            select_on_device(gpu, shuffled.source.on_gpu(gpu)?, layer.local.slice())?
                        };
                        (shuffled.frontier, shuffled.read, local, shuffled.exchange)
                    }
                };
                let mut edges = DeviceEdges::new(layer.indptr, local, read.len())?;
                if let Fanout::Take(most) = fanout {
                    edges = edges.with_max_degree(most as usize);
                }
                let edges = Arc::new(Edges::of_device(&self.place, edges));
                [&below, &read].into_iter().try_for_each(|ids| ids.on_gpu(gpu).map(drop))?;
                let exchange = Arc::new(exchange);
                Ok((SampledLayer { frontier, replicated, edges, drawn, read, exchange }, below))
            }
        }
    }
}

impl Drop for BatchSampler<'_> {
    /// What it reads stays where it is until its stream is done, also after an error.
    fn drop(&mut self) {
        if let Drawing::Device { gpu, .. } = &self.drawing {
            let _ = gpu.synchronise();
        }
    }
}
