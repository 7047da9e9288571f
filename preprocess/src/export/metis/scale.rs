//! Edge weights as METIS takes them: whole numbers from 1, whose sum over all lists fits its 32-bit
//! integers.
//!
//! Whole numbers stay as they are if their sum fits. Otherwise each weight is multiplied by the
//! largest power of two whose sum fits, and rounded, so that it is off by at most one half.

/// The largest sum, and the largest weight, that METIS's 32-bit build reads.
pub(super) const LARGEST: f64 = i32::MAX as f64;

/// Weights of pairs of vertices, under collection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PairWeights {
    pairs: u64,
    zeros: u64,
    sum: f64,
    has_fractions: bool,
}

impl PairWeights {
    /// Adds the weight of a pair, a finite number from 0.
    pub fn add(&mut self, weight: f64) {
        self.pairs += 1;
        self.zeros += u64::from(weight == 0.0);
        self.sum += weight;
        self.has_fractions |= weight.fract() != 0.0;
    }

    /// Adds the weights of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.pairs += other.pairs;
        self.zeros += other.zeros;
        self.sum += other.sum;
        self.has_fractions |= other.has_fractions;
    }

    /// The factor of the weights.
    pub fn factor(&self) -> f64 {
        // Each pair is in two lists, and the least weight is 1.
        let fits = |factor: f64, more: u64| 2.0 * (factor * self.sum + more as f64) <= LARGEST;
        if !self.has_fractions && fits(1.0, self.zeros) {
            return 1.0;
        }
        // More pairs than that are beyond 32 bits whatever they weigh.
        let more = self.pairs.min((LARGEST / 4.0) as u64);
        (-1000..1000)
            .rev()
            .map(|bits| 2f64.powi(bits))
            .find(|&factor| fits(factor, more))
            .unwrap_or(1.0)
    }
}

/// `weight` times `factor`, as METIS takes it.
pub(super) fn whole(weight: f64, factor: f64) -> u32 {
    ((weight * factor).round() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(weights: &[f64]) -> (f64, Vec<u32>) {
        let mut all = PairWeights::default();
        for &weight in weights {
            let mut one = PairWeights::default();
            one.add(weight);
            all.merge(&one);
        }
        let factor = all.factor();
        (factor, weights.iter().map(|&weight| whole(weight, factor)).collect())
    }

    #[test]
    fn whole_numbers_that_fit_stay() {
        for weights in [vec![3.0, 7.0], vec![1000.0, 2000.0], vec![]] {
            assert_eq!(
                found(&weights),
                (1.0, weights.iter().map(|&weight| weight as u32).collect()),
                "{weights:?}"
            );
        }
        assert_eq!(found(&[0.0, 0.0]), (1.0, vec![1, 1]));
    }

    #[test]
    fn other_factors_are_as_large_as_the_sum_allows() {
        for weights in [
            vec![0.5, 0.25, 3.0],
            vec![1.0 / 3.0, 5.0 / 7.0],
            vec![1e-12, 1e12],
            vec![1e30, 3e30],
            vec![0.123456789123, 98.7654321],
            vec![2147483647.0, 2147483647.0],
        ] {
            let (factor, whole) = found(&weights);
            let sum: u64 = whole.iter().map(|&weight| 2 * u64::from(weight)).sum();
            assert!(
                (i32::MAX as u64 / 4..=i32::MAX as u64).contains(&sum),
                "{weights:?} by {factor}: {sum}"
            );
            for (&weight, whole) in weights.iter().zip(whole) {
                assert!(
                    (weight * factor - f64::from(whole)).abs() <= 0.5 || whole == 1,
                    "{weight}"
                );
            }
        }
    }
}
