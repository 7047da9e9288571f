//! Edges that count several times, against edges that are there several times.

use super::*;
use crate::{DynamicGradient, DynamicRows};

const COUNTS: [f32; 4] = [2.0, 1.0, 3.0, 0.0];

/// `few` with each edge as often as it counts, by its number.
fn repeated(few: &HostEdges, count: impl Fn(usize) -> usize) -> HostEdges {
    let (mut indptr, mut sources) = (vec![0], Vec::new());
    for target in 0..few.num_targets() {
        few.of(target).for_each(|edge| sources.extend(vec![few.sources()[edge]; count(edge)]));
        indptr.push(sources.len() as u32);
    }
    HostEdges::new(indptr, sources, few.num_sources()).unwrap()
}

/// Result of static attention, and its gradients.
fn attended(op: &Attention<'_>, inputs: &[Vec<f32>; 3]) -> [Vec<f32>; 4] {
    let (out, weights) = forward(op, inputs);
    let [mut rows, mut from_source, mut from_target] = inputs.each_ref().map(|values| vec![f32::NAN; values.len()]);
    let into = AttentionGradient { rows: &mut rows, from_source: &mut from_source, from_target: &mut from_target };
    let (gradient, mut scratch) = (values(4, out.len()), vec![f32::NAN; weights.len()]);
    op.backward(&inputs[0], [&inputs[1], &inputs[2]], &weights, &gradient, &mut scratch, into).unwrap();
    [out, rows, from_source, from_target]
}

/// Result of dynamic attention, and its gradients.
fn attended_dynamically(op: &Attention<'_>, [sources, targets, vector]: &[Vec<f32>; 3]) -> [Vec<f32>; 4] {
    let rows = DynamicRows { sources, targets, vector };
    let (mut out, mut weights) = (vec![f32::NAN; targets.len()], vec![f32::NAN; op.num_weights()]);
    op.forward_dynamic(rows, &mut out, &mut weights).unwrap();
    let (mut of_sources, mut of_targets) = (vec![f32::NAN; sources.len()], vec![f32::NAN; targets.len()]);
    let (mut of_vector, mut scratch) = (vec![f32::NAN; targets.len()], vec![f32::NAN; weights.len()]);
    let into = DynamicGradient { sources: &mut of_sources, targets: &mut of_targets, vector: &mut of_vector };
    op.backward_dynamic(rows, &weights, &values(4, out.len()), &mut scratch, into).unwrap();
    [out, of_sources, of_targets, of_vector]
}

#[test]
fn oracle_an_edge_that_counts_twice_is_two_edges() {
    for (case, (targets, sources, degree, hub)) in
        [(3, 7, 2, 0), (20, 50, 4, 0), (60, 90, 5, 400)].into_iter().enumerate()
    {
        let few = edges(case as u32, targets, sources, degree, hub);
        let factors: Vec<f32> = (0..few.num_edges()).map(|edge| COUNTS[edge % COUNTS.len()]).collect();
        let many = repeated(&few, |edge| factors[edge] as usize);
        for (heads, head_dim) in [(1, 3), (3, 5)] {
            let form = (heads, head_dim, SLOPE as f32, true);
            let op = |edges, factors| {
                let (heads, head_dim, slope, self_loops) = form;
                Attention { edges, heads, head_dim, shares_rows: false, slope, self_loops, dropout: None, factors }
            };
            let (counted, plain) = (op(&few, Some(&factors[..])), op(&many, None));
            let dim = heads * head_dim;
            let inputs = [values(1, sources * dim), values(2, sources * heads), values(3, targets * heads)];
            let dynamic = [values(1, sources * dim), values(2, targets * dim), values(3, dim)];
            for (found, expected) in [
                (attended(&counted, &inputs), attended(&plain, &inputs)),
                (attended_dynamically(&counted, &dynamic), attended_dynamically(&plain, &dynamic)),
            ] {
                for (which, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let scale = expected.iter().fold(0.1f32, |most, value| most.max(value.abs()));
                    for (found, expected) in found.iter().zip(expected) {
                        assert!((found - expected).abs() <= 1e-5 * scale, "case {case}, {which}: {found}, {expected}");
                    }
                }
            }
        }
    }
}
