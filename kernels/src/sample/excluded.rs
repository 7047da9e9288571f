//! Edges that must not be drawn.

use std::ops::Range;

/// A set of edges that no draw may use: for link prediction, the edges that are to be predicted
/// (and their reverses, which are edges of their own). The edges of a vertex are drawn from its
/// other edges, so it keeps `fanout` in-edges wherever `fanout` are left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExcludedEdges {
    /// Ascending and distinct.
    edges: Vec<u64>,
}

impl ExcludedEdges {
    /// The set of these positions in the graph's `indices`, in any order.
    pub fn new(mut edges: Vec<u64>) -> Self {
        edges.sort_unstable();
        edges.dedup();
        Self { edges }
    }

    /// The excluded edges, ascending.
    pub fn as_slice(&self) -> &[u64] {
        &self.edges
    }

    /// The excluded edges in `range`. Costs a binary search.
    #[inline]
    pub(super) fn within(&self, range: Range<u64>) -> &[u64] {
        let from = self.edges.partition_point(|&edge| edge < range.start);
        let rest = &self.edges[from..];
        match rest.first() {
            Some(&edge) if edge < range.end => {
                &rest[..rest.partition_point(|&edge| edge < range.end)]
            }
            _ => &[],
        }
    }
}

/// Turns ascending ranks among the in-edges that are not excluded into offsets among all of them.
pub(super) fn skip(ranks: &mut [u32], start: u64, excluded: &[u64]) {
    let mut skipped = 0;
    for rank in ranks {
        while excluded
            .get(skipped)
            .is_some_and(|&edge| edge - start <= u64::from(*rank) + skipped as u64)
        {
            skipped += 1;
        }
        *rank += skipped as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_become_offsets() {
        let excluded = ExcludedEdges::new(vec![14, 10, 11, 14, 19, 30]);
        assert_eq!(excluded.as_slice(), [10, 11, 14, 19, 30]);
        assert_eq!(excluded.within(10..20), [10, 11, 14, 19]);
        assert_eq!(excluded.within(12..14), []);
        assert_eq!(excluded.within(31..40), []);
        let mut ranks: Vec<u32> = (0..6).collect();
        skip(&mut ranks, 10, excluded.within(10..20));
        assert_eq!(ranks, [2, 3, 5, 6, 7, 8]);
        let mut repeated = [1, 1, 3];
        skip(&mut repeated, 10, &[10, 12]);
        assert_eq!(repeated, [3, 3, 5]);
    }
}
