//! Both norms against their formulas in f64, gradients against finite differences of the formulas,
//! and any number of threads.

use super::*;
use crate::spmm::tests::{assert_close, on_any_threads, values, wide};

const EPSILON: f64 = 1e-5;
const SHAPES: [(usize, usize); 5] = [(0, 3), (1, 1), (40, 7), (300, 33), (3, 64)];

fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

fn moments(values: impl Iterator<Item = (f64, f64)> + Clone) -> (f64, f64) {
    let total: f64 = values.clone().map(|(weight, _)| weight).sum();
    let mean = values.clone().map(|(weight, value)| weight * value).sum::<f64>() / total;
    (mean, values.map(|(weight, value)| weight * (value - mean).powi(2)).sum::<f64>() / total)
}

/// Inputs: rows, scale, shift. `by_row`, or by column with `weights` of the rows.
fn naive([rows, scale, shift]: [&[f64]; 3], by_row: bool, weights: &[f64]) -> Vec<f64> {
    let dim = scale.len();
    let of_row = |row: &[f64]| moments(row.iter().map(|&value| (1.0, value)));
    let of_column = |c: usize| {
        moments(weights.iter().enumerate().map(move |(r, &weight)| (weight, rows[r * dim + c])))
    };
    let all: Vec<(f64, f64)> = match by_row {
        true => rows.chunks(dim).map(of_row).collect(),
        false => (0..dim).map(of_column).collect(),
    };
    let value = |at: usize| {
        let (r, c) = (at / dim, at % dim);
        let (mean, variance) = all[if by_row { r } else { c }];
        (rows[at] - mean) / (variance + EPSILON).sqrt() * scale[c] + shift[c]
    };
    (0..rows.len()).map(value).collect()
}

fn inputs(count: usize, dim: usize) -> [Vec<f32>; 3] {
    let mut rows = values(1, count * dim);
    rows.iter_mut()
        .enumerate()
        .for_each(|(at, value)| *value = 3.0 * *value + (at % dim.max(1)) as f32 * 0.1);
    [rows, values(2, dim), values(3, dim)]
}

/// Compares some gradients of Σ `upstream` · `formula` of `inputs` with `found`.
fn compare(
    name: &str,
    inputs: [Vec<f32>; 3],
    found: [Vec<f32>; 3],
    upstream: &[f32],
    formula: &dyn Fn([&[f64]; 3]) -> Vec<f64>,
) {
    let inputs = inputs.each_ref().map(|values| wide(values));
    for which in 0..3 {
        let (mut some, mut expected) = (Vec::new(), Vec::new());
        for at in (0..inputs[which].len()).step_by((inputs[which].len() / 12).max(1)) {
            let moved = |by: f64| -> f64 {
                let mut inputs = inputs.clone();
                inputs[which][at] += by;
                let out = formula(inputs.each_ref().map(|values| &values[..]));
                out.iter().zip(upstream).map(|(out, g)| out * f64::from(*g)).sum()
            };
            some.push(found[which][at]);
            expected.push((moved(1e-5) - moved(-1e-5)) / 2e-5);
        }
        let scale = expected.iter().fold(1e-1, |largest: f64, value| largest.max(value.abs()));
        for (found, expected) in some.iter().zip(&expected) {
            assert!(
                (f64::from(*found) - expected).abs() < 3e-5 * scale,
                "{name}, input {which}: {found}, {expected}"
            );
        }
    }
}

#[test]
fn oracle_layer_norm() {
    for (count, dim) in SHAPES {
        let name = format!("{count} rows of {dim}");
        let inputs = inputs(count, dim);
        let upstream = values(4, count * dim);
        let (out, found) = on_any_threads(|| {
            let [rows, scale, shift] = &inputs;
            let (mut out, mut moments) = (vec![f32::NAN; rows.len()], vec![f32::NAN; 2 * count]);
            layer_norm(rows, [scale, shift], EPSILON as f32, &mut moments, &mut out).unwrap();
            let mut of_rows = vec![f32::NAN; rows.len()];
            let [of_scale, of_shift] =
                layer_norm_backward(rows, scale, &moments, &upstream, &mut of_rows).unwrap();
            (out, [of_rows, of_scale, of_shift])
        });
        let formula = |inputs: [&[f64]; 3]| naive(inputs, true, &[]);
        assert_close(
            &out,
            &formula(inputs.each_ref().map(|values| wide(values)).each_ref().map(|v| &v[..])),
            &name,
        );
        if dim > 1 {
            compare(&name, inputs, found, &upstream, &formula);
        } else {
            assert!(
                found[0].iter().all(|&value| value.abs() < 1e-3),
                "a single value is always its mean"
            );
        }
    }
}

