//! Distribution of degrees.
//!
//! Returns: quantiles by nearest rank (the p-quantile is the smallest degree that a share p of the vertices does not exceed), and a
//! histogram whose bars double in width. Cost: one parallel sort.

use rayon::prelude::*;
use serde::Serialize;

/// Summary of the in- or out-degrees of all vertices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Degrees {
    /// Least.
    pub min: u32,
    /// Median.
    pub p50: u32,
    /// 90th percentile.
    pub p90: u32,
    /// 99th percentile.
    pub p99: u32,
    /// Most.
    pub max: u32,
    /// Arithmetic mean.
    pub mean: f64,
    /// Number of vertices of degree 0, 1, 2 to 3, 4 to 7 ... up to the maximum.
    pub histogram: Vec<DegreeCount>,
}

/// A bar of the histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DegreeCount {
    /// The lowest degree of the bar; the next bar begins at twice that.
    pub from: u32,
    /// Number of vertices.
    pub vertices: u64,
}

impl Degrees {
    /// Summary of `degrees`; `None` if there are none.
    pub fn of(mut degrees: Vec<u32>) -> Option<Self> {
        degrees.par_sort_unstable();
        let (&min, &max) = (degrees.first()?, degrees.last()?);
        let quantile = |percent: usize| degrees[(degrees.len() * percent).div_ceil(100).max(1) - 1];
        let sum: u64 = degrees.par_iter().map(|&degree| u64::from(degree)).sum();
        let mut histogram = Vec::new();
        let mut counted = 0;
        for from in std::iter::once(0).chain((0..u32::BITS).map(|bit| 1 << bit)).take_while(|&from| from <= max) {
            let end = if from == 0 { 1 } else { u64::from(from) * 2 };
            let below = degrees.partition_point(|&degree| u64::from(degree) < end);
            histogram.push(DegreeCount { from, vertices: (below - counted) as u64 });
            counted = below;
        }
        let [p50, p90, p99] = [50, 90, 99].map(quantile);
        Some(Self { min, p50, p90, p99, max, mean: sum as f64 / degrees.len() as f64, histogram })
    }
}
