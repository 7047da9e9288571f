//! Layers that a GPU samples.
//!
//! Idea: layers whose frontiers belong to this rank only are launched one after the other, as a
//! run, and the host waits once for the sizes of all. If a map holds the next frontier the run
//! ends, and the mixed frontier is split by owner before that wait. The size of the resulting local
//! frontier is known with the sizes of the next run: until then the layer above is open.
//!
//! Frontiers of a run are the first vertices of its last mixed frontier, and share its memory.
//!
//! A sampler that works ahead of the computation has a separate stream, so that its kernels need
//! not wait for those of the mini-batch before. Memory follows three rules, which need no event:
//!
//! * The memory that it reads (the graph, owners, cached rows) was written before
//!   [`GpuSampler::new`], which lets the new stream wait for the computing one, and is not written
//!   any more.
//! * The memory that it writes is its own, in its stream's order, never torch's: torch gives the
//!   memory of a tensor that was dropped to the next one while kernels of the computing stream may
//!   still read it.
//! * A mini-batch is handed over when it is done: the preparing thread waits for its stream
//!   ([`hand_over`](crate::residence::source::hand_over)), then only the computing stream uses the
//!   buffers and frees them. The driver gives this stream their memory again once the host has
//!   waited for the computing stream, as it does for the loss of each step.

use std::sync::Arc;

use gsplit_kernels::schedule::{Fanouts, Step};
use gsplit_kernels::{
    Communicator, DeviceDraw, DeviceEdgeIds, DeviceEdges, DeviceExcludedEdges, DeviceGraph,
    DeviceLayer, DeviceOwners, DeviceSampler, DeviceSlice, Fanout, Gpu, select_on_device,
};
use gsplit_sample::{Frontiers, Ownership, Seeds};

use super::{Sampled, SampledLayer};
use crate::exchange::Shuffling;
use crate::operator::{Edges, Ids, Place};
use crate::{Error, Exchange, Result, Shuffled};

/// Inputs of a GPU sampler.
#[derive(Clone, Copy, Debug)]
pub struct OnDevice<'a> {
    /// In-neighbours.
    pub graph: DeviceGraph<'a>,
    /// Rank of each vertex, if there is a partition map.
    pub owners: Option<DeviceSlice<'a, u16>>,
}

/// GPU that sampled a mini-batch, and the graph.
#[derive(Clone, Debug)]
pub struct SampledOnGpu<'a> {
    /// The GPU, with the stream that sampled.
    pub gpu: Gpu,
    /// The graph on it.
    pub graph: DeviceGraph<'a>,
}

/// Sampler on the GPU that computes.
pub struct GpuSampler<'a> {
    place: Place,
    gpu: Gpu,
    sampler: DeviceSampler,
    inputs: OnDevice<'a>,
}

/// A layer that reads the rows of a shuffle.
struct Split {
    frontier: Ids,
    fanout: Fanout,
    layer: DeviceLayer,
    /// The mixed frontier, if ranks share the frontier, so that the layer reads rows in its order.
    mixed_frontier: Option<Ids>,
}

impl Split {
    /// Completes the layer with `shuffled`; also returns the frontier below.
    fn close(self, place: &Place, mut shuffled: Shuffled) -> Result<(SampledLayer, Ids)> {
        let Self { frontier, fanout, layer, mixed_frontier } = self;
        let replicated = mixed_frontier.is_some();
        if let Some(mixed_frontier) = mixed_frontier {
            shuffled = shuffled.in_order(mixed_frontier);
        }
        let Shuffled { frontier: below, read, exchange, .. } = shuffled;
        let edges = edges_of(place, layer, read.len(), fanout)?;
        Ok((
            SampledLayer { frontier, replicated, edges, read, exchange: Arc::new(exchange) },
            below,
        ))
    }

    /// Renumbers the sources as rows that are read; `rows` maps vertices of the mixed frontier to
    /// these rows.
    fn number(&mut self, gpu: &Gpu, rows: DeviceSlice<'_, u32>) -> Result<()> {
        if self.mixed_frontier.is_none() {
            self.layer.local = select_on_device(gpu, rows, self.layer.local.slice())?;
        }
        Ok(())
    }
}

fn edges_of(
    place: &Place,
    layer: DeviceLayer,
    num_sources: usize,
    fanout: Fanout,
) -> Result<Arc<Edges>> {
    let mut edges =
        DeviceEdges::new(layer.indptr, layer.local, num_sources)?.with_targets(layer.targets)?;
    if let Fanout::Take(most) = fanout {
        edges = edges.with_max_degree(most as usize);
    }
    Ok(Arc::new(Edges::of_device(place, edges)))
}

impl<'a> GpuSampler<'a> {
    /// Creates a sampler on the GPU of `place`, from `inputs`; with `ahead` on a separate stream.
    pub(super) fn new(place: &Place, inputs: OnDevice<'a>, ahead: bool) -> Result<Self> {
        let Some(computing) = place.gpu() else {
            return Err(Error::Option(
                "a GPU is to sample for a rank that computes on the host".into(),
            ));
        };
        let gpu = match ahead {
            false => computing.clone(),
            true => {
                let side = computing.side_stream()?;
                side.wait_for(computing)?;
                side
            }
        };
        Ok(Self { place: place.clone(), sampler: DeviceSampler::new(&gpu)?, gpu, inputs })
    }

