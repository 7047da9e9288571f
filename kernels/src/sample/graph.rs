//! A borrowed topology.

use std::ops::Range;

use crate::error::KernelError;

/// A directed graph in CSC form: vertex `v` aggregates from `indices[indptr[v]..indptr[v + 1]]`, its in-neighbours. Those of a graph
/// with weights are drawn by them.
///
/// `indptr` ascends and `indices` are vertices: the reader of the file has checked that, and it is trusted here.
#[derive(Debug, Clone, Copy)]
pub struct Graph<'a> {
    /// First in-edge of each vertex, and the number of edges at the end.
    pub indptr: &'a [u64],
    /// Source vertex of each edge.
    pub indices: &'a [u32],
    /// Weight of each edge, if edges are drawn by weight.
    pub(super) weights: Option<&'a [f32]>,
}

impl<'a> Graph<'a> {
    /// Wraps the two arrays; checks their lengths and both ends of `indptr`, in constant time.
    ///
    /// # Errors
    /// [`KernelError::Topology`] if `indptr` is empty, has more vertices than `u32` ids, does not start at 0, or does
    /// not end at the number of edges.
    pub fn new(indptr: &'a [u64], indices: &'a [u32]) -> Result<Self, KernelError> {
        let wrong = |expected, got: String| Err(KernelError::Topology { expected, got });
        let (Some(&first), Some(&last)) = (indptr.first(), indptr.last()) else {
            return wrong("an indptr with one element more than vertices", "an empty one".to_owned());
        };
        if indptr.len() - 1 > u32::MAX as usize {
            return wrong("at most 2^32 - 1 vertices", format!("{}", indptr.len() - 1));
        }
        if first != 0 {
            return wrong("an indptr that starts at 0", format!("{first}"));
        }
        if last != indices.len() as u64 {
            return wrong("an indptr that ends at the number of edges", format!("{last} for {} edges", indices.len()));
        }
        Ok(Self { indptr, indices, weights: None })
    }

    /// The same graph, whose edges are drawn by `weights`, aligned with `indices`: finite and not negative, which is checked as they are
    /// drawn.
    ///
    /// # Errors
    /// [`KernelError::Length`] if there are fewer or more than edges.
    pub fn with_weights(self, weights: &'a [f32]) -> Result<Self, KernelError> {
        KernelError::check_len("edge weights", self.num_edges(), weights.len())?;
        Ok(Self { weights: Some(weights), ..self })
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

    /// Where the in-edges of `v` lie in `indices`.
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
    fn refuses_arrays_that_do_not_fit() {
        for indptr in [&[][..], &[1, 2], &[0, 3]] {
            let error = Graph::new(indptr, &[0, 0]).unwrap_err();
            assert!(matches!(error, KernelError::Topology { .. }), "{error}");
        }
    }
}
