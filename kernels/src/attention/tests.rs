//! Attention of both forms against its formula in f64, gradients against finite differences of the
//! formula, and any number of threads.

mod counts;
mod device;
mod dropout;

use super::*;
use crate::edges::HostEdges;
use crate::error::KernelError;
use crate::philox::{Stream, StreamKey};
use crate::spmm::tests::{assert_close, edges, on_any_threads, values, wide};

const SLOPE: f64 = 0.2;

const KEY: StreamKey =
    StreamKey { seed: 5, epoch: 2, step: 1, stream: Stream::Attention, layer: 1 };

/// A vertex for each of `targets` targets.
fn vertices(targets: usize) -> Vec<u32> {
    (0..targets as u32).map(|target| 3 + 17 * target).collect()
}

/// Attention without self-loops, dropout and factors.
fn plain(edges: &HostEdges, heads: usize, head_dim: usize) -> Attention<'_> {
    let (slope, dropout, factors) = (SLOPE as f32, None, None);
    Attention {
        edges,
        heads,
        head_dim,
        shares_rows: false,
        slope,
        self_loops: false,
        dropout,
        factors,
        relations: None,
    }
}

/// A form of attention, by its two inputs other than the rows of the sources.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// The sources' and the targets' part of the scores.
    Static,
    /// Rows of the targets, and the vector.
    Dynamic,
}

use Form::{Dynamic, Static};

impl Form {
    fn inputs(self, op: &Attention<'_>) -> [Vec<f32>; 3] {
        let (sources, targets) = (op.edges.num_sources(), op.edges.num_targets());
        let times = |by: f32, seed, len| values(seed, len).iter().map(|value| by * value).collect();
        let rows = values(1, sources * op.row_dim());
        match self {
            Static => {
                let of_source = op.num_relations() * op.heads;
                [rows, times(6.0, 2, sources * of_source), times(6.0, 3, targets * op.heads)]
            }
            Dynamic => [rows, values(2, targets * op.dim()), times(4.0, 3, op.dim())],
        }
    }

    /// The formula.
    fn naive(self, op: &Attention<'_>, [rows, second, third]: [&[f64]; 3]) -> Vec<f64> {
        let (heads, dim) = (op.heads, op.dim());
        let leaky = |sum: f64| if sum > 0.0 { sum } else { SLOPE * sum };
        let score = |target: usize, source: usize, head: usize| match self {
            Static => {
                let of_source = source * op.num_relations() + op.relation(target);
                leaky(second[of_source * heads + head] + third[target * heads + head])
            }
            Dynamic => (head * op.head_dim..(head + 1) * op.head_dim)
                .map(|column| {
                    third[column]
                        * leaky(rows[source * dim + column] + second[target * dim + column])
                })
                .sum(),
        };
        let mut out = vec![0.0; op.edges.num_targets() * dim];
        for target in 0..op.edges.num_targets() {
            let own = op.self_loops.then_some(target);
            let sources: Vec<usize> = own
                .into_iter()
                .chain(op.edges.of(target).map(|edge| op.edges.sources()[edge] as usize))
                .collect();
            let mut factors = vec![1.0; sources.len() * heads];
            if let Some((vertices, rate, key)) = op.dropout {
                crate::dropout_mask(
                    &vertices[target..][..1],
                    factors.len(),
                    rate,
                    &key,
                    &mut factors,
                )
                .unwrap();
            }
            for head in 0..heads {
                let raised: Vec<f64> =
                    sources.iter().map(|&source| score(target, source, head).exp()).collect();
                let total: f64 = raised.iter().sum();
                for (edge, (&source, raised)) in sources.iter().zip(&raised).enumerate() {
                    let weight = raised / total * f64::from(factors[edge * heads + head]);
                    for column in head * op.head_dim..(head + 1) * op.head_dim {
                        let of_row = if op.shares_rows { column % op.head_dim } else { column };
                        out[target * dim + column] += weight * rows[source * op.row_dim() + of_row];
                    }
                }
            }
        }
        out
    }

    /// The result, and the weights.
    fn forward(self, op: &Attention<'_>, inputs: &[Vec<f32>; 3]) -> (Vec<f32>, Vec<f32>) {
        let mut out = vec![f32::NAN; op.edges.num_targets() * op.dim()];
        let mut weights = vec![f32::NAN; op.num_weights()];
        let [rows, second, third] = inputs.each_ref().map(|values| &values[..]);
        match self {
            Static => op.forward(rows, [second, third], &mut out, &mut weights),
            Dynamic => op.forward_dynamic(dynamic([rows, second, third]), &mut out, &mut weights),
        }
        .unwrap();
        (out, weights)
    }

