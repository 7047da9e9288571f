//! A borrowed topology.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::{Fanout, RowLayout};
use crate::error::{KernelError, check_len};
use crate::prefetch::{is_scattered, read_ahead};

/// A directed graph in CSC form: vertex `v` aggregates from `indices[indptr[v]..indptr[v + 1]]`,
/// its in-neighbours. In a graph with weights they are drawn by weight; in one with factors, sums
/// over edges multiply the rows by these.
///
/// `indptr` ascends and `indices` are vertices: the reader of the file has checked that, and it is
/// trusted here.
#[derive(Debug, Clone, Copy)]
pub struct Graph<'a> {
    /// First in-edge of each vertex, and the number of edges at the end.
    pub indptr: &'a [u64],
    /// Source vertex of each edge.
    pub indices: &'a [u32],
    /// Weight of each edge, if edges are drawn by weight.
    pub(super) weights: Option<&'a [f32]>,
    /// Number of in-edges of each vertex that can be drawn, unless all can.
    pub(super) drawable: Option<&'a [u32]>,
    /// Whether draws by weight return the factors that correct sums.
    pub(super) corrects: bool,
    /// Factor of each edge's row in sums, if it is not 1, and the sum of these over the in-edges of
    /// each vertex.
    pub(super) factors: Option<(&'a [f32], &'a [f32])>,
    /// First in-edge of each row, and the layout of the rows, if vertices have several types.
    pub(super) rows: Option<(&'a [u64], &'a RowLayout)>,
    /// The edges that draws read, if the system reads them ahead, and the flag that stops the
    /// reads.
    pub(super) read_ahead: Option<(&'a [u32], Option<&'static AtomicBool>)>,
}

impl<'a> Graph<'a> {
    /// Wraps the two arrays; checks their lengths and both ends of `indptr`, in constant time.
    ///
    /// # Errors
    /// [`KernelError::Topology`] if `indptr` is empty, has more vertices than `u32` ids, does not
    /// start at 0, or does not end at the number of edges.
    pub fn new(indptr: &'a [u64], indices: &'a [u32]) -> Result<Self, KernelError> {
        check_ends(
            indptr.len(),
            indptr.first().zip(indptr.last()).map(|(&first, &last)| [first, last]),
            indices.len(),
        )?;
        Ok(Self {
            indptr,
            indices,
            weights: None,
            drawable: None,
            corrects: false,
            factors: None,
            rows: None,
            read_ahead: None,
        })
    }

    /// The graph with edges drawn by `weights`, aligned with `indices`: finite and not negative,
    /// which is checked as they are drawn.
    pub fn with_weights(self, weights: &'a [f32]) -> Result<Self, KernelError> {
        check_len("edge weights", self.num_edges(), weights.len())?;
        Ok(Self { weights: Some(weights), ..self })
    }

    /// The graph with `drawable`, the result of [`num_drawable`](Self::num_drawable).
    pub fn with_drawable(self, drawable: &'a [u32]) -> Result<Self, KernelError> {
        check_len("drawable in-edges", self.num_vertices(), drawable.len())?;
        Ok(Self { drawable: Some(drawable), ..self })
    }

    /// The graph with vertices of several types: `rows` holds the first in-edge of each row of
    /// `layout`, and the number of edges at the end. Samplers then draw for rows.
    ///
    /// # Errors
    /// [`KernelError::Topology`] unless `rows` begin at 0 and end at the number of edges.
    pub fn with_rows(self, rows: &'a [u64], layout: &'a RowLayout) -> Result<Self, KernelError> {
        check_len("offsets of rows", layout.num_rows() + 1, rows.len())?;
        let ends = rows.first().zip(rows.last()).map(|(&first, &last)| [first, last]);
        check_ends(rows.len(), ends, self.num_edges())?;
        Ok(Self { rows: Some((rows, layout)), ..self })
    }

