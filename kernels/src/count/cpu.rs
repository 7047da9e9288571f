//! Pre-sample counters on the host.
//!
//! Returns: exact totals. Input: mini-batches of one graph, one after another. Idea: within one
//! layer no edge and no vertex occurs twice, so threads that count a layer together never share a
//! counter, and a plain load and store are enough where an atomic addition, which waits for all
//! earlier memory traffic, would cost more than the sampling. `&mut` ensures that no other layer is
//! counted meanwhile. The counters of a vertex's in-edges are adjacent, so the cost is that of
//! their cache lines: an edge has one byte, and the few that reach 256 continue in a table. Cost:
//! 12 bytes per vertex, 1 byte per edge until the counts are read out, then 4; one addition for
//! each thing counted. Limit: a counter ends at `u32::MAX`. An edge gains at most one per layer and
//! batch, and a vertex's work at most its fanout (its degree for `all`), so 4·10^9 / (layers ×
//! fanout) batches are always safe. Beyond it, [`Counters::into_parts`] is an error.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::{CounterParts, frontiers};
use crate::error::{KernelError, check_len};
use crate::prefetch::prefetch;
use crate::sample::{Graph, Record};

/// Number of vertices by which counters are prefetched.
const AHEAD: usize = 16;

/// Counts of a graph's vertices and edges.
#[derive(Debug)]
pub struct Counters {
    /// `appear` and `input` of each vertex, which are counted together.
    reached: Vec<[AtomicU32; 2]>,
    /// For each vertex, or each row in a graph with several types of vertices.
    work: Vec<AtomicU32>,
    /// The low byte of each edge's count.
    edge: Vec<AtomicU8>,
    /// The higher bytes of each edge's count, where they are not 0.
    high: Mutex<HashMap<u64, u32>>,
    overflowed: AtomicBool,
}

impl Counters {
    /// Counters of a graph of this size, all 0.
    pub fn new(num_vertices: usize, num_edges: usize) -> Self {
        Self {
            reached: (0..num_vertices).map(|_| Default::default()).collect(),
            work: (0..num_vertices).map(|_| AtomicU32::new(0)).collect(),
            edge: (0..num_edges).map(|_| AtomicU8::new(0)).collect(),
            high: Mutex::default(),
            overflowed: AtomicBool::new(false),
        }
    }

    /// The counters for a graph with several types of vertices, which counts `work` by rows.
    pub fn by_rows(self, num_rows: usize) -> Self {
        Self { work: (0..num_rows).map(|_| AtomicU32::new(0)).collect(), ..self }
    }

    /// Counts the vertices of a mini-batch whose layers have nested frontiers, as a
    /// [`Sampler`](crate::Sampler) leaves them: `mixed_frontier` is the last mixed frontier, and
    /// starts with the frontier of `sizes[d]` vertices for each depth `d`; the last size is its
    /// own. `appear` gains 1 for each frontier that a vertex is in, `input` gains 1.
    ///
    /// # Errors
    /// [`KernelError::Length`] if the sizes descend or the last is not that of `mixed_frontier`;
    /// [`KernelError::VertexOutOfRange`] after a partial count.
    pub fn count_vertices(
        &mut self,
        mixed_frontier: &[u32],
        sizes: &[usize],
    ) -> Result<(), KernelError> {
        frontiers(mixed_frontier.len(), sizes)?.into_iter().try_for_each(|(part, appearances)| {
            mixed_frontier[part]
                .par_chunks(4096)
                .try_for_each(|vertices| self.count_reached(vertices, appearances))
        })
    }

    fn count_reached(&self, vertices: &[u32], appearances: u32) -> Result<(), KernelError> {
        for (i, &vertex) in vertices.iter().enumerate() {
            if let Some(&later) = vertices.get(i + AHEAD) {
                prefetch(&self.reached, later as usize);
            }
            let out_of_range =
                KernelError::VertexOutOfRange { vertex, num_vertices: self.reached.len() };
            let [appear, input] = self.reached.get(vertex as usize).ok_or(out_of_range)?;
            add(appear, appearances, &self.overflowed);
            add(input, 1, &self.overflowed);
        }
        Ok(())
    }

    /// Counters of the edges of a layer drawn from `graph`.
    pub(crate) fn edges(&mut self, graph: &Graph<'_>) -> Result<EdgeCounts<'_>, KernelError> {
        check_len("counters of vertices", graph.num_rows(), self.work.len())?;
        check_len("counters of edges", graph.num_edges(), self.edge.len())?;
        Ok(EdgeCounts {
            work: &self.work,
            edge: &self.edge,
            high: &self.high,
            overflowed: &self.overflowed,
        })
    }

    /// The counts.
    ///
    /// # Errors
    /// [`KernelError::CounterOverflow`] if any of them passed `u32::MAX`.
    pub fn into_parts(self) -> Result<CounterParts, KernelError> {
        let mut edge: Vec<u32> = self.edge.into_iter().map(|low| low.into_inner().into()).collect();
        let mut overflowed = self.overflowed.into_inner();
        for (at, high) in self.high.into_inner().unwrap_or_else(PoisonError::into_inner) {
            let count = &mut edge[at as usize];
            overflowed |= high >= 1 << 24;
            *count |= high.wrapping_shl(8);
        }
        if overflowed {
            return Err(KernelError::CounterOverflow);
        }
        let work = self.work.into_iter().map(AtomicU32::into_inner).collect();
        let (appear, input) = self
            .reached
            .into_iter()
            .map(|[appear, input]| (appear.into_inner(), input.into_inner()))
            .unzip();
        Ok(CounterParts { input, appear, work, edge })
    }
}

/// The counters of edges and of work, lent to the threads that draw one layer. Only one thread
/// counts an edge, since only one thread draws its vertex.
#[derive(Clone, Copy)]
pub(crate) struct EdgeCounts<'a> {
    work: &'a [AtomicU32],
    edge: &'a [AtomicU8],
    high: &'a Mutex<HashMap<u64, u32>>,
    overflowed: &'a AtomicBool,
}

