//! Sampling of one rank's mini-batches, layer by layer.
//!
//! Returns: a [`HostSample`]. Input: the rank's seeds, the ownership of each frontier, the graph on the host. Idea: `lib.rs`. Cost: that
//! of [`Sampler`], and under a partition map a shuffle of ids a layer.

use gsplit_kernels::schedule::{Fanouts, Step};
use gsplit_kernels::{Communicator, Draw, EdgeIds, ExcludedEdges, Fanout, Graph, HostEdges, Near, SampledCsc, Sampler};
use rayon::prelude::*;

use crate::{Frontiers, HostExchange, HostShuffle, Ownership, SampleError, Seeds};

/// One layer of one rank's mini-batch: it computes the rows of its frontier from those that it reads.
#[derive(Debug)]
pub struct HostLayer {
    /// Local frontier: the vertices whose rows this layer computes. They are the first that it reads.
    pub frontier: Vec<u32>,
    /// Whether other ranks may compute rows of the same vertices.
    pub replicated: bool,
    /// Sampled in-edges: target `i` is vertex `i` of the frontier, sources are positions in [`HostSample::read`].
    pub edges: HostEdges,
    /// Factor of each edge ([`SampledCsc::factors`]); empty where all are 1.
    pub factors: Vec<f32>,
    /// Position of each edge in the graph's `indices`; empty unless [kept](HostSampler::keep_edge_ids).
    pub edge_ids: Vec<u64>,
    /// Rows that move between ranks below this layer. `None`: the rows of the frontier below are read as they are.
    pub exchange: Option<HostExchange>,
}

/// One rank's mini-batch: what to compute and what to load.
#[derive(Debug)]
pub struct HostSample {
    /// Layers from the seeds downwards; the first computes the seeds.
    pub layers: Vec<HostLayer>,
    /// Bottom local frontier: the vertices whose features this rank loads.
    pub input: Vec<u32>,
}

impl HostSample {
    /// Local frontier `depth`: the seeds at 0, the vertices that are loaded below the last layer.
    pub fn frontier(&self, depth: usize) -> &[u32] {
        self.layers.get(depth).map_or(&self.input, |layer| &layer.frontier)
    }

    /// Vertex of each row that layer `depth` reads.
    pub fn read(&self, depth: usize) -> &[u32] {
        self.layers[depth].exchange.as_ref().map_or(self.frontier(depth + 1), |exchange| &exchange.read)
    }
}

/// Sampler of one rank's mini-batches on the host, one after another; it keeps memory from one to the next.
pub struct HostSampler<'g> {
    sampler: Box<Sampler>,
    graph: Graph<'g>,
    /// Vertices that are drawn more often, if any are.
    near: Option<Near>,
    keeps_edge_ids: bool,
}

impl<'g> HostSampler<'g> {
    /// Samples from `graph` with `sampler`.
    pub fn new(sampler: Sampler, graph: Graph<'g>) -> Self {
        Self { sampler: Box::new(sampler), graph, near: None, keeps_edge_ids: false }
    }

    /// The same, which tells the [ids of edges](HostLayer::edge_ids).
    pub fn keep_edge_ids(self) -> Self {
        Self { keeps_edge_ids: true, ..self }
    }

    /// Draws as `near` says.
    pub fn prefer(&mut self, near: Near) {
        self.near = Some(near);
    }

    /// Draws what it prefers `factor` times more often.
    pub fn set_factor(&mut self, factor: f64) {
        self.near.iter_mut().for_each(|near| near.set_factor(factor));
    }

    /// Samples this rank's part of the mini-batch `step`, one layer for each of `fanouts`; `frontiers` are of as many layers. Collective
    /// under a partition map: every rank calls it for every mini-batch, with no seeds if it owns none.
    ///
    /// # Errors
    /// [`SampleError`]: those of [`Sampler::layer`] and of [`HostShuffle::new`].
    ///
    /// # Panics
    /// If `frontiers` are of fewer layers, or a map has fewer vertices than the graph.
    pub fn sample(
        &mut self,
        seeds: Seeds,
        fanouts: &Fanouts,
        step: Step,
        frontiers: &Frontiers<'_>,
        comm: &dyn Communicator,
    ) -> Result<HostSample, SampleError> {
        let batch = Batch { step, excluded: seeds.excluded.as_ref(), frontiers, comm };
        let (mut frontier, mut layers) = (seeds.local, Vec::with_capacity(fanouts.len()));
        for (depth, fanout) in fanouts.iter().enumerate() {
            let (layer, below) = self.layer(&batch, depth, fanout, frontier)?;
            layers.push(layer);
            frontier = below;
        }
        Ok(HostSample { layers, input: frontier })
    }