    /// The layout of the rows, if vertices have several types.
    pub fn layout(&self) -> Option<&'a RowLayout> {
        self.rows.map(|(_, layout)| layout)
    }

    /// First in-edge of each thing that is drawn for, a vertex or a row, and the number of edges.
    #[inline]
    pub fn offsets(&self) -> &'a [u64] {
        self.rows.map_or(self.indptr, |(rows, _)| rows)
    }

    /// Number of things that are drawn for: rows, or vertices.
    pub fn num_rows(&self) -> usize {
        self.offsets().len().saturating_sub(1)
    }

    /// The graph with draws by weight that return the factors that correct sums
    /// ([`SampledCsc::factors`](super::SampledCsc::factors)).
    pub fn correcting(self) -> Self {
        Self { corrects: true, ..self }
    }

    /// The graph with edges mapped from a file that is larger than memory. `drawn` are its
    /// `indices` in a mapping used only for draws: a [`Sampler`](super::Sampler) asks the system
    /// for the pages that it will read, thousands of vertices ahead, instead of waiting for one
    /// after another, and the system reads no pages around these. Passes over all `indices` read
    /// ahead as always. Once `stop` is true, the sampler asks for no more pages and returns
    /// [`KernelError::Interrupted`].
    pub fn reading_ahead(
        self,
        drawn: &'a [u32],
        stop: Option<&'static AtomicBool>,
    ) -> Result<Self, KernelError> {
        check_len("edges for draws", self.num_edges(), drawn.len())?;
        is_scattered(drawn);
        [self.weights, self.factors()].into_iter().flatten().for_each(is_scattered);
        Ok(Self { read_ahead: Some((drawn, stop)), ..self })
    }

    /// Whether it is [reading ahead](Self::reading_ahead).
    pub fn is_reading_ahead(&self) -> bool {
        self.read_ahead.is_some()
    }

    /// The edges that draws read.
    #[inline]
    pub(super) fn drawn(&self) -> &'a [u32] {
        self.read_ahead.map_or(self.indices, |(drawn, _)| drawn)
    }

    /// Returns an error once it should stop.
    pub(super) fn check_stop(&self) -> Result<(), KernelError> {
        let stop = self.read_ahead.and_then(|(_, stop)| stop);
        if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            Err(KernelError::Interrupted)
        } else {
            Ok(())
        }
    }

    /// Requests the pages of the data of `edges`.
    pub(super) fn expect(&self, edges: Range<usize>) {
        read_ahead(self.drawn(), edges.clone());
        [self.weights, self.factors()]
            .into_iter()
            .flatten()
            .for_each(|values| read_ahead(values, edges.clone()));
    }

    /// Number of in-edges of each vertex whose weight is not 0; `None` if no weight is.
    pub fn num_drawable(&self) -> Option<Vec<u32>> {
        let weights =
            self.weights.filter(|weights| weights.par_iter().any(|&weight| weight == 0.0))?;
        let count = |ends: &[u64]| {
            weights[ends[0] as usize..ends[1] as usize]
                .iter()
                .filter(|&&weight| weight != 0.0)
                .count() as u32
        };
        Some(self.indptr.par_windows(2).map(count).collect())
    }

    /// The graph with a factor for each edge, by which sums over in-edges multiply its row.
    /// `factors` are aligned with `indices`; `degrees` are the result of
    /// [`weighted_degrees`](Self::weighted_degrees) for them.
    pub fn with_factors(self, factors: &'a [f32], degrees: &'a [f32]) -> Result<Self, KernelError> {
        check_len("edge factors", self.num_edges(), factors.len())?;
        check_len("weighted degrees", self.num_vertices(), degrees.len())?;
        Ok(Self { factors: Some((factors, degrees)), ..self })
    }

    /// Whether draws by weight with `fanout` return corrections of sums: if all edges are drawn
    /// there is nothing to correct.
    pub(super) fn tells_correction(&self, fanout: Fanout) -> bool {
        self.weights.is_some() && self.corrects && fanout != Fanout::All
    }

    /// The factor of each edge's row in sums, if it is not 1.
    pub fn factors(&self) -> Option<&'a [f32]> {
        self.factors.map(|(factors, _)| factors)
    }

    /// The sum of `factors` over the in-edges of each vertex that can be drawn.
    pub fn weighted_degrees(&self, factors: &[f32]) -> Result<Vec<f32>, KernelError> {
        check_len("edge factors", self.num_edges(), factors.len())?;
        let can_be_drawn = |edge: usize| self.weights.is_none_or(|weights| weights[edge] != 0.0);
        let sum = |ends: &[u64]| {
            let edges = (ends[0] as usize..ends[1] as usize).filter(|&edge| can_be_drawn(edge));
            edges.map(|edge| f64::from(factors[edge])).sum::<f64>() as f32
        };
        Ok(self.indptr.par_windows(2).map(sum).collect())
    }

    /// The weights of the edges, if they are drawn by weight.
    pub fn weights(&self) -> Option<&'a [f32]> {
        self.weights
    }

    /// Number of vertices.
    pub fn num_vertices(&self) -> usize {
        self.indptr.len().saturating_sub(1)
    }

    /// Number of edges.
    pub fn num_edges(&self) -> usize {
        self.indices.len()
    }

    /// Bytes of `indptr` and `indices`.
    pub fn num_bytes(&self) -> u64 {
        (size_of_val(self.indptr) + size_of_val(self.indices)) as u64
    }

    /// Range of the in-edges of `v` in `indices`.
    ///
    /// # Panics
    /// If `v` is not a vertex; so does [`degree`](Self::degree).
    #[inline]
    pub fn in_edges(&self, v: u32) -> Range<u64> {
        self.indptr[v as usize]..self.indptr[v as usize + 1]
    }

    /// Number of in-edges of `v`.
    #[inline]
    pub fn degree(&self, v: u32) -> u64 {
        let Range { start, end } = self.in_edges(v);
        end - start
    }

    /// Number of in-edges of `v` that can be drawn: all except edges of weight 0.
    #[inline]
    pub fn drawable(&self, v: u32) -> u64 {
        self.drawable.map_or_else(|| self.degree(v), |drawable| drawable[v as usize].into())
    }

    /// The degree of `v` if every vertex has an additional loop: one more than its in-edges that
    /// can be drawn, or than the sum of their factors.
    #[inline]
    pub fn degree_with_loop(&self, v: u32) -> f32 {
        self.factors.map_or((self.drawable(v) + 1) as f32, |(_, degrees)| degrees[v as usize] + 1.0)
    }
}

