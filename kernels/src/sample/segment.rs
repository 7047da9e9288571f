//! A contiguous part of the frontier, drawn by one thread.
//!
//! Returns: the number of edges of each vertex, their sources, and, on request, the sources that
//! are not in the mixed frontier so far, once each, in order of first occurrence. Idea: vertices
//! are processed in small groups. The edges of a whole group are drawn, and fetched into the cache,
//! before the first is read; meanwhile the degrees of the next group are fetched, and the new
//! sources of the previous group are found by one bit per vertex, without branches. For a graph
//! that is read from disk ([`Graph::reading_ahead`]), the pages of thousands of vertices are
//! requested before the first of these is drawn: a draw is a function of its vertex, so it is made
//! an extra time to know them. Cost: one cache miss for each few edges of a vertex, most of which
//! overlap.

use super::Graph;
use super::draw::{DrawVertex, GROUP, Kept, Scratch, Vertex};
use super::record::Record;
use crate::error::KernelError;
use crate::philox::StreamKey;
use crate::prefetch::{page_of, prefetch};

/// Vertices whose pages are requested before the first of these is read: a multiple of [`GROUP`].
const WINDOW: usize = 2048;
/// Edges of one cache line.
const LINE: usize = 16;
/// Number of bits by which the tested bit is prefetched.
const AHEAD: usize = 16;

/// Draws of one thread, and its buffers, which are reused for the next layer.
#[derive(Default)]
pub(super) struct Segment {
    /// For each vertex, the number of its sampled edges.
    pub counts: Vec<u32>,
    /// Source of each sampled edge.
    pub sources: Vec<u32>,
    /// The ids of the edges, if they are kept.
    pub edges: Vec<u64>,
    /// The factors of the edges in sums, if they are not all 1.
    pub factors: Vec<f32>,
    /// One bit per vertex: whether it is in the mixed frontier above, or among the sources here.
    pub seen: Vec<u64>,
    /// The first `num_fresh` values are the sources that set their bit.
    pub fresh: Vec<u32>,
    pub num_fresh: usize,
    /// Number of sources whose bits are set, if `seen` is wanted.
    marked: usize,
    scratch: Scratch,
}

impl Segment {
    /// Draws for `frontier`, a part of the layer's. `members` has a bit for each vertex of the
    /// mixed frontier so far, if `seen` and `fresh` are wanted.
    pub(super) fn draw(
        &mut self,
        graph: &Graph<'_>,
        frontier: &[u32],
        members: Option<&[u64]>,
        draw: &impl DrawVertex,
        key: &StreamKey,
        record: &mut impl Record,
    ) -> Result<(), KernelError> {
        self.counts.clear();
        self.sources.clear();
        self.edges.clear();
        self.factors.clear();
        self.scratch.factors.clear();
        self.num_fresh = 0;
        self.marked = 0;
        self.seen.clear();
        self.seen.extend_from_slice(members.unwrap_or_default());
        for vertex in frontier.iter().take(GROUP) {
            prefetch(graph.offsets(), *vertex as usize);
        }
        if graph.is_reading_ahead() {
            self.read_ahead(graph, &frontier[..WINDOW.min(frontier.len())], draw, key)?;
        }
        for (i, group) in frontier.chunks(GROUP).enumerate() {
            if graph.is_reading_ahead() && (i * GROUP).is_multiple_of(WINDOW) {
                let later = frontier.get(i * GROUP + WINDOW..).unwrap_or_default();
                self.read_ahead(graph, &later[..WINDOW.min(later.len())], draw, key)?;
            }
            let next = frontier.get((i + 1) * GROUP..).unwrap_or_default();
            self.draw_group(graph, group, next, draw, key, record)?;
        }
        self.mark();
        match self.factors.is_empty() {
            true => std::mem::swap(&mut self.factors, &mut self.scratch.factors),
            false => self
                .factors
                .iter_mut()
                .zip(&self.scratch.factors)
                .for_each(|(factor, draw)| *factor *= draw),
        }
        Ok(())
    }

    /// Asks the system for the pages that draws for `vertices` will read.
    #[cold]
    fn read_ahead<D: DrawVertex>(
        &mut self,
        graph: &Graph<'_>,
        vertices: &[u32],
        draw: &D,
        key: &StreamKey,
    ) -> Result<(), KernelError> {
        graph.check_stop()?;
        for &v in vertices {
            let vertex = look_up(graph, v)?;
            let start = vertex.start as usize;
            self.scratch.picks.clear();
            if D::READS_ALL || draw.draw(vertex, key, &mut self.scratch)? == Kept::All {
                graph.expect(start..start + vertex.degree as usize);
                continue;
            }
            let mut asked = None;
            for edge in self.scratch.picks.as_slice().iter().map(|&offset| start + offset as usize)
            {
                let page = Some(page_of(graph.drawn(), edge));
                if page != asked {
                    graph.expect(edge..edge + 1);
                    asked = page;
                }
            }
        }
        Ok(())
    }

