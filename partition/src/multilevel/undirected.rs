//! The finest level, undirected: the mapped topology, read from both ends.
//!
//! A topology holds the in-neighbours of each vertex. Where it is symmetric these are all
//! neighbours, and nothing is copied. Else the edges whose other direction is missing are kept a
//! second time, by their source: 4 bytes each.
//!
//! A pair weighs 1; with counts 1 plus the counts of both directions, kept in one byte an arc as
//! [`arc_weights`](super::arc_weights) says. A topology may repeat an edge: of equal neighbours in
//! a row all but the first weigh nothing.

use std::path::Path;

use gsplit_store::Topology;

use super::arc_weights::{EdgeCounts, decode};
use super::graph::Graph;
use super::one_way::OneWayEdges;
use crate::Result;
use crate::symmetric::is_symmetric;

/// The topology, undirected and weighted.
pub(super) struct Undirected<'a> {
    indptr: &'a [u64],
    indices: &'a [u32],
    /// For each vertex the heads of its out-edges that have no edge the other way, and the weights
    /// of all arcs; `None` if all edges have one the other way and weigh 1.
    turned: Option<OneWayEdges>,
    /// Whether they are in a file.
    is_filed: bool,
}

impl<'a> Undirected<'a> {
    /// Reads `topology` from both ends. `counts` holds a number for each edge, in the order of the
    /// topology's indices. Works in about `memory` bytes, and keeps data that is not part of the
    /// topology in a file in `folder`, if that is given.
    pub fn new(
        topology: &'a Topology,
        counts: Option<&[u32]>,
        memory: u64,
        folder: Option<&Path>,
    ) -> Result<Self> {
        let counts = counts.map(EdgeCounts::new);
        let as_it_is = counts.is_none() && is_symmetric(topology);
        let turned = (!as_it_is)
            .then(|| OneWayEdges::turn(topology, counts.as_ref(), memory, folder))
            .transpose()?;
        Ok(Self {
            indptr: topology.indptr(),
            indices: topology.indices(),
            turned,
            is_filed: folder.is_some(),
        })
    }

    /// The in-neighbours of `v` and where they begin.
    #[inline]
    fn inward(&self, v: u32) -> (&[u32], usize) {
        let start = self.indptr[v as usize] as usize;
        (&self.indices[start..self.indptr[v as usize + 1] as usize], start)
    }

    #[inline]
    fn outward(&self, v: u32) -> (&[u32], usize) {
        self.turned.as_ref().map_or((&[], 0), |turned| (turned.of(v), turned.start(v)))
    }
}

impl Graph for Undirected<'_> {
    fn num_vertices(&self) -> usize {
        self.indptr.len() - 1
    }

    fn num_arcs(&self) -> u64 {
        self.indices.len() as u64 + self.turned.as_ref().map_or(0, |turned| 2 * turned.len())
    }

    fn degree(&self, v: u32) -> usize {
        self.inward(v).0.len() + self.outward(v).0.len()
    }

    fn is_read_in_order(&self) -> bool {
        self.is_filed
    }

    // The one call of `visit` is in the innermost loop, or the compiler does not inline it.
    #[inline]
    fn for_each(&self, v: u32, mut visit: impl FnMut(u32, u32)) {
        let mut previous = v;
        for outward in [false, true] {
            let (row, start) = if outward { self.outward(v) } else { self.inward(v) };
            let weights = self.turned.as_ref().and_then(|turned| turned.weights.as_ref());
            let weights = weights.map(|both| if outward { &both.1 } else { &both.0 });
            let weights = weights.map_or(&[][..], |weights| &weights[start..start + row.len()]);
            for (i, &u) in row.iter().enumerate() {
                if u != v && u != previous {
                    visit(u, weights.get(i).map_or(1, |&byte| decode(byte)));
                    previous = u;
                }
            }
        }
    }
}
