//! Rank of a positive among its negatives.

use rayon::prelude::*;

/// Rank from 1 of `positive` among itself and `negatives`; equal scores count half, as OGB's MRR
/// evaluator does (the mean of the optimistic and the pessimistic rank).
pub fn rank_of_positive(positive: f32, negatives: &[f32]) -> f64 {
    let above = negatives.iter().filter(|&&negative| negative > positive).count();
    let equal = negatives.iter().filter(|&&negative| negative == positive).count();
    1.0 + above as f64 + 0.5 * equal as f64
}

/// Scores of negative pairs (pairs without a link), which all links of a split are compared with.
pub struct SharedNegatives {
    /// Ascending.
    scores: Vec<f32>,
}

impl SharedNegatives {
    /// Creates negatives with these scores.
    pub fn new(mut scores: Vec<f32>) -> Self {
        // Adding 0 turns -0 into 0.
        scores.par_iter_mut().for_each(|score| *score += 0.0);
        scores.par_sort_unstable_by(f32::total_cmp);
        Self { scores }
    }

    /// Share of `links` that score above the `k`-th negative; 1 if there are fewer than `k`, as in
    /// OGB's evaluator.
    pub fn hits(&self, k: u32, links: &[f32]) -> f64 {
        let Some(threshold) =
            self.scores.len().checked_sub(k as usize).and_then(|at| self.scores.get(at))
        else {
            return 1.0;
        };
        links.iter().filter(|&score| score > threshold).count() as f64 / links.len() as f64
    }

    /// Mean reciprocal rank of `links`, each among all negatives.
    pub fn mrr(&self, links: &[f32]) -> f64 {
        let reciprocal = |&link: &f32| {
            let below = self.scores.partition_point(|&score| score < link);
            let equal = self.scores[below..].partition_point(|&score| score <= link);
            let above = self.scores.len() - below - equal;
            1.0 / (1.0 + above as f64 + 0.5 * equal as f64)
        };
        links.iter().map(reciprocal).sum::<f64>() / links.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_negatives_are_counted_as_ogb_does() {
        let negatives = SharedNegatives::new(vec![0.5, 0.1, 0.9, 0.5]);
        let links = [0.5, 0.6, 0.9, 1.0];
        // Above 0.9; above 0.5, twice; above 0.1; there is no fifth negative.
        let found = [1, 2, 3, 4, 5].map(|k| negatives.hits(k, &links));
        assert_eq!(found, [0.25, 0.75, 0.75, 1.0, 1.0]);
        let by_one: f64 =
            links.iter().map(|&link| 1.0 / rank_of_positive(link, &[0.5, 0.1, 0.9, 0.5])).sum();
        assert!((negatives.mrr(&links) - by_one / 4.0).abs() < 1e-12);
        assert_eq!(SharedNegatives::new(vec![]).hits(1, &links), 1.0);
        assert_eq!(SharedNegatives::new(vec![-0.0]).hits(1, &[0.0]), 0.0);
    }

    #[test]
    fn ties_count_half() {
        assert_eq!(rank_of_positive(1.0, &[]), 1.0);
        assert_eq!(rank_of_positive(1.0, &[0.0, 2.0, 1.0]), 2.5);
        assert_eq!(rank_of_positive(0.0, &[0.0; 4]), 3.0);
    }
}
