//! Relabelling on the host.
//!
//! Returns: distinct ids in order of first occurrence, and positions. Input: ids that take at most
//! 2^32 - 1 distinct values, as the ids of a [`Graph`](crate::Graph) do. Idea: one pass with a hash
//! table from id to position. Cost: one table look-up per id; memory for the distinct ids.
//! Sequential: ranks run in parallel.

use crate::id_map::IdMap;

/// Distinct ids of all `lists`, in order of first occurrence, and the position of every item, list
/// after list.
pub fn unique(lists: &[&[u32]]) -> (Vec<u32>, Vec<u32>) {
    let (mut table, mut ids) = (IdMap::default(), Vec::new());
    let mut positions = Vec::with_capacity(lists.iter().map(|list| list.len()).sum());
    for &id in lists.iter().copied().flatten() {
        let next = ids.len() as u32;
        let position = table.get_or_insert(id, next);
        if position == next {
            ids.push(id);
        }
        positions.push(position);
    }
    (ids, positions)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::philox::{Draws, Stream, StreamKey};

    /// Random ids below `range`; the last ones of the `u32` range are among them.
    fn ids(seed: u64, len: u32, range: u32) -> Vec<u32> {
        let mut draws = Draws::new(&StreamKey::new(seed, Stream::Generate), len);
        (0..len).map(|_| draws.below(range).wrapping_sub(3)).collect()
    }

    fn oracle(items: impl IntoIterator<Item = u32>) -> (Vec<u32>, Vec<u32>) {
        let (mut position, mut distinct) = (HashMap::new(), Vec::new());
        let positions = items
            .into_iter()
            .map(|id| {
                *position.entry(id).or_insert_with(|| {
                    distinct.push(id);
                    distinct.len() as u32 - 1
                })
            })
            .collect();
        (distinct, positions)
    }

    #[test]
    fn oracle_unique() {
        for seed in 0..20 {
            let lists = [
                ids(seed, 300, 5),
                vec![],
                ids(seed, 1000, 400),
                ids(seed, 5000, 1 << 30),
                ids(seed, 1, 1),
                vec![u32::MAX],
            ];
            let slices: Vec<&[u32]> = lists.iter().map(Vec::as_slice).collect();
            assert_eq!(unique(&slices), oracle(lists.concat()), "seed {seed}");
        }
    }

    #[test]
    fn empty_inputs() {
        assert_eq!(unique(&[]), (vec![], vec![]));
        assert_eq!(unique(&[&[], &[]]), (vec![], vec![]));
    }
}
