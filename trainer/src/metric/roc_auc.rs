//! Area under the ROC curve, as the probability that a random positive scores above a random
//! negative.
//!
//! Returns: the same area as scikit-learn's `roc_auc_score`. Input: pairs of a score and a label.
//! Idea: the sum of the positives' ranks, where equal scores share their mean rank (Mann and
//! Whitney, 1947), in integers. Cost: a sort.

use rayon::prelude::*;

/// Area under the ROC curve of `(score, positive)` pairs, which are sorted in place; `None` unless
/// there are both positives and negatives. -0 equals 0.
pub fn roc_auc(scored: &mut [(f32, bool)]) -> Option<f64> {
    // Adding 0 turns -0 into 0.
    scored.par_sort_unstable_by(|a, b| (a.0 + 0.0).total_cmp(&(b.0 + 0.0)));
    let positives = scored.iter().filter(|(_, positive)| *positive).count() as u128;
    let negatives = scored.len() as u128 - positives;
    if positives == 0 || negatives == 0 {
        return None;
    }
    // Twice the sum of the positives' ranks, which are counted from 1.
    let (mut twice_ranks, mut below) = (0u128, 0u128);
    for equal in scored.chunk_by(|a, b| a.0 == b.0) {
        let count = equal.len() as u128;
        let positives = equal.iter().filter(|(_, positive)| *positive).count() as u128;
        twice_ranks += positives * (2 * below + count + 1);
        below += count;
    }
    let above = twice_ranks - positives * (positives + 1);
    Some(above as f64 / (2 * positives * negatives) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts every pair one by one.
    fn by_pairs(scored: &[(f32, bool)]) -> f64 {
        let (mut won, mut pairs) = (0.0, 0.0);
        for positive in scored.iter().filter(|pair| pair.1) {
            for negative in scored.iter().filter(|pair| !pair.1) {
                pairs += 1.0;
                won += match positive.0.partial_cmp(&negative.0) {
                    Some(std::cmp::Ordering::Greater) => 1.0,
                    Some(std::cmp::Ordering::Equal) => 0.5,
                    _ => 0.0,
                };
            }
        }
        won / pairs
    }

    #[test]
    fn oracle_the_area_is_the_share_of_pairs_in_order() {
        use gsplit_kernels::{Draws, Stream, StreamKey};
        for (seed, levels) in [(1, 2), (2, 5), (3, 40), (4, 1 << 20)] {
            let mut draws = Draws::new(&StreamKey::new(seed, Stream::Generate), 0);
            let mut scored: Vec<(f32, bool)> =
                (0..300).map(|_| (draws.below(levels) as f32 - 3.0, draws.below(3) == 0)).collect();
            let expected = by_pairs(&scored);
            let found = roc_auc(&mut scored).unwrap();
            assert!((found - expected).abs() < 1e-12, "seed {seed}: {found}, expected {expected}");
        }
    }

    #[test]
    fn one_sided_labels_have_no_area_and_zeros_are_equal() {
        assert_eq!(roc_auc(&mut []), None);
        assert_eq!(roc_auc(&mut [(0.5, true), (0.1, true)]), None);
        assert_eq!(roc_auc(&mut [(0.5, false)]), None);
        assert_eq!(roc_auc(&mut [(0.0, true), (-0.0, false)]), Some(0.5));
        assert_eq!(roc_auc(&mut [(2.0, true), (1.0, false)]), Some(1.0));
        assert_eq!(roc_auc(&mut [(1.0, true), (2.0, false)]), Some(0.0));
    }
}
