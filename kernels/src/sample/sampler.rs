//! A mini-batch, sampled layer after layer.
//!
//! Returns: each layer's edges as CSC, and the mixed frontier. Input: distinct seeds, vertices of
//! the graph. Idea: the frontier is cut into one segment per thread, each is drawn by one thread
//! ([`Segment`]), then all are numbered together. The frontier of a layer is the mixed frontier of
//! the layer above, so the numbers given there stay. Cost: see the two parts. All memory is kept
//! for the next layer and mini-batch: proportional to the largest one, and a few bits per vertex.

use rayon::prelude::*;

use super::draw::{ByRelation, Draw, DrawVertex};
use super::locality::Locality;
use super::numbering::{Bits, Sparse};
use super::record::{EdgeIds, Keep, Nothing, Record};
use super::segment::{self, Segment};
use super::uniform::Uniform;
use super::weighted::Weighted;
use super::{Fanout, Graph};
use crate::error::KernelError;
use crate::philox::StreamKey;

/// One layer of a mini-batch. Passing the same value again saves the allocations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampledCsc {
    /// Edges of frontier position `i` are `indptr[i]..indptr[i + 1]`; length frontier + 1. With
    /// several types of vertices, position `i` is that of a row: of the vertices of the first type
    /// in the order of the frontier, each with its rows, then of the next type.
    pub indptr: Vec<u32>,
    /// The source of each edge, as a position in the mixed frontier.
    pub local: Vec<u32>,
    /// The id of each edge, its position in the graph's `indices`, ascending within a vertex; empty
    /// unless [kept](EdgeIds::Keep).
    pub edges: Vec<u64>,
    /// Factor of each edge in sums over the edges: its factor in the graph
    /// ([`Graph::with_factors`]), times the correction of a draw by locality ([`Draw::prefer`]) or
    /// by weight ([`Graph::correcting`]). Empty where all are 1.
    pub factors: Vec<f32>,
}

impl SampledCsc {
    /// Number of vertices that this layer computes, the frontier's, or of their rows.
    pub fn num_vertices(&self) -> usize {
        self.indptr.len().saturating_sub(1)
    }

    /// Number of sampled edges.
    pub fn num_edges(&self) -> usize {
        self.local.len()
    }
}

/// Samples mini-batches, one after another; `sample/mod.rs` defines the samples. Results depend
/// neither on the number of threads nor on earlier samples.
///
/// ```
/// use gsplit_kernels::schedule::Step;
/// use gsplit_kernels::{Draw, EdgeIds, Fanout, Graph, SampledCsc, Sampler};
///
/// let graph = Graph::new(&[0, 2, 3, 3], &[1, 2, 0])?;
/// let (mut sampler, mut layer) = (Sampler::new(2), SampledCsc::default());
/// let step = Step { seed: 0, epoch: 1, step: 0 };
/// sampler.start(&[1]);
/// for (depth, fanout) in [15, 10].into_iter().enumerate() {
///     let draw = Draw::new(Fanout::Take(fanout));
///     sampler.layer(&graph, &draw, &step.layer_key(depth as u8), EdgeIds::Drop, &mut layer)?;
/// }
/// assert_eq!(sampler.mixed_frontier(), [1, 0, 2]);
/// assert_eq!((layer.indptr, layer.local), (vec![0, 1, 3], vec![1, 0, 2]));
/// # Ok::<(), gsplit_kernels::KernelError>(())
/// ```
pub struct Sampler {
    threads: usize,
    tuning: Tuning,
    mixed_frontier: Vec<u32>,
    num_vertices: usize,
    /// The rows of the frontier, in a graph with several types of vertices.
    rows: Vec<u32>,
    segments: Vec<Segment>,
    bits: Bits,
    sparse: Sparse,
}

/// Sizes at which the sampler switches methods; tests set them. No result depends on them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuning {
    /// Number of edges that justify another thread.
    pub segment_edges: u64,
    /// Vertices of the graph for each edge of a layer, up to which sweeping over their bits is
    /// worthwhile.
    pub swept_per_edge: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { segment_edges: 8192, swept_per_edge: 256 }
    }
}

impl Default for Sampler {
    /// A sampler that uses all threads of the present rayon pool.
    fn default() -> Self {
        Self::new(rayon::current_num_threads())
    }
}