    /// Draws and reads the edges of a few vertices; `next` are prefetched.
    #[inline]
    fn draw_group(
        &mut self,
        graph: &Graph<'_>,
        group: &[u32],
        next: &[u32],
        draw: &impl DrawVertex,
        key: &StreamKey,
        record: &mut impl Record,
    ) -> Result<(), KernelError> {
        // Translating an address that is new to the processor can take as long as fetching its
        // data. In a loop that does nothing else, several translations overlap.
        let mut vertices = [Vertex::default(); GROUP];
        for (&v, vertex) in group.iter().zip(&mut vertices) {
            *vertex = look_up(graph, v)?;
            for edge in [vertex.start, (vertex.start + u64::from(vertex.degree)).saturating_sub(1)]
            {
                prefetch(graph.drawn(), edge as usize);
                record.expect(edge);
            }
        }
        for &later in next.iter().take(GROUP) {
            prefetch(graph.offsets(), later as usize);
            record.expect_vertex(later);
        }
        let mut drawn = [Kept::All; GROUP];
        let vertices = &vertices[..group.len()];
        self.scratch.picks.clear();
        draw.draw_group(graph.drawn(), vertices, key, &mut self.scratch, &mut drawn)?;
        let mut picks = self.scratch.picks.as_slice();
        let mut total = 0;
        for (vertex, &kept) in vertices.iter().zip(&drawn) {
            let count = match kept {
                Kept::All => {
                    for offset in (LINE..vertex.degree.min(4 * LINE as u32) as usize).step_by(LINE)
                    {
                        prefetch(graph.drawn(), vertex.start as usize + offset);
                        record.expect(vertex.start + offset as u64);
                    }
                    vertex.degree
                }
                Kept::Picked(count) => {
                    let (mine, others) = picks.split_at(count as usize);
                    mine.iter().for_each(|&offset| record.expect(vertex.start + u64::from(offset)));
                    picks = others;
                    count
                }
            };
            self.counts.push(count);
            total += count as usize;
        }
        self.mark();
        let mut picks = self.scratch.picks.as_slice();
        let mut at = self.sources.len();
        let end = at + total;
        self.sources.resize(end + LINE, 0);
        let counts = &self.counts[self.counts.len() - group.len()..];
        for ((&Vertex { id, start, .. }, &kept), &count) in vertices.iter().zip(&drawn).zip(counts)
        {
            match kept {
                Kept::All => {
                    let all = start as usize..start as usize + count as usize;
                    match graph.drawn()[all.start..].first_chunk::<LINE>() {
                        // A whole line, whatever the number, is copied without a branch.
                        Some(line) if count as usize <= LINE => {
                            self.sources[at..][..LINE].copy_from_slice(line)
                        }
                        _ => self.sources[at..][..count as usize]
                            .copy_from_slice(&graph.drawn()[all.clone()]),
                    }
                    if let Some(factors) = graph.factors() {
                        self.factors.extend_from_slice(&factors[all]);
                    }
                    record.record(
                        id,
                        (0..count).map(|offset| start + u64::from(offset)),
                        &mut self.edges,
                    );
                }
                Kept::Picked(_) => {
                    let (mine, others) = picks.split_at(count as usize);
                    let indices = &graph.drawn()[start as usize..];
                    for (source, &offset) in self.sources[at..].iter_mut().zip(mine) {
                        *source = indices[offset as usize];
                    }
                    if let Some(factors) = graph.factors() {
                        let factors = &factors[start as usize..];
                        self.factors.extend(mine.iter().map(|&offset| factors[offset as usize]));
                    }
                    record.record(
                        id,
                        mine.iter().map(|&offset| start + u64::from(offset)),
                        &mut self.edges,
                    );
                    picks = others;
                }
            }
            at += count as usize;
        }
        self.sources.truncate(end);
        Ok(())
    }

    /// Sets the bits of the sources that were read, if they are wanted.
    #[inline]
    fn mark(&mut self) {
        if self.seen.is_empty() {
            return;
        }
        let sources = &self.sources[self.marked..];
        self.marked = self.sources.len();
        if self.fresh.len() < self.num_fresh + sources.len() {
            self.fresh.resize(2 * (self.num_fresh + sources.len()), 0);
        }
        let fresh = &mut self.fresh[self.num_fresh..self.num_fresh + sources.len()];
        let (mut found, seen) = (0, &mut self.seen[..]);
        for (i, &source) in sources.iter().enumerate() {
            if let Some(&later) = sources.get(i + AHEAD) {
                prefetch(seen, later as usize / 64);
            }
            let word = &mut seen[source as usize / 64];
            let is_new = *word >> (source % 64) & 1 ^ 1;
            *word |= 1 << (source % 64);
            // Written in any case, and kept if it is new.
            fresh[found] = source;
            found += is_new as usize;
        }
        self.num_fresh += found;
    }
}

/// Looks a vertex up, or a row.
#[inline]
pub(super) fn look_up(graph: &Graph<'_>, id: u32) -> Result<Vertex, KernelError> {
    let at = id as usize;
    let Some(&[start, end]) = graph.offsets().get(at..at + 2) else {
        return Err(KernelError::VertexOutOfRange { vertex: id, num_vertices: graph.num_rows() });
    };
    // The whole degree must fit: it bounds the draws.
    let degree =
        u32::try_from(end - start).map_err(|_| KernelError::TooManyEdges { edges: end - start })?;
    Ok(Vertex { id, start, degree })
}