#[test]
fn oracle_batch_norm_with_rows_of_any_weight() {
    for (count, dim) in SHAPES.into_iter().filter(|&(count, _)| count > 1) {
        for weighted in [false, true] {
            let name = format!("{count} rows of {dim}, weighted {weighted}");
            let inputs = inputs(count, dim);
            let weights: Vec<f32> =
                (0..count).map(|r| if weighted { [1.0, 0.5, 0.25][r % 3] } else { 1.0 }).collect();
            let given = weighted.then_some(&weights[..]);
            let upstream = values(4, count * dim);
            let (out, found) = on_any_threads(|| {
                let [rows, scale, shift] = &inputs;
                let sums = column_moments(rows, given, dim).unwrap();
                let mean: Vec<f64> = sums[1..=dim].iter().map(|sum| sum / sums[0]).collect();
                let inverse = |(square, mean): (&f64, &f64)| {
                    1.0 / (square / sums[0] - mean * mean + EPSILON).sqrt()
                };
                let inverse: Vec<f64> = sums[1 + dim..].iter().zip(&mean).map(inverse).collect();
                let (mean, inverse) = (narrow(&mean), narrow(&inverse));
                let norm = ColumnNorm { mean: &mean, inverse: &inverse };
                let mut out = vec![f32::NAN; rows.len()];
                norm.forward(rows, [scale, shift], &mut out).unwrap();
                let mut of_rows = vec![f32::NAN; rows.len()];
                let [of_scale, of_shift] =
                    norm.backward(rows, scale, &upstream, &mut of_rows).unwrap();
                let means: Vec<f64> =
                    norm.products(rows, &of_rows).unwrap().iter().map(|s| s / sums[0]).collect();
                norm.correct(rows, given, &means, &mut of_rows).unwrap();
                (out, [of_rows, of_scale, of_shift])
            });
            let weights = wide(&weights);
            let formula = |inputs: [&[f64]; 3]| naive(inputs, false, &weights);
            assert_close(
                &out,
                &formula(inputs.each_ref().map(|values| wide(values)).each_ref().map(|v| &v[..])),
                &name,
            );
            compare(&name, inputs, found, &upstream, &formula);
        }
    }
}

#[test]
fn wrong_sizes_are_refused() {
    fn length<T>(result: Result<T, KernelError>) -> bool {
        matches!(result, Err(KernelError::Length { .. }))
    }
    let one = [1.0f32; 2];
    assert!(length(layer_norm(&[0.0; 3], [&one, &one], 1e-5, &mut [0.0; 2], &mut [0.0; 3])));
    assert!(length(layer_norm(&[0.0; 4], [&one, &one[..1]], 1e-5, &mut [0.0; 4], &mut [0.0; 4])));
    assert!(length(layer_norm(&[0.0; 4], [&one, &one], 1e-5, &mut [0.0; 3], &mut [0.0; 4])));
    assert!(length(layer_norm_backward(&[0.0; 4], &one, &[0.0; 4], &[0.0; 2], &mut [0.0; 4])));
    assert!(length(column_moments(&[0.0; 3], None, 2)));
    assert!(length(column_moments(&[0.0; 4], Some(&[1.0]), 2)));
    let norm = ColumnNorm { mean: &one, inverse: &one };
    assert!(length(norm.forward(&[0.0; 3], [&one, &one], &mut [0.0; 3])));
    assert!(length(norm.correct(&[0.0; 4], Some(&[1.0]), &[0.0; 4], &mut [0.0; 4])));
    assert!(length(norm.correct(&[0.0; 4], None, &[0.0; 3], &mut [0.0; 4])));
    assert!(length(ColumnNorm { mean: &one, inverse: &one[..1] }.products(&[0.0; 4], &[0.0; 4])));
}
