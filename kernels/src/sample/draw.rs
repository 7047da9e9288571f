//! Draws of a layer's in-edges, and the interface between a drawing method and the sampler.

use super::{ExcludedEdges, Fanout, LayerFanout, RowLayout, VertexSet};
use crate::error::KernelError;
use crate::id_map::IdMap;
use crate::philox::StreamKey;
use crate::prefetch::prefetch;

/// Draw of the in-edges of each vertex, without replacement: with equal probability, by the graph's
/// weights ([`Graph::with_weights`](super::Graph::with_weights)), or more often from a set of
/// vertices.
#[derive(Clone, Copy, Debug)]
pub struct Draw<'a> {
    pub(super) fanout: Fanout,
    /// The fanouts of relations, if `fanout` is not that of all rows.
    relations: Option<&'a LayerFanout>,
    excluded: Option<&'a ExcludedEdges>,
    pub(super) preferred: Option<Preferred<'a>>,
}

/// In-neighbours that are drawn more often than others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preferred<'a> {
    pub set: &'a VertexSet,
    /// Edges from the set are drawn this many times more often.
    pub factor: f64,
}

impl<'a> Draw<'a> {
    /// Draws `fanout` distinct in-edges of each vertex, or all if there are no more; in a graph
    /// with weights, only edges of positive weight.
    pub fn new(fanout: Fanout) -> Self {
        Self { fanout, relations: None, excluded: None, preferred: None }
    }

    /// Draws for each row the fanout of its relation, otherwise like [`new`](Self::new).
    pub fn of(fanouts: &'a LayerFanout) -> Self {
        let (fanout, relations) = match fanouts.of_vertices() {
            Ok(fanout) => (fanout, None),
            Err(_) => (Fanout::All, Some(fanouts)),
        };
        Self { relations, ..Self::new(fanout) }
    }

    /// Draws none of the `excluded` edges.
    pub fn without(self, excluded: &'a ExcludedEdges) -> Self {
        Self { excluded: Some(excluded), ..self }
    }

    /// Draws in-neighbours in `set` with `factor` times the probability of others, at least 1, and
    /// returns the factors that correct sums ([`SampledCsc::factors`](super::SampledCsc::factors)):
    /// see `locality.rs`. With 1, all are drawn alike. In a graph with weights only the weights
    /// count.
    pub fn prefer(self, set: &'a VertexSet, factor: f64) -> Self {
        Self { preferred: (factor > 1.0).then_some(Preferred { set, factor }), ..self }
    }

    /// The draw of each relation of `layout`, or one draw for all rows.
    pub(super) fn of_relations(self, layout: Option<&RowLayout>) -> Result<Vec<Self>, KernelError> {
        let fanouts = self.relations.map(|of| of.of_relations(layout)).transpose()?.flatten();
        let fanouts = fanouts.unwrap_or_else(|| vec![self.fanout]);
        Ok(fanouts.into_iter().map(|fanout| Self { fanout, ..self }).collect())
    }

    /// Whether no edge is excluded.
    pub(super) fn excludes_none(&self) -> bool {
        self.excluded.is_none()
    }

    /// The in-edges of `vertex` that are excluded, ascending.
    #[inline]
    pub(super) fn excluded_of(&self, vertex: Vertex) -> &'a [u64] {
        let end = vertex.start + u64::from(vertex.degree);
        self.excluded.map_or(&[][..], |excluded| excluded.within(vertex.start..end))
    }
}

/// A drawing method.
pub trait DrawVertex: Sync {
    /// Whether a draw reads the data of all in-edges of its vertex.
    const READS_ALL: bool;

    /// Draws from the in-edges of `vertex`; appends the kept ones to the picks, ascending, unless
    /// all are kept.
    fn draw(
        &self,
        vertex: Vertex,
        key: &StreamKey,
        scratch: &mut Scratch,
    ) -> Result<Kept, KernelError>;

