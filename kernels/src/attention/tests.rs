//! Attention against its formula in f64, gradients against finite differences of the formula, and any number of threads.

mod counts;
mod device;
mod dropout;
mod dynamic;

use super::*;
use crate::edges::HostEdges;
use crate::error::KernelError;
use crate::philox::{Stream, StreamKey};
use crate::spmm::tests::{assert_close, edges, on_any_threads, values, wide};

const SLOPE: f64 = 0.2;

const KEY: StreamKey = StreamKey { seed: 5, epoch: 2, step: 1, stream: Stream::Attention, layer: 1 };

/// A vertex for each of `targets` targets.
fn vertices(targets: usize) -> Vec<u32> {
    (0..targets as u32).map(|target| 3 + 17 * target).collect()
}

/// Dropout's factors of a target's attention weights, edge after edge, head after head.
fn factors(op: &Attention<'_>, target: usize, edges: usize) -> Vec<f64> {
    let mut factors = vec![1.0; edges * op.heads];
    if let Some((vertices, rate, key)) = op.dropout {
        crate::dropout_mask(&vertices[target..][..1], factors.len(), rate, &key, &mut factors).unwrap();
    }
    wide(&factors)
}

/// The formula; inputs: rows, the sources' and the targets' part of the scores.
fn naive(op: &Attention<'_>, [rows, from_source, from_target]: [&[f64]; 3]) -> Vec<f64> {
    let (heads, dim) = (op.heads, op.heads * op.head_dim);
    let mut out = vec![0.0; op.edges.num_targets() * dim];
    for target in 0..op.edges.num_targets() {
        let own = op.self_loops.then_some(target);
        let sources: Vec<usize> =
            own.into_iter().chain(op.edges.of(target).map(|edge| op.edges.sources()[edge] as usize)).collect();
        let factors = factors(op, target, sources.len());
        for head in 0..heads {
            let raised = |source: usize| {
                let sum = from_source[source * heads + head] + from_target[target * heads + head];
                (if sum > 0.0 { sum } else { SLOPE * sum }).exp()
            };
            let total: f64 = sources.iter().map(|&source| raised(source)).sum();
            for (edge, &source) in sources.iter().enumerate() {
                let weight = raised(source) / total * factors[edge * heads + head];
                for column in head * op.head_dim..(head + 1) * op.head_dim {
                    let of_row = if op.shares_rows { column % op.head_dim } else { column };
                    out[target * dim + column] += weight * rows[source * op.row_dim() + of_row];
                }
            }
        }
    }
    out
}