/// Checks the length of an indptr and its first and last value, if it has any.
pub(super) fn check_ends(
    len: usize,
    ends: Option<[u64; 2]>,
    edges: usize,
) -> Result<(), KernelError> {
    let (expected, got) = match ends {
        None => ("an indptr with one element more than vertices", "an empty one".to_owned()),
        Some(_) if len - 1 > u32::MAX as usize => {
            ("at most 2^32 - 1 vertices", format!("{}", len - 1))
        }
        Some([first, _]) if first != 0 => ("an indptr that starts at 0", format!("{first}")),
        Some([_, last]) if last != edges as u64 => {
            ("an indptr that ends at the number of edges", format!("{last} for {edges} edges"))
        }
        Some(_) => return Ok(()),
    };
    Err(KernelError::Topology { expected, got })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_a_topology() {
        let graph = Graph::new(&[0, 2, 2, 3], &[1, 2, 0]).unwrap();
        assert_eq!((graph.num_vertices(), graph.num_edges()), (3, 3));
        assert_eq!((graph.degree(0), graph.degree(1)), (2, 0));
        assert_eq!(graph.in_edges(2), 2..3);
        assert_eq!(Graph::new(&[0], &[]).unwrap().num_vertices(), 0);
    }

    #[test]
    fn degrees_are_sums_of_factors() {
        let graph = Graph::new(&[0, 2, 2, 3], &[1, 2, 0]).unwrap();
        let degrees = graph.weighted_degrees(&[0.5, 4.0, 0.25]).unwrap();
        assert_eq!(degrees, [4.5, 0.0, 0.25]);
        let weighted = graph.with_factors(&[0.5, 4.0, 0.25], &degrees).unwrap();
        assert_eq!([0, 1, 2].map(|v| graph.degree_with_loop(v)), [3.0, 1.0, 2.0]);
        assert_eq!([0, 1, 2].map(|v| weighted.degree_with_loop(v)), [5.5, 1.0, 1.25]);
        assert!(graph.weighted_degrees(&[1.0; 2]).is_err());
        assert!(
            graph.with_factors(&[1.0; 4], &degrees).is_err()
                && graph.with_factors(&[1.0; 3], &[1.0]).is_err()
        );
    }

    #[test]
    fn edges_of_weight_0_are_in_no_degree() {
        let graph = Graph::new(&[0, 2, 2, 3], &[1, 2, 0]).unwrap();
        assert_eq!(
            (graph.num_drawable(), graph.with_weights(&[1.0; 3]).unwrap().num_drawable()),
            (None, None)
        );
        let drawn = graph.with_weights(&[0.0, 2.0, 0.0]).unwrap();
        let drawable = drawn.num_drawable().unwrap();
        assert_eq!(drawable, [1, 0, 0]);
        assert_eq!(drawn.weighted_degrees(&[0.5, 4.0, 0.25]).unwrap(), [4.0, 0.0, 0.0]);
        let drawn = drawn.with_drawable(&drawable).unwrap();
        assert_eq!(
            [0, 1, 2].map(|v| (drawn.degree(v), drawn.drawable(v))),
            [(2, 1), (0, 0), (1, 0)]
        );
        assert_eq!([0, 1, 2].map(|v| drawn.degree_with_loop(v)), [2.0, 1.0, 1.0]);
        assert!(graph.with_drawable(&drawable[1..]).is_err());
        let told = |graph: Graph<'_>| {
            [Fanout::Take(3), Fanout::All].map(|fanout| graph.tells_correction(fanout))
        };
        assert_eq!(
            [told(drawn), told(drawn.correcting()), told(graph.correcting())].concat(),
            [false, false, true, false, false, false]
        );
    }

    #[test]
    fn refuses_arrays_that_do_not_fit() {
        for indptr in [&[][..], &[1, 2], &[0, 3]] {
            let error = Graph::new(indptr, &[0, 0]).unwrap_err();
            assert!(matches!(error, KernelError::Topology { .. }), "{error}");
        }
    }
}
