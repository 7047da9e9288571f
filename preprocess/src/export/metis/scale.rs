//! Edge weights as METIS takes them: whole numbers from 1, whose sum over all lists fits its 32-bit integers.
//!
//! Weights are multiplied by one factor and rounded. Where all of them are multiples of a power of ten or of two, and the sum fits, the
//! factor makes each of them a whole number, so that their ratios stay exact; whole numbers stay as they are. Otherwise it is the largest
//! power of two whose sum fits, and a weight is off by at most one half.

use std::fmt;

/// The largest sum, and the largest weight, that METIS's 32-bit build reads.
pub(super) const LARGEST: f64 = i32::MAX as f64;
/// Exponent of the largest power of ten that is tried; the smallest is its negative.
const DIGITS: i32 = 9;

/// Weights of pairs of vertices, under collection.
#[derive(Clone, Copy, Debug)]
pub(super) struct PairWeights {
    /// Relative error of a weight: decimals are multiples of a power of ten only up to it.
    precision: f64,
    pairs: u64,
    zeros: u64,
    sum: f64,
    /// The least power of ten, and of two, by which each weight so far becomes a whole number. `None`: no power of ten does.
    ten: Option<i32>,
    two: i32,
}

impl PairWeights {
    /// No weights so far, of sums of single-precision numbers or of double-precision ones.
    pub fn new(are_single: bool) -> Self {
        let precision = if are_single { 4.0 * f64::from(f32::EPSILON) } else { 4.0 * f64::EPSILON };
        Self { precision, pairs: 0, zeros: 0, sum: 0.0, ten: Some(-DIGITS), two: i32::MIN }
    }

    /// Adds the weight of a pair, a finite number from 0.
    pub fn add(&mut self, weight: f64) {
        self.pairs += 1;
        self.sum += weight;
        if weight == 0.0 {
            self.zeros += 1;
            return;
        }
        let is_whole = |&digits: &i32| {
            let scaled = Factor::Ten(digits).times(weight);
            let (error, most) = ((scaled - scaled.round()).abs(), self.precision * scaled);
            scaled.round() >= 1.0 && (error == 0.0 || (error <= most && most < 0.1))
        };
        self.ten = self.ten.and_then(|least| (least..=DIGITS).find(is_whole));
        self.two = self.two.max(-last_bit(weight));
    }

    /// Adds the weights of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.pairs += other.pairs;
        self.zeros += other.zeros;
        self.sum += other.sum;
        self.ten = self.ten.zip(other.ten).map(|(here, there)| here.max(there));
        self.two = self.two.max(other.two);
    }

    /// The factor, and whether it keeps every weight exactly.
    pub fn factor(&self) -> (Factor, bool) {
        // Each pair is in two lists.
        let fits = |factor: &Factor, more: u64| 2.0 * (factor.times(self.sum) + more as f64) <= LARGEST;
        if self.pairs == self.zeros {
            return (Factor::Two(0), true);
        }
        let two = Some(Factor::Two(self.two)).filter(|_| self.two.abs() <= 64);
        let exact: Vec<Factor> = self.ten.map(Factor::Ten).into_iter().chain(two).collect();
        let are_whole = exact.iter().any(|factor| factor.times(1.0) <= 1.0);
        let exact = are_whole.then_some(Factor::Two(0)).into_iter().chain(exact);
        let fitting = exact.filter(|factor| fits(factor, self.zeros));
        // Of several factors the first is 1 if it keeps the weights; else the least makes the shortest file.
        let least = |a: Factor, b: Factor| if a == Factor::Two(0) || a.times(1.0) <= b.times(1.0) { a } else { b };
        if let Some(factor) = fitting.reduce(least) {
            return (factor, true);
        }
        // Rounding adds at most 1 to each weight. More pairs than that are beyond 32 bits whatever they weigh.
        let more = self.pairs.min((LARGEST / 4.0) as u64);
        let largest = (-1000..1000).rev().map(Factor::Two).find(|factor| fits(factor, more));
        (largest.unwrap_or(Factor::Two(0)), false)
    }
}

/// Exponent of the last bit of a positive number that is set.
fn last_bit(number: f64) -> i32 {
    let bits = number.to_bits();
    let (mantissa, exponent) = (bits & ((1 << 52) - 1), (bits >> 52) as i32);
    match (mantissa, exponent) {
        (0, exponent) => exponent - 1023,
        (mantissa, exponent) => exponent.max(1) - 1075 + mantissa.trailing_zeros() as i32,
    }
}

/// A power of ten or of two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Factor {
    Ten(i32),
    Two(i32),
}

impl Factor {
    /// `weight` times the factor.
    pub fn times(self, weight: f64) -> f64 {
        match self {
            // Negative powers of ten are not exact as floats, but their inverses are.
            Self::Ten(digits @ ..0) => weight / 10f64.powi(-digits),
            Self::Ten(digits) => weight * 10f64.powi(digits),
            Self::Two(bits) => weight * 2f64.powi(bits),
        }
    }

    /// `weight` as METIS takes it.
    pub fn whole(self, weight: f64) -> u32 {
        (self.times(weight).round() as u32).max(1)
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.times(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(weights: &[f64]) -> (f64, bool, Vec<u32>) {
        let mut all = PairWeights::new(true);
        for &weight in weights {
            let mut one = PairWeights::new(true);
            one.add(weight);
            all.merge(&one);
        }
        let (factor, is_exact) = all.factor();
        (factor.times(1.0), is_exact, weights.iter().map(|&weight| factor.whole(weight)).collect())
    }

    #[test]
    fn factors_keep_weights_exactly_where_they_can() {
        let single = |weight: f32| f64::from(weight);
        for (weights, factor, expected) in [
            (vec![3.0, 7.0], 1.0, vec![3, 7]),
            (vec![1000.0, 2000.0], 1.0, vec![1000, 2000]),
            (vec![0.25, 0.0, single(7.6)], 100.0, vec![25, 1, 760]),
            (vec![single(0.1), single(12.345)], 1000.0, vec![100, 12345]),
            (vec![0.5, 0.25, 3.0], 4.0, vec![2, 1, 12]),
            (vec![3e9, 5e9, 1.1e10], 1e-9, vec![3, 5, 11]),
            (vec![2f64.powi(-30), 2f64.powi(-28)], 2f64.powi(30), vec![1, 4]),
            (vec![0.0, 0.0], 1.0, vec![1, 1]),
            (vec![], 1.0, vec![]),
        ] {
            assert_eq!(found(&weights), (factor, true, expected), "{weights:?}");
        }
    }

    #[test]
    fn other_factors_are_as_large_as_the_sum_allows() {
        for weights in [
            vec![1.0 / 3.0, 5.0 / 7.0],
            vec![1e-12, 1e12],
            vec![1e30, 3e30],
            vec![0.123456789123, 98.7654321],
            vec![2147483647.0, 2147483647.0],
        ] {
            let (factor, is_exact, whole) = found(&weights);
            assert!(!is_exact, "{weights:?}");
            let sum: u64 = whole.iter().map(|&weight| 2 * u64::from(weight)).sum();
            assert!((i32::MAX as u64 / 4..=i32::MAX as u64).contains(&sum), "{weights:?} by {factor}: {sum}");
            for (&weight, whole) in weights.iter().zip(whole) {
                assert!((weight * factor - f64::from(whole)).abs() <= 0.5 || whole == 1, "{weight}");
            }
        }
    }
}
