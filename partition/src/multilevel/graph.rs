//! Interface of a level of the multilevel scheme: an undirected graph with weighted arcs.
//!
//! A pair {u, v} is an arc in both of its ends' rows, with one weight. Rows have no loops and name
//! every neighbour once.

use gsplit_kernels::prefetch;

use crate::repair::Neighbours;

/// Rows up to this length are fetched ahead; of longer ones the first reads would be forgotten
/// before the last.
const LONGEST_AHEAD: usize = 512;

/// An undirected graph with weights.
pub(super) trait Graph: Sync {
    /// Number of vertices.
    fn num_vertices(&self) -> usize;

    /// Number of arcs, two for every pair.
    fn num_arcs(&self) -> u64;

    /// Length of the row of `v`.
    fn degree(&self, v: u32) -> usize;

    /// Visits every neighbour of `v` with the weight of its arc.
    fn for_each(&self, v: u32, visit: impl FnMut(u32, u32));

    /// Whether rows are to be read in the order of the vertices, since memory does not hold all of
    /// them.
    fn is_read_in_order(&self) -> bool {
        false
    }

    /// Prefetches `values[u]` for every neighbour u of `v`, a vertex that will be processed soon.
    #[inline]
    fn fetch_ahead<T>(&self, v: u32, values: &[T]) {
        if (v as usize) < self.num_vertices() && self.degree(v) <= LONGEST_AHEAD {
            self.for_each(v, |u, _| prefetch(values, u as usize));
        }
    }
}

/// A level below the finest: rows of (neighbour, weight), in segments that tasks filled side by
/// side.
#[derive(Debug, Default)]
pub(super) struct Coarse {
    /// Rows per segment (except the last): 2 to this power.
    rows_log2: u32,
    segments: Vec<Segment>,
    num_vertices: usize,
}

/// Rows one after the other.
#[derive(Debug, Default)]
pub(super) struct Segment {
    /// End of each row.
    pub ends: Vec<u32>,
    /// Neighbour and weight.
    pub arcs: Vec<(u32, u32)>,
}

impl Coarse {
    /// Puts segments of 2^`rows_log2` rows together; the last may have fewer.
    pub fn new(rows_log2: u32, segments: Vec<Segment>) -> Self {
        let num_vertices = segments.iter().map(|segment| segment.ends.len()).sum();
        Self { rows_log2, segments, num_vertices }
    }

    /// The neighbours of `v` with their weights.
    #[inline]
    pub fn row(&self, v: u32) -> &[(u32, u32)] {
        let segment = &self.segments[(v >> self.rows_log2) as usize];
        let row = v as usize & ((1 << self.rows_log2) - 1);
        let start = if row == 0 { 0 } else { segment.ends[row - 1] };
        &segment.arcs[start as usize..segment.ends[row] as usize]
    }
}

impl Graph for Coarse {
    fn num_vertices(&self) -> usize {
        self.num_vertices
    }

    fn num_arcs(&self) -> u64 {
        self.segments.iter().map(|segment| segment.arcs.len() as u64).sum()
    }

    fn degree(&self, v: u32) -> usize {
        self.row(v).len()
    }

    #[inline]
    fn for_each(&self, v: u32, mut visit: impl FnMut(u32, u32)) {
        for &(u, weight) in self.row(v) {
            visit(u, weight);
        }
    }
}

impl<G: Graph> Neighbours for G {
    fn each_neighbour(&self, v: u32, visit: &mut dyn FnMut(u32, u64)) {
        self.for_each(v, |u, weight| visit(u, u64::from(weight)));
    }
}