impl Record for EdgeCounts<'_> {
    #[inline]
    fn expect_vertex(&self, vertex: u32) {
        prefetch(self.work, vertex as usize);
    }

    #[inline]
    fn expect(&self, edge: u64) {
        prefetch(self.edge, edge as usize);
    }

    #[inline]
    fn record(&mut self, vertex: u32, edges: impl ExactSizeIterator<Item = u64>, _: &mut Vec<u64>) {
        add(&self.work[vertex as usize], edges.len() as u32, self.overflowed);
        for edge in edges {
            let low = &self.edge[edge as usize];
            let count = low.load(Relaxed).wrapping_add(1);
            low.store(count, Relaxed);
            if count == 0 {
                self.carry(edge);
            }
        }
    }
}

impl EdgeCounts<'_> {
    #[cold]
    fn carry(&self, edge: u64) {
        let mut high = self.high.lock().unwrap_or_else(PoisonError::into_inner);
        let high = high.entry(edge).or_insert(0);
        *high = high.saturating_add(1);
    }
}

/// Adds to a counter that no other thread uses at the time.
#[inline]
fn add(counter: &AtomicU32, amount: u32, overflowed: &AtomicBool) {
    let (sum, beyond) = counter.load(Relaxed).overflowing_add(amount);
    counter.store(sum, Relaxed);
    if beyond {
        overflowed.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Counting while sampling is tested with the sampler.

    #[test]
    fn vertices_count_for_every_frontier_they_are_in() {
        let mut counters = Counters::new(6, 0);
        counters.count_vertices(&[4, 0, 5, 1], &[1, 3, 4]).unwrap();
        counters.count_vertices(&[4, 3], &[0, 2]).unwrap();
        let counts = counters.into_parts().unwrap();
        assert_eq!(counts.appear, [2, 1, 0, 1, 4, 2]);
        assert_eq!(counts.input, [1, 1, 0, 1, 2, 1]);
    }

    #[test]
    fn edges_are_counted_beyond_a_byte() {
        let graph = Graph::new(&[0, 1, 3], &[0, 0, 1]).unwrap();
        let mut counters = Counters::new(2, 3);
        let mut counts = counters.edges(&graph).unwrap();
        (0..1000).for_each(|_| counts.record(1, [2u64].into_iter(), &mut Vec::new()));
        (0..255).for_each(|_| counts.record(0, [0u64].into_iter(), &mut Vec::new()));
        (0..256).for_each(|_| counts.record(1, [1u64].into_iter(), &mut Vec::new()));
        let counts = counters.into_parts().unwrap();
        assert_eq!((counts.edge, counts.work), (vec![255, 256, 1000], vec![255, 1256]));

        let counters = Counters {
            high: Mutex::new(HashMap::from([(0, (1 << 24) - 1)])),
            ..Counters::new(0, 1)
        };
        assert_eq!(counters.into_parts().unwrap().edge, [u32::MAX - 255]);
        let counters =
            Counters { high: Mutex::new(HashMap::from([(0, 1 << 24)])), ..Counters::new(0, 1) };
        assert_eq!(counters.into_parts(), Err(KernelError::CounterOverflow));
    }

    #[test]
    fn overflow_is_an_error() {
        let (overflowed, counter) = (AtomicBool::new(false), AtomicU32::new(0));
        add(&counter, u32::MAX, &overflowed);
        assert_eq!((counter.load(Relaxed), overflowed.load(Relaxed)), (u32::MAX, false));
        add(&counter, 1, &overflowed);
        assert!(overflowed.load(Relaxed));
        let counters = Counters { overflowed, ..Counters::new(1, 0) };
        assert_eq!(counters.into_parts(), Err(KernelError::CounterOverflow));
    }

    #[test]
    fn bad_input_is_refused() {
        let mut counters = Counters::new(2, 1);
        let beyond = Err(KernelError::VertexOutOfRange { vertex: 2, num_vertices: 2 });
        assert_eq!(counters.count_vertices(&[0, 2], &[2]), beyond);
        for sizes in [&[][..], &[1], &[2, 1], &[3, 2], &[3]] {
            let error = counters.count_vertices(&[0, 1], sizes);
            assert!(matches!(error, Err(KernelError::Length { .. })), "{sizes:?}");
        }
        assert_eq!(counters.count_vertices(&[], &[]), Ok(()));
    }
}
