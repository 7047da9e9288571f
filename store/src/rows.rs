//! Row of each vertex, in a file that has rows of only some vertices.
//!
//! Returns: the position of a vertex among the ascending vertices that have a row. Idea: a bit per
//! vertex, and for each 64 the number of bits before them (Jacobson's rank, 1989). Cost: 1.5 bits
//! per vertex of the graph; a look-up reads two words.

use std::sync::Arc;

/// The vertices that have a row. Clones share their memory.
#[derive(Clone, Debug)]
pub struct RowIndex(Arc<[(u64, u32)]>);

impl RowIndex {
    /// Row `i` belongs to `vertices[i]`; the graph has `n` vertices.
    ///
    /// # Errors
    /// A text for the user, unless the vertices are distinct, below `n` and ascending.
    pub fn new(n: usize, vertices: &[u32]) -> Result<Self, String> {
        check_ascending(n, vertices)?;
        let mut words = vec![(0u64, 0u32); n.div_ceil(64)];
        vertices.iter().for_each(|&v| words[v as usize / 64].0 |= 1 << (v % 64));
        let mut before = 0;
        for (bits, rank) in &mut words {
            *rank = before;
            before += bits.count_ones();
        }
        Ok(Self(words.into()))
    }

    /// No vertex has a row.
    pub fn none() -> Self {
        Self(Arc::from([]))
    }

    /// The row of vertex `v`; `None` where it has none.
    #[inline]
    pub fn row_of(&self, v: u32) -> Option<usize> {
        let &(bits, before) = self.0.get(v as usize / 64)?;
        let bit = 1u64 << (v % 64);
        (bits & bit != 0).then(|| before as usize + (bits & (bit - 1)).count_ones() as usize)
    }
}

/// Describes why `vertices` are not distinct ones of `n`, ascending.
pub(crate) fn check_ascending(n: usize, vertices: &[u32]) -> Result<(), String> {
    let ascend = vertices.windows(2).all(|pair| pair[0] < pair[1]);
    match ascend && vertices.last().is_none_or(|&last| (last as usize) < n) {
        true => Ok(()),
        false => Err(format!("expected distinct vertices below {n}, ascending")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oracle_rows_are_positions_in_the_list() {
        for (n, every) in [(0u32, 1), (1, 1), (64, 1), (65, 64), (1000, 3), (1000, 7), (129, 128)] {
            let vertices: Vec<u32> = (0..n).filter(|v| v % every == 0 || v % 11 == 5).collect();
            let index = RowIndex::new(n as usize, &vertices).unwrap();
            for v in 0..n + 200 {
                assert_eq!(index.row_of(v), vertices.binary_search(&v).ok(), "{v} of {n}");
            }
            assert_eq!(index.row_of(u32::MAX), None);
        }
    }

    #[test]
    fn lists_that_do_not_ascend_are_refused() {
        for vertices in [&[1, 1][..], &[2, 1], &[3], &[u32::MAX]] {
            assert!(RowIndex::new(3, vertices).unwrap_err().contains("below 3"));
        }
        assert!(RowIndex::new(3, &[]).is_ok());
    }
}
