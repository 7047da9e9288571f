//! Sampling of one rank's mini-batches, layer by layer.
//!
//! Returns: a [`HostSample`]. Input: the rank's seeds, the ownership of each frontier, the graph on
//! the host. Idea: see `lib.rs`. Cost: that of [`Sampler`], plus one shuffle of ids per layer under
//! a partition map.

use gsplit_kernels::schedule::{Fanouts, Step};
use gsplit_kernels::{
    Communicator, Draw, EdgeIds, ExcludedEdges, Fanout, Graph, HostEdges, LayerFanout,
    PreferredVertices, SampledCsc, Sampler,
};
use rayon::prelude::*;

use crate::{Frontiers, HostExchange, HostShuffle, Ownership, SampleError, Seeds};

/// One layer of one rank's mini-batch: computes the rows of its frontier from the rows below.
#[derive(Debug)]
pub struct HostLayer {
    /// Local frontier: the vertices whose rows this layer computes. They come first among the rows
    /// that it reads.
    pub frontier: Vec<u32>,
    /// Whether other ranks may compute rows of the same vertices.
    pub replicated: bool,
    /// Sampled in-edges: target `i` is vertex `i` of the frontier, sources are positions in
    /// [`HostSample::read`].
    pub edges: HostEdges,
    /// Factor of each edge ([`SampledCsc::factors`]); empty where all are 1.
    pub factors: Vec<f32>,
    /// Position of each edge in the graph's `indices`; empty unless
    /// [kept](HostSampler::keep_edge_ids).
    pub edge_ids: Vec<u64>,
    /// Rows that move between ranks below this layer. `None` if the rows of the frontier below are
    /// read in place.
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
        self.layers[depth]
            .exchange
            .as_ref()
            .map_or(self.frontier(depth + 1), |exchange| &exchange.read)
    }
}

/// Samples one rank's mini-batches on the host, one after another, reusing its memory.
pub struct HostSampler<'g> {
    sampler: Box<Sampler>,
    graph: Graph<'g>,
    /// The vertices to draw more often, if there are any.
    preferred: Option<PreferredVertices>,
    keeps_edge_ids: bool,
}

impl<'g> HostSampler<'g> {
    /// Samples from `graph` with `sampler`.
    pub fn new(sampler: Sampler, graph: Graph<'g>) -> Self {
        Self { sampler: Box::new(sampler), graph, preferred: None, keeps_edge_ids: false }
    }

    /// Also returns the [ids of edges](HostLayer::edge_ids).
    pub fn keep_edge_ids(self) -> Self {
        Self { keeps_edge_ids: true, ..self }
    }

    /// Draws the vertices of `preferred` more often.
    pub fn prefer(&mut self, preferred: PreferredVertices) {
        self.preferred = Some(preferred);
    }

    /// Sets how many times more often the preferred vertices are drawn.
    pub fn set_factor(&mut self, factor: f64) {
        self.preferred.iter_mut().for_each(|preferred| preferred.set_factor(factor));
    }

    /// Samples this rank's part of the mini-batch `step`, with one layer per fanout; `frontiers`
    /// must have as many layers. Under a partition map this is collective: every rank must call it
    /// for every mini-batch, even if it owns no seeds.
    ///
    /// # Panics
    /// If `frontiers` has fewer layers than `fanouts`, or a map has fewer vertices than the graph.
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

    /// Samples up to `layers` layers with all in-edges, otherwise like [`HostSampler::sample`].
    /// Stops early once no rank's frontier grows any more: all further layers would equal the last.
    /// Collective.
    pub fn sample_all(
        &mut self,
        seeds: Vec<u32>,
        layers: usize,
        frontiers: &Frontiers<'_>,
        comm: &dyn Communicator,
    ) -> Result<HostSample, SampleError> {
        // The step is unused: with all in-edges, nothing is drawn.
        let batch =
            Batch { step: Step { seed: 0, epoch: 0, step: 0 }, excluded: None, frontiers, comm };
        let (mut frontier, mut found) = (seeds, Vec::new());
        while found.len() < layers {
            let before = frontier.len();
            let (layer, below) = self.layer(&batch, found.len(), &Fanout::All.into(), frontier)?;
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

    /// Samples layer `depth`, which computes `frontier`; returns the layer and the frontier below.
    /// Collective under a map.
    fn layer(
        &mut self,
        batch: &Batch<'_>,
        depth: usize,
        fanout: &LayerFanout,
        frontier: Vec<u32>,
    ) -> Result<(HostLayer, Vec<u32>), SampleError> {
        let ownership = batch.frontiers.at(depth);
        // Under a map, the frontier differs from the mixed frontier that the sampler holds.
        if depth == 0 || ownership.map().is_some() {
            self.sampler.start(&frontier);
        }
        let mut draw = Draw::of(fanout);
        if let Some(preferred) = &self.preferred {
            draw = preferred.of(draw, depth);
        }
        if let Some(excluded) = batch.excluded {
            draw = draw.without(excluded);
        }
        let edge_ids = if self.keeps_edge_ids { EdgeIds::Keep } else { EdgeIds::Drop };
        let mut csc = SampledCsc::default();
        self.sampler.layer(
            &self.graph,
            &draw,
            &batch.step.layer_key(depth as u8),
            edge_ids,
            &mut csc,
        )?;
        let SampledCsc { indptr, local: mut sources, edges: edge_ids, factors } = csc;

        let mixed_frontier = self.sampler.mixed_frontier();
        let replicated = ownership.map().is_none();
        let (below, exchange) = match batch.frontiers.at(depth + 1) {
            Ownership::Mine => (mixed_frontier.to_vec(), None),
            Ownership::Map(part) => {
                let shuffle =
                    HostShuffle::new(batch.comm, mixed_frontier, |v| part[v as usize] as usize)?;
                let HostShuffle { frontier: below, source: rows, mut exchange } = shuffle;
                if replicated {
                    // The frontier includes other ranks' vertices, so its rows do not come first in
                    // the matrix.
                    (exchange.read, exchange.order) = (mixed_frontier.to_vec(), Some(rows));
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

/// Inputs that all layers of a mini-batch share.
struct Batch<'b> {
    step: Step,
    excluded: Option<&'b ExcludedEdges>,
    frontiers: &'b Frontiers<'b>,
    comm: &'b dyn Communicator,
}
