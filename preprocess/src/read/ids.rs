//! From the ids of the input to the dense ids of the dataset.
//!
//! Returns: the rank of every id among the distinct ones, so that order is preserved.
//! Idea: where the ids are not much sparser than the edges, a bitmap with running counts; else the sorted ids and a
//! binary search. Both give the same ranks.
//! Cost: O(m + largest id / 64) and 2 bits for every id up to the largest; or the sort of all ids. At most 16 bytes an edge
//! either way.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rayon::prelude::*;

/// The distinct ids of a graph.
#[derive(Debug)]
pub enum IdSet {
    /// Bit `id` of `words` is set where `id` occurs; `before[i]` ids occur in the words before `i`.
    Bitmap { words: Vec<u64>, before: Vec<u64>, count: u64 },
    /// The ids, ascending.
    Sorted(Vec<u64>),
}

impl IdSet {
    /// The set of all ids in `sources` and `targets`, whose largest is `largest`.
    pub fn new(sources: &[u64], targets: &[u64], largest: u64) -> Self {
        if largest / 64 <= sources.len() as u64 {
            Self::bitmap(sources, targets, largest)
        } else {
            Self::sorted(sources, targets)
        }
    }

    fn bitmap(sources: &[u64], targets: &[u64], largest: u64) -> Self {
        let words: Vec<AtomicU64> = (0..=largest / 64).map(|_| AtomicU64::new(0)).collect();
        sources.par_iter().chain(targets).for_each(|&id| {
            let (word, bit) = (&words[(id / 64) as usize], 1 << (id % 64));
            if word.load(Relaxed) & bit == 0 {
                word.fetch_or(bit, Relaxed);
            }
        });
        let words: Vec<u64> = words.into_iter().map(AtomicU64::into_inner).collect();
        let mut count = 0;
        let mut add = |word: &u64| {
            count += u64::from(word.count_ones());
            count - u64::from(word.count_ones())
        };
        let before = words.iter().map(&mut add).collect();
        Self::Bitmap { words, before, count }
    }

    fn sorted(sources: &[u64], targets: &[u64]) -> Self {
        let mut ids = [sources, targets].concat();
        ids.par_sort_unstable();
        ids.dedup();
        Self::Sorted(ids)
    }

    /// Number of distinct ids.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bitmap { count, .. } => *count,
            Self::Sorted(ids) => ids.len() as u64,
        }
    }

    /// The ranks of `ids`, all of which occur. There must be at most 2^32 ids.
    pub fn ranks(&self, ids: Vec<u64>) -> Vec<u32> {
        let rank = |id: u64| match self {
            Self::Bitmap { words, before, .. } => {
                let word = (id / 64) as usize;
                let lower = words[word] & !(u64::MAX << (id % 64));
                before[word] + u64::from(lower.count_ones())
            }
            Self::Sorted(ids) => ids.partition_point(|&other| other < id) as u64,
        };
        ids.into_par_iter().map(|id| rank(id) as u32).collect()
    }

    /// The ids, ascending.
    pub fn into_ids(self) -> Vec<u64> {
        match self {
            Self::Bitmap { words, .. } => {
                let bits = |(at, word): (usize, &u64)| {
                    let word = *word;
                    (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at as u64 * 64 + bit)
                };
                words.iter().enumerate().flat_map(bits).collect()
            }
            Self::Sorted(ids) => ids,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn oracle_both_ways_rank_as_a_sorted_set_does() {
        let ids = |factor: u64| -> Vec<u64> { (0..500).map(|i: u64| i * i % 397 * factor).collect() };
        for factor in [1, 3, 64, 1000] {
            let (sources, targets) = (ids(factor), ids(factor).into_iter().map(|id| id / 2).collect::<Vec<_>>());
            let expected: Vec<u64> =
                sources.iter().chain(&targets).copied().collect::<BTreeSet<_>>().into_iter().collect();
            let ranks: Vec<u32> =
                sources.iter().map(|id| expected.iter().position(|other| other == id).unwrap() as u32).collect();
            let largest = *expected.last().unwrap();
            for set in [IdSet::bitmap(&sources, &targets, largest), IdSet::sorted(&sources, &targets)] {
                assert_eq!(set.len(), expected.len() as u64);
                assert_eq!(set.ranks(sources.clone()), ranks);
                assert_eq!(set.into_ids(), expected);
            }
        }
    }

    #[test]
    fn sparse_ids_take_no_bitmap() {
        let set = IdSet::new(&[0, u64::MAX], &[5, 5], u64::MAX);
        assert!(matches!(set, IdSet::Sorted(_)));
        assert_eq!(set.ranks(vec![0, u64::MAX, 5]), [0, 2, 1]);
    }
}
