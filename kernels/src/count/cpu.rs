//! Pre-sample counters on the host.
//!
//! Returns: exact totals. Input: batches of one graph, from any number of threads at once. Idea: relaxed atomic
//! additions, whose total is the same in any order. Cost: 12 bytes a vertex, 4 bytes an edge; one addition for each
//! thing counted.
//! Limit: a counter ends at `u32::MAX`. An edge gains at most one a layer and batch, and a vertex's work at most its
//! fanout (its degree for `all`), so 4·10^9 / (layers × fanout) batches are always safe. Beyond it,
//! [`Counters::into_parts`] is an error.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;

use super::CounterParts;
use crate::error::KernelError;
use crate::sample::SampledEdges;

/// Shared counters; every method may be called from any thread.
#[derive(Debug)]
pub struct Counters {
    input: Vec<AtomicU32>,
    appear: Vec<AtomicU32>,
    work: Vec<AtomicU32>,
    edge: Vec<AtomicU32>,
    overflowed: AtomicBool,
}

impl Counters {
    /// Zeros for a graph of this size.
    pub fn new(num_vertices: usize, num_edges: usize) -> Self {
        let zeros = |len| (0..len).map(|_| AtomicU32::new(0)).collect();
        Self {
            input: zeros(num_vertices),
            appear: zeros(num_vertices),
            work: zeros(num_vertices),
            edge: zeros(num_edges),
            overflowed: AtomicBool::new(false),
        }
    }

    /// Adds 1 to `input` for each of `ids`: the bottom frontier of one batch.
    ///
    /// # Errors
    /// [`KernelError::VertexOutOfRange`]; the other ids may have been counted.
    pub fn count_input(&self, ids: &[u32]) -> Result<(), KernelError> {
        self.count_vertices(&self.input, ids)
    }

    /// Adds 1 to `appear` for each of `ids`: the frontier of one layer of one batch.
    ///
    /// # Errors
    /// [`KernelError::VertexOutOfRange`]; the other ids may have been counted.
    pub fn count_appear(&self, ids: &[u32]) -> Result<(), KernelError> {
        self.count_vertices(&self.appear, ids)
    }

    /// Adds 1 to `edge` for each sampled edge, and to `work` of each frontier vertex the number of its sampled
    /// in-edges.
    ///
    /// # Errors
    /// [`KernelError::Length`] if `sampled` is of another frontier, [`KernelError::VertexOutOfRange`],
    /// [`KernelError::EdgeOutOfRange`]; other edges may have been counted.
    pub fn count_edges(&self, frontier: &[u32], sampled: &SampledEdges) -> Result<(), KernelError> {
        KernelError::check_len("indptr of the sampled edges", frontier.len() + 1, sampled.indptr.len())?;
        frontier.par_iter().zip(sampled.indptr.par_windows(2)).with_min_len(256).try_for_each(|(&v, ends)| {
            self.add(self.vertex(&self.work, v)?, ends[1] - ends[0]);
            Ok(())
        })?;
        sampled.edges.par_iter().with_min_len(4096).try_for_each(|&edge| {
            let out_of_range = KernelError::EdgeOutOfRange { edge, num_edges: self.edge.len() };
            self.add(self.edge.get(edge as usize).ok_or(out_of_range)?, 1);
            Ok(())
        })
    }

    /// The counts.
    ///
    /// # Errors
    /// [`KernelError::CounterOverflow`] if any of them passed `u32::MAX`.
    pub fn into_parts(self) -> Result<CounterParts, KernelError> {
        if self.overflowed.into_inner() {
            return Err(KernelError::CounterOverflow);
        }
        let plain = |counters: Vec<AtomicU32>| counters.into_iter().map(AtomicU32::into_inner).collect();
        Ok(CounterParts {
            input: plain(self.input),
            appear: plain(self.appear),
            work: plain(self.work),
            edge: plain(self.edge),
        })
    }

    fn count_vertices(&self, counters: &[AtomicU32], ids: &[u32]) -> Result<(), KernelError> {
        ids.par_iter().with_min_len(4096).try_for_each(|&v| {
            self.add(self.vertex(counters, v)?, 1);
            Ok(())
        })
    }