fn for_each_case(rows_are_shared: &[bool], mut body: impl FnMut(&str, &Attention<'_>, [Vec<f32>; 3])) {
    let shapes = [(1, 1, 0, 0), (3, 7, 0, 0), (20, 50, 4, 0), (60, 90, 5, 1000)];
    for (case, (targets, sources, degree, hub)) in shapes.into_iter().enumerate() {
        let (edges, vertices) = (edges(case as u32, targets, sources, degree, hub), vertices(targets));
        for (heads, head_dim) in [(1, 1), (1, 40), (3, 5), (4, 16)] {
            for (self_loops, rate) in [(false, [None, Some(0.3)][case % 2]), (true, None), (true, Some(0.6))] {
                let dropout = rate.map(|rate| (&vertices[..], rate, KEY));
                for &shares_rows in rows_are_shared {
                    let op = Attention {
                        edges: &edges,
                        heads,
                        head_dim,
                        shares_rows,
                        slope: SLOPE as f32,
                        self_loops,
                        dropout,
                        factors: None,
                    };
                    let scores =
                        |seed, rows: usize| values(seed, rows * heads).iter().map(|value| 6.0 * value).collect();
                    let inputs = [values(1, sources * op.row_dim()), scores(2, sources), scores(3, targets)];
                    let heads = format!("{heads} heads of {head_dim}, shared rows {shares_rows}");
                    let name = format!("case {case}, {heads}, self-loops {self_loops}, dropout {rate:?}");
                    body(&name, &op, inputs);
                }
            }
        }
    }
}

fn forward(op: &Attention<'_>, inputs: &[Vec<f32>; 3]) -> (Vec<f32>, Vec<f32>) {
    let mut out = vec![f32::NAN; op.edges.num_targets() * op.dim()];
    let mut weights = vec![f32::NAN; op.num_weights()];
    op.forward(&inputs[0], [&inputs[1], &inputs[2]], &mut out, &mut weights).unwrap();
    (out, weights)
}

/// Finite differences of Σ `gradient` · `formula(inputs)` by about `count` values of input `which`, moved by `step`; with the place of
/// each.
fn slopes(
    formula: impl Fn([&[f64]; 3]) -> Vec<f64>,
    inputs: &[Vec<f64>; 3],
    which: usize,
    gradient: &[f32],
    count: usize,
    step: f64,
) -> Vec<(usize, f64)> {
    let moved = |at: usize, by: f64| -> f64 {
        let mut inputs = inputs.clone();
        inputs[which][at] += by;
        let out = formula(inputs.each_ref().map(|values| &values[..]));
        out.iter().zip(gradient).map(|(out, g)| out * f64::from(*g)).sum()
    };
    let len = inputs[which].len();
    let places = (0..len).step_by((len / count).max(1));
    places.map(|at| (at, (moved(at, step) - moved(at, -step)) / (2.0 * step))).collect()
}

#[test]
fn oracle_forward_is_the_formula() {
    for_each_case(&[false, true], |name, op, inputs| {
        let (out, _) = on_any_threads(|| forward(op, &inputs));
        let wide = inputs.each_ref().map(|values| wide(values));
        assert_close(&out, &naive(op, wide.each_ref().map(|values| &values[..])), name);
    });
}

#[test]
fn oracle_gradients_are_the_finite_differences_of_the_formula() {
    for_each_case(&[false, true], |name, op, inputs| {
        let (out, weights) = forward(op, &inputs);
        let gradient = values(4, out.len());
        let found = on_any_threads(|| {
            let mut found = inputs.each_ref().map(|values| vec![f32::NAN; values.len()]);
            let mut scratch = vec![f32::NAN; weights.len()];
            let [rows, from_source, from_target] = &mut found;
            let out = AttentionGradient { rows, from_source, from_target };
            op.backward(&inputs[0], [&inputs[1], &inputs[2]], &weights, &gradient, &mut scratch, out).unwrap();
            found
        });
        let inputs = inputs.each_ref().map(|values| wide(values));
        for (which, found) in found.iter().enumerate() {
            let slopes = slopes(|inputs| naive(op, inputs), &inputs, which, &gradient, 25, 1e-5);
            let (some, expected): (Vec<f32>, Vec<f64>) =
                slopes.into_iter().map(|(at, slope)| (found[at], slope)).unzip();
            assert_close(&some, &expected, &format!("{name}, input {which}"));
        }
    });
}

#[test]
fn oracle_products_of_heads() {
    let shapes = [(0, 2, 3), (1, 1, 1), (700, 3, 17), (257, 4, 32)];
    for ((rows, heads, head_dim), shared) in shapes.into_iter().flat_map(|shape| [(shape, false), (shape, true)]) {
        let width = if shared { head_dim } else { heads * head_dim };
        let (matrix, vector) = (values(1, rows * width), values(2, heads * head_dim));
        let gradient = values(3, rows * heads);
        let (found, of_vector) = on_any_threads(|| {
            let (mut out, mut of_vector) = (vec![f32::NAN; rows * heads], vec![f32::NAN; vector.len()]);
            head_products(&matrix, &vector, head_dim, &mut out).unwrap();
            head_products_backward(&matrix, &gradient, head_dim, &mut of_vector).unwrap();
            (out, of_vector)
        });
        let (mut products, mut sums) = (vec![0f64; rows * heads], vec![0f64; vector.len()]);
        for (row, column) in (0..rows).flat_map(|row| (0..vector.len()).map(move |column| (row, column))) {
            let (value, place) = (f64::from(matrix[row * width + column % width]), row * heads + column / head_dim);
            products[place] += value * f64::from(vector[column]);
            sums[column] += value * f64::from(gradient[place]);
        }
        assert_close(&found, &products, "products");
        assert_close(&of_vector, &sums, "gradient of the vector");
    }
}

#[test]
fn a_target_without_edges_gets_zeros_and_wrong_sizes_are_refused() {
    let edges = HostEdges::new(vec![0, 0, 1], vec![0], 2).unwrap();
    let op = Attention {
        edges: &edges,
        heads: 1,
        head_dim: 2,
        slope: 0.2,
        shares_rows: false,
        self_loops: false,
        dropout: None,
        factors: None,
    };
    let (mut out, mut weights) = ([f32::NAN; 4], [f32::NAN; 1]);
    op.forward(&[1.0, 2.0, 3.0, 4.0], [&[0.0; 2], &[0.0; 2]], &mut out, &mut weights).unwrap();
    assert_eq!((out, weights), ([0.0, 0.0, 1.0, 2.0], [1.0]));
    let length = |result: Result<(), KernelError>| matches!(result, Err(KernelError::Length { .. }));
    assert!(length(op.forward(&[1.0; 3], [&[0.0; 2], &[0.0; 2]], &mut out, &mut weights)));
    assert!(length(op.forward(&[1.0; 4], [&[0.0; 1], &[0.0; 2]], &mut out, &mut weights)));
    assert!(length(op.forward(&[1.0; 4], [&[0.0; 2], &[0.0; 2]], &mut out[1..], &mut weights)));
    assert!(length(op.forward(&[1.0; 4], [&[0.0; 2], &[0.0; 2]], &mut out, &mut [])));
    let unfit = Attention { factors: Some(&[1.0; 2]), ..op };
    assert!(length(unfit.forward(&[1.0; 4], [&[0.0; 2], &[0.0; 2]], &mut out, &mut weights)));
    let few = HostEdges::new(vec![0, 0, 1], vec![0], 1).unwrap();
    let looped = Attention { edges: &few, self_loops: true, ..op };
    let refused = looped.forward(&[1.0; 2], [&[0.0; 1], &[0.0; 2]], &mut out, &mut [0.0; 3]);
    assert_eq!(refused, Err(KernelError::RowOutOfRange { position: 1, rows: 1 }));
    assert!(length(head_products(&[0.0; 5], &[0.0; 2], 2, &mut [0.0; 2])));
    assert!(length(head_products_backward(&[0.0; 4], &[0.0; 3], 2, &mut [0.0; 2])));
}
