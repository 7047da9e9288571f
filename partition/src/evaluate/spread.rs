//! How a quantity varies over mini-batches.

use serde::Serialize;

/// Mean and spread over mini-batches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of one mini-batch (n - 1 in the denominator); 0 when there is only one.
    pub std: f64,
    /// 5th percentile, interpolated linearly between mini-batches.
    pub p5: f64,
    /// 95th percentile.
    pub p95: f64,
}

impl Spread {
    /// The spread of at least one value; of none, zeros.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        values.sort_unstable_by(f64::total_cmp);
        Self {
            mean,
            std: (squares / (count - 1.0).max(1.0)).sqrt(),
            p5: percentile(&values, 0.05),
            p95: percentile(&values, 0.95),
        }
    }
}

/// The value below which the share `at` of the ascending `values` lies.
fn percentile(values: &[f64], at: f64) -> f64 {
    let place = at * values.len().saturating_sub(1) as f64;
    let value = |place: f64| values.get(place as usize).copied().unwrap_or(0.0);
    let (low, high) = (value(place.floor()), value(place.ceil()));
    low + (high - low) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // numpy: mean, std(ddof=1), percentile(5), percentile(95).
        let spread = Spread::of([7.0, 1.0, 4.0, 10.0].into_iter());
        let expected = [5.5, 3.872_983_346_207_417, 1.45, 9.55];
        for (found, expected) in [spread.mean, spread.std, spread.p5, spread.p95].into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{spread:?}");
        }
        assert_eq!(Spread::of([3.0].into_iter()), Spread { mean: 3.0, std: 0.0, p5: 3.0, p95: 3.0 });
        assert_eq!(Spread::of(std::iter::empty()), Spread { mean: 0.0, std: 0.0, p5: 0.0, p95: 0.0 });
    }
}
