//! Every aggregation against loops in f64, its gradients against finite differences of those loops,
//! and against itself on other numbers of threads.

pub mod device;

use half::{bf16, f16};

use super::*;
use crate::edges::HostEdges;
use crate::error::KernelError;
use crate::gather::{DeviceRow, ScaledRow, Widen};
use crate::philox::{Draws, Stream, StreamKey};

/// Random edges: in-degrees from 0 to `degree`, and `hub` edges into target 0 and out of source 0.
pub fn edges(seed: u32, targets: usize, sources: usize, degree: u32, hub: u32) -> HostEdges {
    let mut draws = Draws::new(&StreamKey::new(1, Stream::Generate), seed);
    let (mut indptr, mut list) = (vec![0u32], Vec::new());
    for target in 0..targets {
        let count = draws.below(degree + 1) + if target == 0 { hub } else { 0 };
        list.extend((0..count).map(|_| draws.below(sources as u32)));
        list.extend(if hub > 0 { Some(0) } else { None });
        indptr.push(list.len() as u32);
    }
    HostEdges::new(indptr, list, sources).unwrap()
}

/// A type of hidden rows on a GPU.
pub trait Rounded: DeviceRow + Widen {
    fn round(value: f32) -> Self;
    /// Bits that distinguish it from all others. The bits of a NaN may differ between conversions.
    fn bits(self) -> u32;
}

macro_rules! rounded {
    ($($type:ty, $round:expr;)*) => {
        $(impl Rounded for $type {
            fn round(value: f32) -> Self {
                $round(value)
            }
            fn bits(self) -> u32 {
                if self.is_nan() { u32::MAX } else { self.to_bits().into() }
            }
        })*
    };
}

rounded! { f32, |value| value; bf16, bf16::from_f32; f16, f16::from_f32; }

pub fn rounded<T: Rounded>(values: &[f32]) -> Vec<T> {
    values.iter().map(|&value| T::round(value)).collect()
}

pub fn widened<T: Rounded>(values: &[T]) -> Vec<f32> {
    values.iter().map(|&value| value.widen()).collect()
}

pub fn bits<T: Rounded>(values: &[T]) -> Vec<u32> {
    values.iter().map(|&value| value.bits()).collect()
}

pub fn values(seed: u32, len: usize) -> Vec<f32> {
    let mut draws = Draws::new(&StreamKey::new(2, Stream::Generate), seed);
    (0..len).map(|_| draws.unit_f32() - 0.5).collect()
}

pub fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// Asserts equality up to rounding, relative to the largest value.
pub fn assert_close(found: &[f32], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1e-3, |largest: f64, value| largest.max(value.abs()));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            (f64::from(*found) - expected).abs() <= 1e-5 * scale,
            "{what}, {i}: {found}, expected {expected}"
        );
    }
}

/// Runs `body` on 1, 2, 4 and 8 threads and returns the result, which must be the same.
pub fn on_any_threads<T: PartialEq + std::fmt::Debug + Send>(body: impl Fn() -> T + Sync) -> T {
    let mut results = [1, 2, 4, 8].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        Some(pool.install(&body))
    });
    for other in &results[1..] {
        assert_eq!(results[0], *other, "the thread count changes the result");
    }
    results[0].take().unwrap()
}

/// The shapes that operators are tested on: edges and width.
pub fn cases() -> Vec<(String, HostEdges, usize)> {
    let mut cases = Vec::new();
    for (targets, sources, degree, hub) in [
        (1, 1, 0, 0),
        (3, 7, 0, 0),
        (40, 90, 6, 0),
        (40, 40, 2, 0),
        (300, 900, 9, 4000),
        (1, 2, 0, 5),
    ] {
        for dim in [1, 5, 16, 33, 256] {
            let seed = cases.len() as u32;
            let name = format!("{targets} targets, {sources} sources, hub {hub}, width {dim}");
            cases.push((name, edges(seed, targets, sources, degree, hub), dim));
        }
    }
    cases.push(("no targets".into(), HostEdges::new(vec![0], vec![], 3).unwrap(), 4));
    cases.push(("no rows".into(), HostEdges::new(vec![0], vec![], 0).unwrap(), 4));
    cases.push(("no columns".into(), edges(9, 3, 5, 3, 0), 0));
    cases
}

fn kinds() -> Vec<(Reduce, bool, bool)> {
    let both = [false, true];
    let pairs = [Reduce::Sum, Reduce::Mean]
        .into_iter()
        .flat_map(|reduce| both.map(|weighted| (reduce, weighted)));
    pairs.flat_map(|(reduce, weighted)| both.map(|own| (reduce, weighted, own))).collect()
}

