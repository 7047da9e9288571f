//! Splitting on the host.
//!
//! Returns: a [`Split`]. Input: at most `u32::MAX` ids, and owners that are ranks. Idea: look up
//! the owners in parallel (that is where the cache misses are), then one stable counting sort.
//! Cost: O(ids + ranks). Source: the online splitting of GSplit.

use rayon::prelude::*;

use super::Split;
use crate::error::KernelError;

/// Groups the positions of `ids` by `owner`, a function from vertex to rank in `0..ranks`.
///
/// # Errors
/// [`KernelError::Owner`] for the first vertex whose owner is not a rank;
/// [`KernelError::TooManyItems`].
pub fn split_by_owner(
    ids: &[u32],
    ranks: usize,
    owner: impl Fn(u32) -> usize + Sync,
) -> Result<Split, KernelError> {
    if u32::try_from(ids.len()).is_err() {
        return Err(KernelError::TooManyItems {
            what: "vertices to split by owner",
            got: ids.len(),
        });
    }
    let owners: Vec<usize> = ids.par_iter().with_min_len(4096).map(|&v| owner(v)).collect();

    let mut counts = vec![0; ranks];
    for (&owner, &vertex) in owners.iter().zip(ids) {
        *counts.get_mut(owner).ok_or(KernelError::Owner { vertex, owner, ranks })? += 1;
    }
    let mut next = Vec::with_capacity(ranks);
    let mut sum = 0;
    for count in &counts {
        next.push(sum);
        sum += count;
    }
    let mut order = vec![0; ids.len()];
    for (position, &owner) in (0..).zip(&owners) {
        order[next[owner]] = position;
        next[owner] += 1;
    }
    Ok(Split { counts, order })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::{Draws, Stream, StreamKey};

    #[test]
    fn oracle_stable_sort() {
        for seed in 0..20u32 {
            let mut draws = Draws::new(&StreamKey::new(5, Stream::Generate), seed);
            let ranks = 1 + draws.below(9) as usize;
            let ids: Vec<u32> = (0..draws.below(20_000)).map(|_| draws.below(1000)).collect();
            // Rank 1 owns nothing.
            let owner = |v: u32| if v as usize % ranks == 1 { 0 } else { v as usize % ranks };
            let split = split_by_owner(&ids, ranks, owner).unwrap();

            let mut order: Vec<u32> = (0..ids.len() as u32).collect();
            order.sort_by_key(|&i| owner(ids[i as usize]));
            assert_eq!(split.order, order, "seed {seed}");
            assert_eq!(split.counts.len(), ranks);
            for (rank, part) in split.parts().enumerate() {
                assert!(part.iter().all(|&i| owner(ids[i as usize]) == rank), "seed {seed}");
            }
            assert_eq!(split.parts().map(<[u32]>::len).sum::<usize>(), ids.len());
        }
    }

    #[test]
    fn empty_lists() {
        assert_eq!(
            split_by_owner(&[], 3, |_| 0).unwrap(),
            Split { counts: vec![0; 3], order: vec![] }
        );
        assert_eq!(split_by_owner(&[], 0, |_| 0).unwrap(), Split::default());
    }

    #[test]
    fn an_owner_beyond_the_ranks_is_an_error() {
        let error = split_by_owner(&[1, 8, 9], 4, |v| v as usize / 2).unwrap_err();
        assert_eq!(error, KernelError::Owner { vertex: 8, owner: 4, ranks: 4 });
        assert!(split_by_owner(&[0], 0, |_| 0).is_err());
    }
}