impl Sampler {
    /// A sampler that uses up to `threads` threads of the present rayon pool; with 1, only the
    /// calling one.
    pub fn new(threads: usize) -> Self {
        Self {
            threads: threads.max(1),
            tuning: Tuning::default(),
            mixed_frontier: Vec::new(),
            num_vertices: 0,
            rows: Vec::new(),
            segments: Vec::new(),
            bits: Bits::default(),
            sparse: Sparse::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn tuned(threads: usize, tuning: Tuning) -> Self {
        Self { tuning, ..Self::new(threads) }
    }

    /// Begins a mini-batch: `frontier` is the frontier of its first layer.
    pub fn start(&mut self, frontier: &[u32]) {
        self.bits.restart(&self.mixed_frontier, self.num_vertices);
        self.sparse.restart();
        self.mixed_frontier.clear();
        self.mixed_frontier.extend_from_slice(frontier);
    }

    /// The frontier of the next layer: after a layer, its mixed frontier, which starts with that
    /// layer's frontier.
    pub fn mixed_frontier(&self) -> &[u32] {
        &self.mixed_frontier
    }

    /// Samples the next layer into `layer`, and extends the mixed frontier.
    ///
    /// `key` holds seed, epoch, step and layer, its stream is normally
    /// [`Stream::Sample`](crate::Stream::Sample).
    ///
    /// # Errors
    /// [`KernelError::Fanout`], [`KernelError::Relations`] for fanouts of relations that the graph
    /// does not have, [`KernelError::VertexOutOfRange`], [`KernelError::RepeatedVertex`] if the
    /// frontier holds a vertex twice, [`KernelError::TooManyEdges`] beyond `u32::MAX` edges,
    /// [`KernelError::Length`] for unsuitable counters and [`KernelError::Weight`] for an
    /// unsuitable weight. The mini-batch is then lost: [`start`](Self::start) another.
    pub fn layer(
        &mut self,
        graph: &Graph<'_>,
        draw: &Draw<'_>,
        key: &StreamKey,
        edges: EdgeIds<'_>,
        layer: &mut SampledCsc,
    ) -> Result<(), KernelError> {
        let draws = draw.of_relations(graph.layout())?;
        match (graph.weights(), draw.preferred) {
            (None, None) => self.layer_of(graph, &draws, Uniform, key, edges, layer),
            (None, Some(preferred)) => {
                let by = |to_draw| Locality { to_draw, preferred, indices: graph.drawn() };
                self.layer_of(graph, &draws, by, key, edges, layer)
            }
            (Some(weights), _) => {
                let corrects = draws.iter().any(|draw| graph.tells_correction(draw.fanout));
                let by = |to_draw| Weighted { to_draw, weights, corrects };
                self.layer_of(graph, &draws, by, key, edges, layer)
            }
        }
    }

    /// Samples a layer by a method: with one draw for all rows, or with one for each relation.
    fn layer_of<'d, D: DrawVertex>(
        &mut self,
        graph: &Graph<'_>,
        draws: &[Draw<'d>],
        by: impl Fn(Draw<'d>) -> D,
        key: &StreamKey,
        edges: EdgeIds<'_>,
        layer: &mut SampledCsc,
    ) -> Result<(), KernelError> {
        match (draws, graph.layout()) {
            (&[first, _, ..], Some(layout)) => {
                let fanouts = draws.iter().map(|draw| draw.fanout);
                let most = fanouts.max_by_key(|fanout| fanout.kept(u64::MAX));
                let most = most.unwrap_or(first.fanout);
                let draw =
                    ByRelation { layout, draws: draws.iter().map(|&draw| by(draw)).collect() };
                self.layer_by(graph, most, &draw, key, edges, layer)
            }
            _ => {
                draws[0].fanout.check()?;
                self.layer_by(graph, draws[0].fanout, &by(draws[0]), key, edges, layer)
            }
        }
    }

    fn layer_by(
        &mut self,
        graph: &Graph<'_>,
        fanout: Fanout,
        draw: &impl DrawVertex,
        key: &StreamKey,
        edges: EdgeIds<'_>,
        layer: &mut SampledCsc,
    ) -> Result<(), KernelError> {
        if self.num_vertices != graph.num_vertices() {
            self.bits.restart(&self.mixed_frontier, 0);
            self.num_vertices = graph.num_vertices();
        }
        if let Some(layout) = graph.layout() {
            layout.rows_of(&self.mixed_frontier, &mut self.rows)?;
        }
        let expected =
            expected_edges(graph, to_draw(graph, &self.rows, &self.mixed_frontier), fanout)?;
        let num_segments =
            (expected / self.tuning.segment_edges).clamp(1, self.threads as u64) as usize;
        let dense = expected.saturating_mul(self.tuning.swept_per_edge) >= self.num_vertices as u64;
        while self.segments.len() < num_segments {
            self.segments.push(Segment::default());
        }
        let Self { mixed_frontier, rows, segments, bits, sparse, num_vertices, .. } = self;
        let segments = &mut segments[..num_segments];
        let sample = || {
            let members = match dense {
                true => Some(bits.members(mixed_frontier, *num_vertices)?),
                false => {
                    sparse.add(mixed_frontier, *num_vertices)?;
                    None
                }
            };
            let to_draw = to_draw(graph, rows, mixed_frontier);
            let frontier = Frontier { graph, to_draw, members, draw, key };
            let keep = matches!(edges, EdgeIds::Keep);
            match edges {
                EdgeIds::Drop => frontier.draw(segments, || Nothing)?,
                EdgeIds::Keep => frontier.draw(segments, || Keep)?,
                EdgeIds::Count(counters) => {
                    let counts = counters.edges(graph)?;
                    frontier.draw(segments, || counts)?;
                }
            }
            write_edges(segments, keep, layer)?;
            if dense {
                bits.number(segments, mixed_frontier, &mut layer.local);
            } else {
                sparse.number(segments, mixed_frontier, &mut layer.local);
            }
            Ok(())
        };
        // On a thread of the pool: any other would be put to sleep and woken again for each
        // parallel part.
        if num_segments > 1 { rayon::scope(|_| sample()) } else { sample() }
    }
}

/// The vertices of the frontier, or their rows where there are several types of vertices.
fn to_draw<'r>(graph: &Graph<'_>, rows: &'r [u32], frontier: &'r [u32]) -> &'r [u32] {
    if graph.layout().is_some() { rows } else { frontier }
}

/// Estimates the number of edges of a layer, whatever the number of threads; returns an error if
/// there are more edges than positions.
fn expected_edges(graph: &Graph<'_>, frontier: &[u32], fanout: Fanout) -> Result<u64, KernelError> {
    let most = match fanout {
        Fanout::Take(fanout) => (frontier.len() as u64).saturating_mul(u64::from(fanout)),
        Fanout::All => u64::MAX,
    };
    if most <= u64::from(u32::MAX) {
        let degree = (graph.num_edges() as u64).div_ceil(graph.num_rows().max(1) as u64);
        return Ok(frontier.len() as u64 * fanout.kept(degree));
    }
    let mut edges = 0u64;
    for &v in frontier {
        edges = edges.saturating_add(fanout.kept(segment::look_up(graph, v)?.degree.into()));
    }
    if edges > u64::from(u32::MAX) {
        return Err(KernelError::TooManyEdges { edges });
    }
    Ok(edges)
}

/// State that all segments of a layer share.
struct Frontier<'a, 'g, D> {
    graph: &'a Graph<'g>,
    /// The vertices of the frontier, or their rows.
    to_draw: &'a [u32],
    members: Option<&'a [u64]>,
    draw: &'a D,
    key: &'a StreamKey,
}

impl<D: DrawVertex> Frontier<'_, '_, D> {
    /// Draws a part of the frontier into each segment. The first error in the order of the frontier
    /// is returned.
    fn draw<R: Record>(
        &self,
        segments: &mut [Segment],
        record: impl Fn() -> R + Sync,
    ) -> Result<(), KernelError> {
        let portion = self.to_draw.len().div_ceil(segments.len()).max(1);
        let draw = |(i, segment): (usize, &mut Segment)| {
            let from = (i * portion).min(self.to_draw.len());
            let part = &self.to_draw[from..(from + portion).min(self.to_draw.len())];
            segment.draw(self.graph, part, self.members, self.draw, self.key, &mut record())
        };
        match segments {
            [segment] => draw((0, segment)),
            segments => {
                let results: Vec<_> = segments.par_iter_mut().enumerate().map(draw).collect();
                results.into_iter().collect()
            }
        }
    }
}

/// Writes everything of `layer` except the positions, for which it makes room.
fn write_edges(
    segments: &[Segment],
    keep: bool,
    layer: &mut SampledCsc,
) -> Result<(), KernelError> {
    let total: usize = segments.iter().map(|segment| segment.sources.len()).sum();
    u32::try_from(total).map_err(|_| KernelError::TooManyEdges { edges: total as u64 })?;
    layer.indptr.clear();
    layer.indptr.reserve(segments.iter().map(|segment| segment.counts.len()).sum::<usize>() + 1);
    layer.indptr.push(0);
    let mut sum = 0;
    for segment in segments {
        layer.indptr.extend(segment.counts.iter().map(|&count| {
            sum += count;
            sum
        }));
    }
    layer.edges.clear();
    if keep {
        segments.iter().for_each(|segment| layer.edges.extend_from_slice(&segment.edges));
    }
    layer.factors.clear();
    segments.iter().for_each(|segment| layer.factors.extend_from_slice(&segment.factors));
    if layer.local.len() < total {
        layer.local.resize(total, 0);
    }
    layer.local.truncate(total);
    Ok(())
}

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