/// The aggregation by its definition.
fn naive(op: &Aggregation<'_>, rows: &[f64], weights: Option<&[f64]>, dim: usize) -> Vec<f64> {
    let mut out = Vec::new();
    for target in 0..op.edges.num_targets() {
        if op.concat_self {
            out.extend_from_slice(&rows[target * dim..][..dim]);
        }
        let count = op.edges.of(target).len().max(1) as f64;
        out.extend((0..dim).map(|column| {
            let term = |edge: usize| {
                let weight = weights.map_or(1.0, |weights| weights[edge]);
                weight * rows[op.edges.sources()[edge] as usize * dim + column]
            };
            let sum: f64 = op.edges.of(target).map(term).sum();
            if op.reduce == Reduce::Mean { sum / count } else { sum }
        }));
    }
    out
}

fn for_each_case(body: impl Fn(&str, &Aggregation<'_>, &[f32], usize)) {
    for (name, edges, dim) in cases() {
        let (rows, weights) = (values(1, edges.num_sources() * dim), values(2, edges.num_edges()));
        for (reduce, weighted, concat_self) in kinds() {
            if concat_self && edges.num_targets() > edges.num_sources() {
                continue;
            }
            let weights = weighted.then_some(&weights[..]);
            let op = Aggregation { edges: &edges, reduce, weights, concat_self };
            body(
                &format!("{name}, {reduce:?}, weighted {weighted}, beside own {concat_self}"),
                &op,
                &rows,
                dim,
            );
        }
    }
}

fn forward(op: &Aggregation<'_>, rows: &[f32], dim: usize) -> Vec<f32> {
    on_any_threads(|| {
        let mut out = vec![f32::NAN; op.edges.num_targets() * op.out_dim(dim)];
        op.forward(|source| &rows[source as usize * dim..][..dim], dim, &mut out).unwrap();
        out
    })
}

#[test]
fn oracle_forward_is_the_definition_on_any_threads() {
    for_each_case(|name, op, rows, dim| {
        let expected = naive(op, &wide(rows), op.weights.map(wide).as_deref(), dim);
        assert_close(&forward(op, rows, dim), &expected, name);
    });
}

/// Linear in rows and in weights, so a difference of any size is exact except for rounding.
#[test]
fn oracle_gradients_are_the_finite_differences_of_the_definition() {
    for_each_case(|name, op, rows, dim| {
        let gradient = values(3, op.edges.num_targets() * op.out_dim(dim));
        let objective = |rows: &[f64], weights: Option<&[f64]>| -> f64 {
            naive(op, rows, weights, dim)
                .iter()
                .zip(&gradient)
                .map(|(out, g)| out * f64::from(*g))
                .sum()
        };
        let found = on_any_threads(|| {
            let mut out = vec![f32::NAN; rows.len()];
            op.backward(&gradient, dim, &mut out).unwrap();
            out
        });
        let (rows64, weights64) = (wide(rows), op.weights.map(wide));
        // All differences of the small cases, some of the large ones.
        let every = (rows.len() * op.edges.num_edges() / 4000).max(1);
        let (mut some, mut expected) = (Vec::new(), Vec::new());
        for at in (0..rows.len()).step_by(every) {
            let moved = |by: f64| {
                let mut rows = rows64.clone();
                rows[at] += by;
                objective(&rows, weights64.as_deref())
            };
            some.push(found[at]);
            expected.push((moved(1.0) - moved(-1.0)) / 2.0);
        }
        assert_close(&some, &expected, name);

        let Some(weights64) = weights64 else { return };
        let found = on_any_threads(|| {
            let mut out = vec![f32::NAN; op.edges.num_edges()];
            op.weights_backward(rows, &gradient, dim, &mut out).unwrap();
            out
        });
        let every = (found.len() / 20).max(1);
        let (mut some, mut expected) = (Vec::new(), Vec::new());
        for at in (0..found.len()).step_by(every) {
            let moved = |by: f64| {
                let mut weights = weights64.clone();
                weights[at] += by;
                objective(&rows64, Some(&weights))
            };
            some.push(found[at]);
            expected.push((moved(1.0) - moved(-1.0)) / 2.0);
        }
        assert_close(&some, &expected, name);
    });
}

#[test]
fn oracle_maxima_and_their_gradients() {
    for (name, edges, dim) in cases() {
        let rows = values(1, edges.num_sources() * dim);
        let (out, picked) = on_any_threads(|| {
            let mut out = vec![f32::NAN; edges.num_targets() * dim];
            let mut picked = vec![7; out.len()];
            aggregate_max(&edges, &rows, dim, &mut out, &mut picked).unwrap();
            (out, picked)
        });
        let gradient = values(3, out.len());
        let mut expected = vec![0f64; rows.len()];
        for target in 0..edges.num_targets() {
            for column in 0..dim {
                let value = |edge: usize| rows[edges.sources()[edge] as usize * dim + column];
                let mut best: Option<usize> = None;
                for edge in edges.of(target) {
                    best = best.filter(|&best| value(best) >= value(edge)).or(Some(edge));
                }
                let at = target * dim + column;
                assert_eq!(out[at], best.map_or(0.0, value), "{name}");
                assert_eq!(picked[at], best.map_or(u32::MAX, |edge| edge as u32), "{name}");
                if let Some(edge) = best {
                    expected[edges.sources()[edge] as usize * dim + column] +=
                        f64::from(gradient[at]);
                }
            }
        }
        let found = on_any_threads(|| {
            let mut out = vec![f32::NAN; rows.len()];
            aggregate_max_backward(&edges, &picked, &gradient, dim, &mut out).unwrap();
            out
        });
        assert_close(&found, &expected, &name);
    }
}

#[test]
fn the_first_of_equals_and_any_nan_is_the_maximum() {
    let edges = HostEdges::new(vec![0, 3, 6, 7], vec![0, 1, 1, 1, 2, 0, 2], 3).unwrap();
    let (mut out, mut picked) = ([0.0; 3], [0; 3]);
    aggregate_max(&edges, &[4.0, 4.0, f32::NAN], 1, &mut out, &mut picked).unwrap();
    assert_eq!((out[0], picked), (4.0, [0, 4, 6]));
    assert!(out[1].is_nan() && out[2].is_nan());
    aggregate_max(&edges, &[f32::NEG_INFINITY; 3], 1, &mut out, &mut picked).unwrap();
    assert_eq!((out, picked), ([f32::NEG_INFINITY; 3], [0, 3, 6]));
}

#[test]
fn stored_rows_are_aggregated_where_they_lie() {
    let (edges, dim) = (edges(4, 30, 50, 6, 0), 19);
    let op = Aggregation { edges: &edges, reduce: Reduce::Mean, weights: None, concat_self: true };
    let numbers: Vec<f32> =
        values(5, 200 * dim).iter().map(|value| (value * 250.0).round()).collect();
    // Row s of the layer is vertex 3s + 1 of the table.
    let at = |source: u32| (3 * source as usize + 1) * dim;
    let rows: Vec<f64> = (0..50).flat_map(|s| wide(&numbers[at(s)..][..dim])).collect();
    let expected = naive(&op, &rows, None, dim);
    let (halves, brains): (Vec<f16>, Vec<bf16>) =
        numbers.iter().map(|&number| (f16::from_f32(number), bf16::from_f32(number))).unzip();
    let bytes: Vec<i8> = numbers.iter().map(|&number| number as i8).collect();
    let mut out = vec![f32::NAN; 30 * 2 * dim];
    let check = |out: &mut Vec<f32>, what: &str| {
        assert_close(out, &expected, what);
        out.fill(f32::NAN);
    };
    op.forward(|s| &numbers[at(s)..][..dim], dim, &mut out).unwrap();
    check(&mut out, "f32");
    op.forward(|s| &halves[at(s)..][..dim], dim, &mut out).unwrap();
    check(&mut out, "f16");
    op.forward(|s| &brains[at(s)..][..dim], dim, &mut out).unwrap();
    check(&mut out, "bf16");
    op.forward(|s| ScaledRow { scale: 1.0, values: &bytes[at(s)..][..dim] }, dim, &mut out)
        .unwrap();
    check(&mut out, "int8");
}

#[test]
fn wrong_sizes_are_refused() {
    let edges = HostEdges::new(vec![0, 1, 2], vec![0, 0], 1).unwrap();
    let op = Aggregation { edges: &edges, reduce: Reduce::Sum, weights: None, concat_self: false };
    let length =
        |result: Result<(), KernelError>| matches!(result, Err(KernelError::Length { .. }));
    let row = |_| &[1.0f32, 2.0][..];
    assert!(length(op.forward(row, 2, &mut [0.0; 3])));
    assert!(length(op.backward(&[0.0; 3], 2, &mut [0.0; 2])));
    assert!(length(op.backward(&[0.0; 4], 2, &mut [0.0; 3])));
    assert!(length(op.weights_backward(&[0.0; 2], &[0.0; 4], 2, &mut [0.0; 3])));
    let weighted = Aggregation { weights: Some(&[1.0]), ..op };
    assert!(length(weighted.forward(row, 2, &mut [0.0; 4])));
    let own = Aggregation { concat_self: true, ..op };
    let beyond = Err(KernelError::RowOutOfRange { position: 1, rows: 1 });
    assert_eq!(own.forward(row, 2, &mut [0.0; 8]), beyond);
    assert!(length(aggregate_max(&edges, &[0.0; 2], 2, &mut [0.0; 4], &mut [0; 3])));
    assert!(length(aggregate_max_backward(&edges, &[0; 4], &[0.0; 3], 2, &mut [0.0; 2])));
}