    /// Samples up to `layers` layers with all in-edges, otherwise as [`HostSampler::sample`]. There are fewer once no rank's frontier grows
    /// any more: all layers below are then as the last. Collective.
    ///
    /// # Errors
    /// The same as of [`HostSampler::sample`].
    pub fn sample_all(
        &mut self,
        seeds: Vec<u32>,
        layers: usize,
        frontiers: &Frontiers<'_>,
        comm: &dyn Communicator,
    ) -> Result<HostSample, SampleError> {
        // Nothing is drawn by the step.
        let batch = Batch { step: Step { seed: 0, epoch: 0, step: 0 }, excluded: None, frontiers, comm };
        let (mut frontier, mut found) = (seeds, Vec::new());
        while found.len() < layers {
            let before = frontier.len();
            let (layer, below) = self.layer(&batch, found.len(), Fanout::All, frontier)?;
            found.push(layer);
            frontier = below;
            let mut grown = [u64::from(frontier.len() > before)];
            comm.all_reduce_sum_u64(&mut grown)?;
            if grown[0] == 0 {
                break;
            }
        }
        Ok(HostSample { layers: found, input: frontier })
    }

    /// Samples layer `depth`, which computes `frontier`; returns it with the frontier below. Collective where a map holds that.
    fn layer(
        &mut self,
        batch: &Batch<'_>,
        depth: usize,
        fanout: Fanout,
        frontier: Vec<u32>,
    ) -> Result<(HostLayer, Vec<u32>), SampleError> {
        let ownership = batch.frontiers.at(depth);
        // Under a map the frontier is another than the mixed frontier that the sampler holds.
        if depth == 0 || ownership.map().is_some() {
            self.sampler.start(&frontier);
        }
        let mut draw = Draw::new(fanout);
        if let Some(near) = &self.near {
            draw = near.of(draw, depth);
        }
        if let Some(excluded) = batch.excluded {
            draw = draw.without(excluded);
        }
        let edge_ids = if self.keeps_edge_ids { EdgeIds::Keep } else { EdgeIds::Drop };
        let mut csc = SampledCsc::default();
        self.sampler.layer(&self.graph, &draw, &batch.step.layer_key(depth as u8), edge_ids, &mut csc)?;
        let SampledCsc { indptr, local: mut sources, edges: edge_ids, factors } = csc;

        let mixed = self.sampler.mixed();
        let replicated = ownership.map().is_none();
        let (below, exchange) = match batch.frontiers.at(depth + 1) {
            Ownership::Mine => (mixed.to_vec(), None),
            Ownership::Map(part) => {
                let shuffle = HostShuffle::new(batch.comm, mixed, |v| part[v as usize] as usize)?;
                let HostShuffle { frontier: below, source: rows, mut exchange } = shuffle;
                if replicated {
                    // The frontier has vertices of other ranks, so its rows are not the first of the matrix.
                    (exchange.read, exchange.order) = (mixed.to_vec(), Some(rows));
                } else {
                    sources.par_iter_mut().for_each(|source| *source = rows[*source as usize]);
                }
                (below, Some(exchange))
            }
        };
        let num_read = exchange.as_ref().map_or(below.len(), |exchange| exchange.read.len());
        let edges = HostEdges::new(indptr, sources, num_read)?;
        Ok((HostLayer { frontier, replicated, edges, factors, edge_ids, exchange }, below))
    }
}

/// A mini-batch, as all of its layers see it.
struct Batch<'b> {
    step: Step,
    excluded: Option<&'b ExcludedEdges>,
    frontiers: &'b Frontiers<'b>,
    comm: &'b dyn Communicator,
}