    fn vertex<'a>(&self, counters: &'a [AtomicU32], vertex: u32) -> Result<&'a AtomicU32, KernelError> {
        let out_of_range = KernelError::VertexOutOfRange { vertex, num_vertices: counters.len() };
        counters.get(vertex as usize).ok_or(out_of_range)
    }

    fn add(&self, counter: &AtomicU32, amount: u32) {
        if counter.fetch_add(amount, Relaxed).checked_add(amount).is_none() {
            self.overflowed.store(true, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::{Draws, Stream, StreamKey};
    use crate::sample::{Fanout, Graph, sample_layer};

    fn topology() -> (Vec<u64>, Vec<u32>) {
        let mut draws = Draws::new(&StreamKey::new(3, Stream::Generate), 0);
        let mut indptr = vec![0];
        (0..300).for_each(|v| indptr.push(indptr[v] + u64::from(draws.below(30))));
        let indices = (0..indptr[300]).map(|_| draws.below(300)).collect();
        (indptr, indices)
    }

    #[test]
    fn oracle_counts_from_many_threads() {
        let (indptr, indices) = topology();
        let graph = Graph::new(&indptr, &indices).unwrap();
        let batches: Vec<_> = (0..40)
            .map(|step| {
                let key = StreamKey { step, ..StreamKey::new(4, Stream::Sample) };
                let frontier = crate::permute(300, &key)[..100].to_vec();
                let sampled = sample_layer(&graph, &frontier, Fanout::Take(6), &key).unwrap();
                (frontier, sampled)
            })
            .collect();
        let mut expected = CounterParts {
            input: vec![0; 300],
            appear: vec![0; 300],
            work: vec![0; 300],
            edge: vec![0; indices.len()],
        };
        let counters = Counters::new(300, indices.len());
        std::thread::scope(|scope| {
            for (frontier, sampled) in &batches {
                let counters = &counters;
                scope.spawn(move || {
                    counters.count_input(&frontier[..10]).unwrap();
                    counters.count_appear(frontier).unwrap();
                    counters.count_edges(frontier, sampled).unwrap();
                });
                frontier[..10].iter().for_each(|&v| expected.input[v as usize] += 1);
                for (i, &v) in frontier.iter().enumerate() {
                    expected.appear[v as usize] += 1;
                    expected.work[v as usize] += sampled.of(i).len() as u32;
                }
                sampled.edges.iter().for_each(|&e| expected.edge[e as usize] += 1);
            }
        });
        let counts = counters.into_parts().unwrap();
        assert_eq!(counts, expected);
        assert_eq!(counts.work.iter().sum::<u32>(), counts.edge.iter().sum());
    }

    #[test]
    fn overflow_is_an_error() {
        let sampled = |n| SampledEdges { indptr: vec![0, n], edges: vec![] };
        let counters = Counters::new(1, 0);
        counters.count_edges(&[0], &sampled(u32::MAX)).unwrap();
        counters.count_edges(&[0], &sampled(1)).unwrap();
        assert_eq!(counters.into_parts(), Err(KernelError::CounterOverflow));
        let counters = Counters::new(1, 0);
        counters.count_edges(&[0], &sampled(u32::MAX)).unwrap();
        assert_eq!(counters.into_parts().unwrap().work, [u32::MAX]);
    }

    #[test]
    fn bad_input_is_refused() {
        let counters = Counters::new(2, 1);
        let sampled = SampledEdges { indptr: vec![0, 1], edges: vec![1] };
        let beyond = Err(KernelError::VertexOutOfRange { vertex: 2, num_vertices: 2 });
        assert_eq!(counters.count_input(&[0, 2]), beyond);
        assert_eq!(counters.count_appear(&[2]), beyond);
        assert_eq!(counters.count_edges(&[2], &sampled), beyond);
        let error = counters.count_edges(&[0], &sampled);
        assert_eq!(error, Err(KernelError::EdgeOutOfRange { edge: 1, num_edges: 1 }));
        assert!(matches!(counters.count_edges(&[0, 1], &sampled), Err(KernelError::Length { .. })));
        counters.count_edges(&[], &SampledEdges { indptr: vec![0], edges: vec![] }).unwrap();
    }
}
