//! The same for dynamic attention.

use super::{KEY, SLOPE, factors, slopes, vertices};
use crate::edges::HostEdges;
use crate::error::KernelError;
use crate::spmm::tests::{assert_close, edges, on_any_threads, values, wide};
use crate::{Attention, DynamicGradient, DynamicRows};

/// The formula; inputs: rows of the sources, rows of the targets, vector.
fn naive(op: &Attention<'_>, [sources, targets, vector]: [&[f64]; 3]) -> Vec<f64> {
    let (head_dim, dim) = (op.head_dim, op.dim());
    let mut out = vec![0.0; op.edges.num_targets() * dim];
    for target in 0..op.edges.num_targets() {
        let own = op.self_loops.then_some(target);
        let of: Vec<usize> =
            own.into_iter().chain(op.edges.of(target).map(|edge| op.edges.sources()[edge] as usize)).collect();
        let factors = factors(op, target, of.len());
        for head in 0..op.heads {
            let columns = head * head_dim..(head + 1) * head_dim;
            let raised = |source: usize| {
                let term = |column: usize| {
                    let sum = sources[source * dim + column] + targets[target * dim + column];
                    vector[column] * if sum > 0.0 { sum } else { SLOPE * sum }
                };
                columns.clone().map(term).sum::<f64>().exp()
            };
            let raised: Vec<f64> = of.iter().map(|&source| raised(source)).collect();
            let total: f64 = raised.iter().sum();
            for (edge, (source, raised)) in of.iter().zip(&raised).enumerate() {
                let weight = raised / total * factors[edge * op.heads + head];
                for column in columns.clone() {
                    out[target * dim + column] += weight * sources[source * dim + column];
                }
            }
        }
    }
    out
}

fn for_each_case(body: impl Fn(&str, &Attention<'_>, [Vec<f32>; 3])) {
    let shapes = [(1, 1, 0, 0), (3, 7, 0, 0), (20, 50, 4, 0), (60, 90, 5, 80)];
    for (case, (targets, sources, degree, hub)) in shapes.into_iter().enumerate() {
        let (edges, vertices) = (edges(case as u32, targets, sources, degree, hub), vertices(targets));
        for (heads, head_dim) in [(1, 1), (1, 40), (3, 5), (4, 16)] {
            for (self_loops, rate) in [(false, [None, Some(0.6)][case % 2]), (true, None), (true, Some(0.3))] {
                let dropout = rate.map(|rate| (&vertices[..], rate, KEY));
                let op = Attention {
                    edges: &edges,
                    heads,
                    head_dim,
                    slope: SLOPE as f32,
                    self_loops,
                    dropout,
                    factors: None,
                    shares_rows: false,
                };
                let dim = heads * head_dim;
                let vector = values(3, dim).iter().map(|value| 4.0 * value).collect();
                let inputs = [values(1, sources * dim), values(2, targets * dim), vector];
                let name =
                    format!("case {case}, {heads} heads of {head_dim}, self-loops {self_loops}, dropout {rate:?}");
                body(&name, &op, inputs);
            }
        }
    }
}

fn rows([sources, targets, vector]: &[Vec<f32>; 3]) -> DynamicRows<'_> {
    DynamicRows { sources, targets, vector }
}

fn forward(op: &Attention<'_>, inputs: &[Vec<f32>; 3]) -> (Vec<f32>, Vec<f32>) {
    let mut out = vec![f32::NAN; op.edges.num_targets() * op.dim()];
    let mut weights = vec![f32::NAN; op.num_weights()];
    op.forward_dynamic(rows(inputs), &mut out, &mut weights).unwrap();
    (out, weights)
}

#[test]
fn oracle_forward_is_the_formula() {
    for_each_case(|name, op, inputs| {
        let (out, _) = on_any_threads(|| forward(op, &inputs));
        let wide = inputs.each_ref().map(|values| wide(values));
        assert_close(&out, &naive(op, wide.each_ref().map(|values| &values[..])), name);
    });
}

#[test]
fn oracle_gradients_are_the_finite_differences_of_the_formula() {
    for_each_case(|name, op, inputs| {
        let (out, weights) = forward(op, &inputs);
        let gradient = values(4, out.len());
        let found = on_any_threads(|| {
            let (mut of_sources, mut of_targets) = (vec![f32::NAN; inputs[0].len()], vec![f32::NAN; out.len()]);
            let (mut of_vector, mut scratch) = (vec![f32::NAN; out.len()], vec![f32::NAN; weights.len()]);
            let into = DynamicGradient { sources: &mut of_sources, targets: &mut of_targets, vector: &mut of_vector };
            op.backward_dynamic(rows(&inputs), &weights, &gradient, &mut scratch, into).unwrap();
            let mut vector = vec![f32::NAN; op.dim()];
            crate::column_sums(&of_vector, &mut vector).unwrap();
            [of_sources, of_targets, vector]
        });
        let inputs = inputs.each_ref().map(|values| wide(values));
        for (which, found) in found.iter().enumerate() {
            let slopes = slopes(|inputs| naive(op, inputs), &inputs, which, &gradient, 7, 1e-6);
            // Where a target has one edge its weight is 1, and gradients are sums that cancel.
            let scale = slopes.iter().fold(0.1, |largest: f64, (_, slope)| largest.max(slope.abs()));
            for (at, slope) in slopes {
                let off = (f64::from(found[at]) - slope).abs();
                assert!(off <= 1e-5 * scale, "{name}, input {which}: {}, expected {slope}", found[at]);
            }
        }
    });
}

#[test]
fn wrong_sizes_are_refused() {
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
    let length = |result: Result<(), KernelError>| matches!(result, Err(KernelError::Length { .. }));
    let (mut out, mut weights) = ([f32::NAN; 4], [f32::NAN; 1]);
    let good = DynamicRows { sources: &[1.0, 2.0, 3.0, 4.0], targets: &[0.0; 4], vector: &[1.0; 2] };
    op.forward_dynamic(good, &mut out, &mut weights).unwrap();
    assert_eq!((out, weights), ([0.0, 0.0, 1.0, 2.0], [1.0]));
    for bad in [
        DynamicRows { sources: &[0.0; 3], ..good },
        DynamicRows { targets: &[0.0; 2], ..good },
        DynamicRows { vector: &[0.0; 1], ..good },
    ] {
        assert!(length(op.forward_dynamic(bad, &mut out, &mut weights)));
    }
    assert!(length(op.forward_dynamic(good, &mut out[1..], &mut weights)));
    assert!(length(op.forward_dynamic(good, &mut out, &mut [])));
    assert!(length(Attention { factors: Some(&[1.0; 2]), ..op }.forward_dynamic(good, &mut out, &mut weights)));
    let few = HostEdges::new(vec![0, 0, 1], vec![0], 1).unwrap();
    let looped = Attention { edges: &few, self_loops: true, ..op };
    let refused = looped.forward_dynamic(DynamicRows { sources: &[0.0; 2], ..good }, &mut out, &mut [0.0; 3]);
    assert_eq!(refused, Err(KernelError::RowOutOfRange { position: 1, rows: 1 }));
}
