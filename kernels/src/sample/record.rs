//! Use of the ids of sampled edges.

use crate::count::Counters;

/// Use of the ids of a layer's edges, which not every caller needs.
pub enum EdgeIds<'a> {
    /// The ids are not needed.
    Drop,
    /// [`SampledCsc::edges`](super::SampledCsc::edges) holds them.
    Keep,
    /// They are counted as they are drawn: `edge` of each, and `work` of each frontier vertex.
    Count(&'a mut Counters),
}

/// Receives every edge as it is drawn, in order. `kept` is the segment's list. [`Counters`] implement
/// it for [`EdgeIds::Count`].
pub(crate) trait Record {
    /// Edges of `vertex` will be recorded soon.
    #[inline]
    fn expect_vertex(&self, _vertex: u32) {}

    /// `edge` will be recorded soon.
    #[inline]
    fn expect(&self, _edge: u64) {}

    /// `edges` were drawn for `vertex`.
    fn record(
        &mut self,
        vertex: u32,
        edges: impl ExactSizeIterator<Item = u64>,
        kept: &mut Vec<u64>,
    );
}

/// [`EdgeIds::Drop`].
pub(super) struct Nothing;

impl Record for Nothing {
    #[inline]
    fn record(&mut self, _: u32, _: impl ExactSizeIterator<Item = u64>, _: &mut Vec<u64>) {}
}

/// [`EdgeIds::Keep`].
pub(super) struct Keep;

impl Record for Keep {
    #[inline]
    fn record(&mut self, _: u32, edges: impl ExactSizeIterator<Item = u64>, kept: &mut Vec<u64>) {
        kept.extend(edges);
    }
}
