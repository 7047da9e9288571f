//! Exact inference by all ranks together, each over the vertices that it owns: for hosts none of
//! which has all rows.
//!
//! Returns: on each rank, the last layer's rows of its own vertices. Input: a model with the same
//! parameters on every rank, a graph, the owner of each vertex, and the feature rows of the rank's
//! own vertices. Idea: layer by layer, like [`LayerWise`](super::LayerWise). A chunk is a range of
//! vertices, the same on all ranks; each rank computes its own vertices in it. A chunk is sampled
//! with all in-edges, and the rows below are exchanged, like one layer of a mini-batch. The host
//! samples, also for GPUs. Cost: one pass over the edges per layer; a row is sent to another rank
//! once per chunk in which that rank reads it. Memory: a chunk's rows, and the rows of two layers
//! for the own vertices, on the host.

use std::sync::atomic::AtomicBool;

use gsplit_kernels::schedule::{Fanouts, Step};
use gsplit_kernels::{Communicator, Graph, Sampler};
use gsplit_sample::{Frontiers, Ownership, Seeds};
use gsplit_store::{RowIndex, Stage};

use super::chunks::Bounds;
use super::hidden::{Cell, Hidden};
use super::layers::typical_chunk;
use crate::autograd::values;
use crate::error::check_stop;
use crate::model::{LayerEdges, Model};
use crate::operator::{Rows, on_host, with_row};
use crate::residence::source::FeatureSource;
use crate::sample::{BatchSampler, Sampled, sample};
use crate::{Error, Result};

/// Takes all in-neighbours, so the keys of the draws do not matter.
const WHOLE: Step = Step { seed: 0, epoch: 0, step: 0 };

/// Callback that receives rows of the last layer: vertices, ascending, and one row per vertex.
type VisitRows<'v> = dyn FnMut(&[u32], &[f32]) + 'v;

/// A model over a whole graph of which this rank has the rows of its own vertices.
pub struct OwnedLayers<'a> {
    model: &'a Model,
    source: &'a FeatureSource<'a>,
    graph: Graph<'a>,
    typical: [usize; 3],
    owners: &'a [u16],
    comm: &'a dyn Communicator,
    /// Row of each own vertex.
    index: RowIndex,
    num_own: usize,
    sampler: BatchSampler<'a>,
    stop: Option<&'static AtomicBool>,
}

impl<'a> OwnedLayers<'a> {
    /// Prepares `model` over `graph`, whose vertices belong to ranks of `comm` by `owners`;
    /// `source` has the feature rows of the own ones.
    pub fn new(
        model: &'a Model,
        source: &'a FeatureSource<'a>,
        graph: Graph<'a>,
        owners: &'a [u16],
        comm: &'a dyn Communicator,
        stop: Option<&'static AtomicBool>,
    ) -> Result<Self> {
        let own: Vec<u32> = (0..)
            .zip(owners)
            .filter(|&(_, &of)| usize::from(of) == comm.rank())
            .map(|(v, _)| v)
            .collect();
        let index = RowIndex::new(owners.len(), &own).map_err(Error::Option)?;
        let sampler = BatchSampler::on_host(Sampler::default(), graph, model.place());
        Ok(Self {
            model,
            source,
            graph,
            typical: typical_chunk(&graph)?,
            owners,
            comm,
            index,
            num_own: own.len(),
            sampler,
            stop,
        })
    }

    /// Runs all layers and passes the last layer's rows of the own vertices among `wanted`
    /// (ascending, the same on all ranks) to `visit`. The layers below cover every vertex. `stage`
    /// counts the vertices of all ranks, layer by layer. Collective.
    pub fn run(
        &mut self,
        wanted: &[u32],
        stage: &dyn Stage,
        visit: &mut VisitRows<'_>,
    ) -> Result<()> {
        with_row!(self.model.place().row_kind(), |T| self.layers::<T>(wanted, stage, visit))
    }

    fn layers<T: Cell>(
        &mut self,
        wanted: &[u32],
        stage: &dyn Stage,
        visit: &mut VisitRows<'_>,
    ) -> Result<()> {
        let top = self.model.num_layers() - 1;
        let mut below: Option<Hidden<T>> = None;
        for layer in 0..top {
            let mut above = Hidden::in_memory(self.num_own * self.model.out_dim(layer))?;
            let (place, mut slots) = (self.model.place(), above.slots());
            self.layer(layer, below.as_ref(), None, stage, &mut |_, rows| {
                slots.take(rows.numel())?.write(place, rows)
            })?;
            drop(slots);
            below = Some(above.finish()?);
        }
        self.layer(top, below.as_ref(), Some(wanted), stage, &mut |vertices, rows| {
            visit(vertices, values(&on_host(rows)?)?);
            Ok(())
        })
    }

    /// Computes `layer` for the own vertices among `wanted`, or all own ones; passes the rows to
    /// `keep` by chunks. Collective.
    fn layer<T: Cell>(
        &mut self,
        layer: usize,
        below: Option<&Hidden<T>>,
        wanted: Option<&[u32]>,
        stage: &dyn Stage,
        keep: &mut dyn FnMut(&[u32], &tch::Tensor) -> Result<()>,
    ) -> Result<()> {
        let (model, place, comm) = (self.model, self.model.place(), self.comm);
        let dim =
            layer.checked_sub(1).map_or(self.source.table().dim(), |below| model.out_dim(below));
        let below = below.map(|below| below.reader(place));
        let (frontiers, all) =
            (Frontiers::all(Ownership::Map(self.owners), 1), "all".parse::<Fanouts>()?);
        let bounds = Bounds { graph: self.graph, wanted, most: u64::MAX };
        let mut start = 0;
        while start < bounds.count() {
            check_stop(self.stop)?;
            let chunk = bounds.chunk_at(start);
            start = chunk.end;
            let vertices = chunk.clone().map(|at| bounds.vertex(at));
            let own: Vec<u32> = vertices.filter(|&v| self.index.row_of(v).is_some()).collect();
            let seeds = Seeds { local: own.clone(), excluded: None };
            let Sampled { mut layers, input, .. } =
                sample(&mut self.sampler, seeds, &all, WHOLE, &frontiers, comm)?;
            let (sampled, needed) = (layers.remove(0), input.on_host()?);
            let rows = match &below {
                None => {
                    self.source.rows(needed, model.input(), sampled.exchange.rows_received())?
                }
                Some(below) => {
                    let row = |&v: &u32| self.index.row_of(v).map_or(u32::MAX, |row| row as u32);
                    below.rows(place, &needed.iter().map(row).collect::<Vec<_>>(), dim)?
                }
            };
            let rows = sampled.exchange.forward_at(place, comm, Some(rows), dim)?;
            if !own.is_empty() {
                let edges = LayerEdges::made(self.graph, None, sampled.edges, sampled.read)
                    .counted_as(self.typical);
                keep(&own, &model.infer_layer(layer, &edges, Rows::Hidden(&rows))?)?;
            }
            stage.advance(chunk.len() as u64);
        }
        Ok(())
    }
}
