//! Dot products of pairs of rows, and the gradient of their loss.
//!
//! Loss of a pair with score s and label y: ln(1 + e^s) − s y; its derivative: σ(s) − y. With s =
//! ⟨h_u, h_v⟩ the gradient of h_u is (σ(s) − y) h_v, and the other way round.

use rayon::prelude::*;

use gsplit_kernels::{gather_f32, scatter_add_f32};

use crate::Result;

/// Dot product, always summed in the same order.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// The loss of pairs (a sum, not a mean) and its gradient.
#[derive(Debug)]
pub struct Scored {
    /// Sum of the pairs' losses.
    pub loss: f64,
    /// Number of pairs whose score has the right sign: above 0 for edges, not above 0 for others.
    pub correct: u64,
    /// Gradient of `loss · scale`, in the shape of `rows`.
    pub gradient: Vec<f32>,
}

/// The sum of the losses of `scores`, the number of scores with the right sign, and the derivatives
/// of the losses times `scale`; `edge(i)` says whether score `i` is of an edge. Summed in order.
pub fn logistic(
    scores: &[f32],
    edge: impl Fn(usize) -> bool + Sync,
    scale: f32,
) -> (f64, u64, Vec<f32>) {
    let (mut loss, mut correct) = (0f64, 0);
    for (i, &score) in scores.iter().enumerate() {
        let (score, edge) = (f64::from(score), edge(i));
        loss += score.max(0.0) + (-score.abs()).exp().ln_1p() - if edge { score } else { 0.0 };
        correct += u64::from((score > 0.0) == edge);
    }
    let slope = |(i, &score): (usize, &f32)| {
        let sigmoid = 1.0 / (1.0 + (-score).exp());
        scale * (sigmoid - f32::from(u8::from(edge(i))))
    };
    (loss, correct, scores.par_iter().enumerate().map(slope).collect())
}

/// Scores the pairs (`sources[i]`, `targets[i]`), positions in `rows` of `dim` values; `edge(i)`
/// says whether pair `i` is an edge. Sums are computed in the pairs' order, whatever the number of
/// threads.
pub fn score_pairs(
    rows: &[f32],
    dim: usize,
    [sources, targets]: [&[u32]; 2],
    edge: impl Fn(usize) -> bool + Sync,
    scale: f32,
) -> Result<Scored> {
    let gather = |positions: &[u32]| {
        let mut out = vec![0f32; positions.len() * dim];
        gather_f32(rows, dim, positions, &mut out).map(|()| out)
    };
    let (mut from, mut to) = (gather(sources)?, gather(targets)?);
    let scores: Vec<f32> =
        from.par_chunks_exact(dim).zip(to.par_chunks_exact(dim)).map(|(u, v)| dot(u, v)).collect();
    let (loss, correct, slopes) = logistic(&scores, edge, scale);
    from.par_chunks_exact_mut(dim).zip(to.par_chunks_exact_mut(dim)).zip(&slopes).for_each(
        |((u, v), slope)| {
            for (u, v) in u.iter_mut().zip(v) {
                (*u, *v) = (slope * *v, slope * *u);
            }
        },
    );
    let mut gradient = vec![0f32; rows.len()];
    scatter_add_f32(&mut gradient, dim, sources, &from)?;
    scatter_add_f32(&mut gradient, dim, targets, &to)?;
    Ok(Scored { loss, correct, gradient })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oracle_the_gradient_is_the_difference_quotient() {
        let dim = 3;
        let rows: Vec<f32> =
            (0..5 * dim as i32).map(|i| ((i * 37 % 11) as f32 - 5.0) / 4.0).collect();
        let pairs = [&[0u32, 0, 3, 4, 2][..], &[1, 2, 3, 0, 1]];
        let loss = |rows: &[f32]| score_pairs(rows, dim, pairs, |i| i % 2 == 0, 0.5).unwrap();
        let found = loss(&rows);
        for i in 0..rows.len() {
            let moved = |by: f32| {
                let mut rows = rows.clone();
                rows[i] += by;
                loss(&rows).loss
            };
            let quotient = 0.5 * (moved(1e-2) - moved(-1e-2)) / 2e-2;
            assert!(
                (f64::from(found.gradient[i]) - quotient).abs() < 1e-3,
                "{i}: {} {quotient}",
                found.gradient[i]
            );
        }
        let (large, none) = (
            score_pairs(&[1e4, 1e4], 1, [&[0], &[1]], |_| false, 1.0),
            score_pairs(&[], 3, [&[], &[]], |_| true, 1.0),
        );
        assert_eq!((large.unwrap().loss, none.unwrap().loss), (1e8, 0.0));
    }
}
