//! A set of vertices of a graph: a bit for each.

use rayon::prelude::*;

use super::Graph;

/// Vertices of a task.
const VERTICES: usize = 64;

/// Some of the vertices of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VertexSet {
    words: Vec<u64>,
}

impl VertexSet {
    /// The set of those `members` that are below `num_vertices`.
    pub fn new(num_vertices: usize, members: impl IntoIterator<Item = u32>) -> Self {
        let mut words = vec![0u64; num_vertices.div_ceil(VERTICES)];
        for v in members.into_iter().filter(|&v| (v as usize) < num_vertices) {
            words[v as usize / VERTICES] |= 1 << (v % 64);
        }
        Self { words }
    }

    /// Whether it holds `v`.
    #[inline]
    pub fn contains(&self, v: u32) -> bool {
        self.words.get(v as usize / VERTICES).is_some_and(|word| word >> (v % 64) & 1 != 0)
    }

    /// Number of vertices that it holds.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The set and every vertex of `graph` that has an in-neighbour in it. Cost: at most one look
    /// at each edge, fewer if vertices have such in-neighbours early in their lists.
    pub fn with_targets(&self, graph: &Graph<'_>) -> Self {
        let reaches = |v: usize| {
            let list = &graph.indices[graph.indptr[v] as usize..graph.indptr[v + 1] as usize];
            list.iter().any(|&u| self.contains(u))
        };
        let word = |(at, &word): (usize, &u64)| {
            let (first, n) = (at * VERTICES, graph.num_vertices());
            let of_word = first..n.min(first + VERTICES);
            of_word
                .filter(|&v| word >> (v - first) & 1 == 0 && reaches(v))
                .fold(word, |all, v| all | 1 << (v - first))
        };
        Self { words: self.words.par_iter().enumerate().map(word).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::{Draws, Stream, StreamKey};

    #[test]
    fn oracle_sets_grow_by_those_who_have_an_in_neighbour_in_them() {
        for (seed, n) in [(1, 5), (2, 64), (3, 65), (4, 1000)] {
            let mut draws = Draws::new(&StreamKey::new(seed, Stream::Generate), 0);
            let mut indptr = vec![0u64];
            let mut indices = Vec::new();
            for _ in 0..n {
                indices.extend((0..draws.below(4)).map(|_| draws.below(n)));
                indptr.push(indices.len() as u64);
            }
            let graph = Graph::new(&indptr, &indices).unwrap();
            let members: Vec<u32> = (0..n).filter(|_| draws.below(10) == 0).collect();
            let mut set = VertexSet::new(n as usize, members.iter().copied());
            let mut expected: Vec<bool> = (0..n).map(|v| members.contains(&v)).collect();
            for hop in 0..4 {
                let found: Vec<bool> = (0..n).map(|v| set.contains(v)).collect();
                assert_eq!(found, expected, "seed {seed}, hop {hop}");
                assert_eq!(set.len(), expected.iter().filter(|held| **held).count());
                assert_eq!(set.is_empty(), !expected.contains(&true));
                let before = expected.clone();
                for v in 0..n {
                    let list =
                        &indices[indptr[v as usize] as usize..indptr[v as usize + 1] as usize];
                    expected[v as usize] |= list.iter().any(|&u| before[u as usize]);
                }
                set = set.with_targets(&graph);
            }
        }
        let set = VertexSet::new(3, [2, 7]);
        assert!(set.contains(2) && !set.contains(7) && !set.contains(1000));
    }
}