    /// The gradients of the inputs; for the vector, each target's part of it.
    fn backward(
        self,
        op: &Attention<'_>,
        inputs: &[Vec<f32>; 3],
        weights: &[f32],
        gradient: &[f32],
    ) -> [Vec<f32>; 3] {
        let [rows, second, third] = inputs.each_ref().map(|values| &values[..]);
        let of_third = if self == Dynamic { gradient.len() } else { third.len() };
        let mut found = [rows.len(), second.len(), of_third].map(|len| vec![f32::NAN; len]);
        let (mut scratch, [a, b, c]) = (vec![f32::NAN; weights.len()], &mut found);
        match self {
            Static => {
                let into = AttentionGradient { rows: a, from_source: b, from_target: c };
                op.backward(rows, [second, third], weights, gradient, &mut scratch, into)
            }
            Dynamic => {
                let into = DynamicGradient { sources: a, targets: b, vector: c };
                op.backward_dynamic(
                    dynamic([rows, second, third]),
                    weights,
                    gradient,
                    &mut scratch,
                    into,
                )
            }
        }
        .unwrap();
        found
    }
}

fn dynamic([sources, targets, vector]: [&[f32]; 3]) -> DynamicRows<'_> {
    DynamicRows { sources, targets, vector }
}

fn for_each_case(rows_are_shared: &[bool], mut body: impl FnMut(&str, &Attention<'_>)) {
    let shapes = [(1, 1, 0, 0), (3, 7, 0, 0), (20, 50, 4, 0), (60, 90, 5, 1000)];
    for (case, (targets, sources, degree, hub)) in shapes.into_iter().enumerate() {
        let (edges, vertices) =
            (edges(case as u32, targets, sources, degree, hub), vertices(targets));
        let of_targets: Vec<u32> = (0..targets as u32).map(|target| target % 3).collect();
        for (heads, head_dim) in [(1, 1), (1, 40), (3, 5), (4, 16)] {
            for (self_loops, rate) in
                [(false, [None, Some(0.3)][case % 2]), (true, None), (true, Some(0.6))]
            {
                let dropout = rate.map(|rate| (&vertices[..], rate, KEY));
                for &shares_rows in rows_are_shared {
                    // The rows of vertices of several types share rows, and have no self-loops.
                    let relations = (shares_rows && !self_loops).then_some((&of_targets[..], 3));
                    let heads_of =
                        format!("{heads} heads of {head_dim}, shared rows {shares_rows}");
                    let name = format!(
                        "case {case}, {heads_of}, self-loops {self_loops}, dropout {rate:?}"
                    );
                    body(
                        &name,
                        &Attention {
                            shares_rows,
                            self_loops,
                            dropout,
                            relations,
                            ..plain(&edges, heads, head_dim)
                        },
                    );
                }
            }
        }
    }
}

/// Runs every case of both forms; heads share rows only in static attention.
fn for_each_form(body: impl Fn(Form, &str, &Attention<'_>)) {
    for_each_case(&[false, true], |name, op| body(Static, name, op));
    for_each_case(&[false], |name, op| body(Dynamic, &format!("dynamic, {name}"), op));
}

#[test]
fn oracle_forward_is_the_formula() {
    for_each_form(|form, name, op| {
        let inputs = form.inputs(op);
        let (out, _) = on_any_threads(|| form.forward(op, &inputs));
        let wide = inputs.each_ref().map(|values| wide(values));
        assert_close(&out, &form.naive(op, wide.each_ref().map(|values| &values[..])), name);
    });
}

/// Compares with finite differences at some values of each input.
#[test]
fn oracle_gradients_are_the_finite_differences_of_the_formula() {
    const STEP: f64 = 1e-6;
    for_each_form(|form, name, op| {
        let inputs = form.inputs(op);
        let (out, weights) = form.forward(op, &inputs);
        let gradient = values(4, out.len());
        let found = on_any_threads(|| {
            let mut found = form.backward(op, &inputs, &weights, &gradient);
            if form == Dynamic {
                let parts = std::mem::replace(&mut found[2], vec![f32::NAN; op.dim()]);
                crate::column_sums(&parts, &mut found[2]).unwrap();
            }
            found
        });
        // In dynamic attention a target of one edge has the weight 1, and gradients are sums that
        // cancel.
        let (count, least) = if form == Static { (25, 1e-3) } else { (7, 0.1) };
        let inputs = inputs.each_ref().map(|values| wide(values));
        for (which, found) in found.iter().enumerate() {
            let moved = |at: usize, by: f64| -> f64 {
                let mut inputs = inputs.clone();
                inputs[which][at] += by;
                let out = form.naive(op, inputs.each_ref().map(|values| &values[..]));
                out.iter().zip(&gradient).map(|(out, g)| out * f64::from(*g)).sum()
            };
            let places: Vec<usize> =
                (0..found.len()).step_by((found.len() / count).max(1)).collect();
            let slopes: Vec<f64> = places
                .iter()
                .map(|&at| (moved(at, STEP) - moved(at, -STEP)) / (2.0 * STEP))
                .collect();
            let scale = slopes.iter().fold(least, |largest: f64, slope| largest.max(slope.abs()));
            for (at, slope) in places.into_iter().zip(slopes) {
                let off = (f64::from(found[at]) - slope).abs();
                assert!(
                    off <= 1e-5 * scale,
                    "{name}, input {which}: {}, expected {slope}",
                    found[at]
                );
            }
        }
    });
}

#[test]
fn oracle_products_of_heads() {
    let shapes = [(0, 2, 3), (1, 1, 1), (700, 3, 17), (257, 4, 32)];
    for ((rows, heads, head_dim), shared) in
        shapes.into_iter().flat_map(|shape| [(shape, false), (shape, true)])
    {
        let width = if shared { head_dim } else { heads * head_dim };
        let (matrix, vector) = (values(1, rows * width), values(2, heads * head_dim));
        let gradient = values(3, rows * heads);
        let (found, of_vector) = on_any_threads(|| {
            let (mut out, mut of_vector) =
                (vec![f32::NAN; rows * heads], vec![f32::NAN; vector.len()]);
            head_products(&matrix, &vector, head_dim, &mut out).unwrap();
            head_products_backward(&matrix, &gradient, head_dim, &mut of_vector).unwrap();
            (out, of_vector)
        });
        let (mut products, mut sums) = (vec![0f64; rows * heads], vec![0f64; vector.len()]);
        for (row, column) in
            (0..rows).flat_map(|row| (0..vector.len()).map(move |column| (row, column)))
        {
            let (value, place) =
                (f64::from(matrix[row * width + column % width]), row * heads + column / head_dim);
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
    let few = HostEdges::new(vec![0, 0, 1], vec![0], 1).unwrap();
    let op = plain(&edges, 1, 2);
    let length =
        |result: Result<(), KernelError>| matches!(result, Err(KernelError::Length { .. }));
    let rows: &[f32] = &[1.0, 2.0, 3.0, 4.0];
    for (form, inputs) in
        [(Static, [rows, &[0.0; 2], &[0.0; 2]]), (Dynamic, [rows, &[0.0; 4], &[1.0; 2]])]
    {
        let run = |op: Attention<'_>, inputs: [&[f32]; 3], out: &mut [f32], weights: &mut [f32]| {
            match form {
                Static => op.forward(inputs[0], [inputs[1], inputs[2]], out, weights),
                Dynamic => op.forward_dynamic(dynamic(inputs), out, weights),
            }
        };
        let (mut out, mut weights) = ([f32::NAN; 4], [f32::NAN; 1]);
        run(op, inputs, &mut out, &mut weights).unwrap();
        assert_eq!((out, weights), ([0.0, 0.0, 1.0, 2.0], [1.0]));
        for which in 0..3 {
            let mut short = inputs;
            short[which] = &inputs[which][1..];
            assert!(length(run(op, short, &mut out, &mut weights)), "{form:?}, input {which}");
        }
        assert!(length(run(op, inputs, &mut out[1..], &mut weights)));
        assert!(length(run(op, inputs, &mut out, &mut [])));
        assert!(length(run(
            Attention { factors: Some(&[1.0; 2]), ..op },
            inputs,
            &mut out,
            &mut weights
        )));
        let looped = Attention { edges: &few, self_loops: true, ..op };
        let of_few =
            [&rows[..2], if form == Static { &inputs[1][..1] } else { inputs[1] }, inputs[2]];
        let refused = run(looped, of_few, &mut out, &mut [0.0; 3]);
        assert_eq!(refused, Err(KernelError::RowOutOfRange { position: 1, rows: 1 }));
    }
    assert!(length(head_products(&[0.0; 5], &[0.0; 2], 2, &mut [0.0; 2])));
    assert!(length(head_products_backward(&[0.0; 4], &[0.0; 3], 2, &mut [0.0; 2])));
}
