//! Where a positive stands among its negatives.

/// Rank from 1 of `positive` among itself and `negatives`; equal scores count half, as OGB's MRR evaluator does (the mean
/// of the optimistic and the pessimistic rank).
pub fn rank_of_positive(positive: f32, negatives: &[f32]) -> f64 {
    let above = negatives.iter().filter(|&&negative| negative > positive).count();
    let equal = negatives.iter().filter(|&&negative| negative == positive).count();
    1.0 + above as f64 + 0.5 * equal as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_count_half() {
        assert_eq!(rank_of_positive(1.0, &[]), 1.0);
        assert_eq!(rank_of_positive(1.0, &[0.0, 2.0, 1.0]), 2.5);
        assert_eq!(rank_of_positive(0.0, &[0.0; 4]), 3.0);
    }
}