    /// Calls [`draw`](Self::draw) for each of up to [`GROUP`] vertices, with results in `kept`.
    /// Begins to fetch the picked parts of `indices`.
    #[inline]
    fn draw_group(
        &self,
        indices: &[u32],
        vertices: &[Vertex],
        key: &StreamKey,
        scratch: &mut Scratch,
        kept: &mut [Kept; GROUP],
    ) -> Result<(), KernelError> {
        draw_each(self, indices, vertices, key, scratch, kept)
    }
}

/// Draws of rows whose relations have fanouts of their own.
pub(super) struct ByRelation<'a, D> {
    pub layout: &'a RowLayout,
    /// The draw of each relation.
    pub draws: Vec<D>,
}

impl<D: DrawVertex> DrawVertex for ByRelation<'_, D> {
    const READS_ALL: bool = D::READS_ALL;

    #[inline]
    fn draw(
        &self,
        vertex: Vertex,
        key: &StreamKey,
        scratch: &mut Scratch,
    ) -> Result<Kept, KernelError> {
        self.draws[self.layout.relation_of(vertex.id)].draw(vertex, key, scratch)
    }
}

/// [`DrawVertex::draw_group`] by one call per vertex.
#[inline(always)]
pub(super) fn draw_each(
    by: &(impl DrawVertex + ?Sized),
    indices: &[u32],
    vertices: &[Vertex],
    key: &StreamKey,
    scratch: &mut Scratch,
    kept: &mut [Kept; GROUP],
) -> Result<(), KernelError> {
    for (&vertex, kept) in vertices.iter().zip(kept) {
        *kept = by.draw(vertex, key, scratch)?;
        if let Kept::Picked(count) = *kept {
            fetch(indices, vertex.start, scratch.picks.last(count as usize));
        }
    }
    Ok(())
}

/// Begins to fetch the `picks` of a vertex whose first in-edge is `start`.
#[inline(always)]
pub(super) fn fetch(indices: &[u32], start: u64, picks: &[u32]) {
    for &offset in picks {
        prefetch(indices, start as usize + offset as usize);
    }
}

/// Vertices whose edges are drawn before the first of these edges is read.
pub(super) const GROUP: usize = 32;

/// A vertex to draw for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vertex {
    /// The vertex.
    pub id: u32,
    /// Its first in-edge.
    pub start: u64,
    /// The number of its in-edges.
    pub degree: u32,
}

/// The in-edges that a vertex keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All in-edges.
    All,
    /// This many, which were appended to the picks.
    Picked(u32),
}

/// Buffers of a draw, kept from vertex to vertex.
#[derive(Default)]
pub struct Scratch {
    /// The picks of all vertices of a group.
    pub(super) picks: Picks,
    /// Picks of the present vertex, if they are too many to be compared with each other.
    pub(super) seen: IdMap,
    /// One word for each candidate.
    pub(super) keys: Vec<u64>,
    /// Candidates in the set, and the others.
    pub(super) sides: [Vec<u32>; 2],
    /// Corrections of the edges kept so far, for draws that need them.
    pub(super) factors: Vec<f32>,
}

/// Number of picks that are sorted in parallel.
pub(super) const LANES: usize = 16;

/// Picked in-edges, as offsets from the first one of their vertex.
#[derive(Default)]
pub struct Picks {
    offsets: Vec<u32>,
    len: usize,
}

impl Picks {
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// All picks.
    pub(super) fn as_slice(&self) -> &[u32] {
        &self.offsets[..self.len]
    }

    /// The last `count` picks.
    #[inline(always)]
    pub(super) fn last(&mut self, count: usize) -> &mut [u32] {
        &mut self.offsets[self.len - count..self.len]
    }

    /// The next `count` places, to be filled.
    #[inline(always)]
    pub(super) fn places(&mut self, count: usize) -> &mut [u32] {
        let from = self.len;
        self.len += count;
        if self.offsets.len() < self.len {
            self.grow();
        }
        &mut self.offsets[from..self.len]
    }

    #[cold]
    fn grow(&mut self) {
        self.offsets.resize(2 * self.len + 64 * LANES, 0);
    }
}