    /// Samples a mini-batch ([`sample`](super::sample)).
    pub(super) fn sample(
        &mut self,
        seeds: Seeds,
        fanouts: &Fanouts,
        step: Step,
        frontiers: &Frontiers<'_>,
        comm: &dyn Communicator,
    ) -> Result<Sampled<'a>> {
        let graph = self.inputs.graph;
        let excluded =
            seeds.excluded.map(|edges| DeviceExcludedEdges::new(&self.gpu, &edges)).transpose()?;
        let mut making = Making {
            frontier: Ids::from(seeds.local),
            made: Vec::with_capacity(fanouts.len()),
            open: None,
        };
        self.sampler.start(&graph, making.frontier.on_gpu(&self.gpu)?)?;
        // The fanouts of a run, and whether ranks share the frontiers.
        let mut run = Vec::new();
        for (depth, (key, fanout)) in step.layers(fanouts).enumerate() {
            let fanout = fanout.of_vertices()?;
            let mut draw = DeviceDraw::new(fanout);
            if let Some(excluded) = &excluded {
                draw = draw.without(excluded);
            }
            self.sampler.launch(&graph, &draw, &key, DeviceEdgeIds::Drop)?;
            run.push((fanout, frontiers.at(depth).map().is_none()));
            match frontiers.at(depth + 1) {
                Ownership::Mine if depth + 1 < fanouts.len() => continue,
                Ownership::Mine => self.end_alone(&mut making, &run)?,
                Ownership::Map(_) => self.end_split(&mut making, &run, comm)?,
            }
            run.clear();
        }
        if making.open.is_some() {
            self.sampler.finish(&graph)?;
            making.close(&self.place, self.sampler.mixed_frontier().len())?;
        }
        let on_gpu = Some(SampledOnGpu { gpu: self.gpu.clone(), graph });
        Ok(Sampled { layers: making.made, input: making.frontier, on_gpu })
    }

    /// Ends the last `run` of a mini-batch, if this rank has all that it needs.
    fn end_alone(&mut self, making: &mut Making, run: &[(Fanout, bool)]) -> Result<()> {
        let layers = self.sampler.finish(&self.inputs.graph)?;
        let mixed_frontier = Ids::on_device(self.sampler.take_mixed_frontier()?);
        making.add(&self.place, layers, run, &mixed_frontier)
    }

    /// Ends a `run`, if a map holds the frontier below its last layer. Collective.
    fn end_split(
        &mut self,
        making: &mut Making,
        run: &[(Fanout, bool)],
        comm: &dyn Communicator,
    ) -> Result<()> {
        let Self { place, gpu, sampler, inputs: OnDevice { graph, owners } } = self;
        let none = || Error::Option("a GPU that samples by a map has no owners".into());
        let owners = owners.map(DeviceOwners::Map).ok_or_else(none)?;
        let (mut layers, split) =
            sampler.finish_split(graph, owners, [comm.rank(), comm.size()])?;
        let (Some(last), Some(&(fanout, shared))) = (layers.pop(), run.last()) else {
            return Err(Error::Option("a run of no layers".into()));
        };
        // A run has several layers only if ranks share its frontier.
        let mixed_frontier =
            if shared { Some(Ids::on_device(sampler.take_mixed_frontier()?)) } else { None };
        if let Some(mixed_frontier) = &mixed_frontier {
            making.add(
                place,
                layers,
                run,
                &mixed_frontier.first_on_device(last.num_vertices())?,
            )?;
        }
        making.close(place, last.num_vertices())?;
        let mut above =
            Split { frontier: making.frontier.clone(), fanout, layer: last, mixed_frontier };
        let shuffling =
            Shuffling::ask(gpu, comm, &split, |asked| sampler.go_on_with(graph, &split, asked))?;
        above.number(gpu, shuffling.source())?;
        making.open = Some((above, shuffling));
        Ok(())
    }
}

/// A mini-batch that is being made.
struct Making {
    /// The frontier of the next layer to be added.
    frontier: Ids,
    made: Vec<SampledLayer>,
    /// A layer above that, whose frontier below is of unknown size.
    open: Option<(Split, Shuffling)>,
}

impl Making {
    /// Adds the open layer, if there is one; its frontier below has `rows` vertices.
    fn close(&mut self, place: &Place, rows: usize) -> Result<()> {
        if let Some((above, shuffling)) = self.open.take() {
            let (layer, below) = above.close(place, shuffling.of(rows)?)?;
            self.made.push(layer);
            self.frontier = below;
        }
        Ok(())
    }

    /// Adds the first layers of a `run`. Their frontiers are the first vertices of
    /// `mixed_frontier`, the frontier below them.
    fn add(
        &mut self,
        place: &Place,
        layers: Vec<DeviceLayer>,
        run: &[(Fanout, bool)],
        mixed_frontier: &Ids,
    ) -> Result<()> {
        let ends =
            layers.iter().skip(1).map(DeviceLayer::num_vertices).chain([mixed_frontier.len()]);
        let ends: Vec<usize> = ends.collect();
        for ((layer, &(fanout, replicated)), end) in layers.into_iter().zip(run).zip(ends) {
            self.close(place, layer.num_vertices())?;
            let (read, exchange) =
                (mixed_frontier.first_on_device(end)?, Arc::new(Exchange::Identity));
            let edges = edges_of(place, layer, read.len(), fanout)?;
            let frontier = std::mem::replace(&mut self.frontier, read.clone());
            self.made.push(SampledLayer { frontier, replicated, edges, read, exchange });
        }
        Ok(())
    }
}

impl Drop for GpuSampler<'_> {
    /// Waits for its stream, also after an error: until then the memory that it reads must stay in
    /// place.
    fn drop(&mut self) {
        let _ = self.gpu.synchronise();
    }
}
