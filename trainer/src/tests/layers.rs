//! Each kind of layer against its formula, written out with loops; and gradients against finite differences.

use tch::Tensor;

use super::fixture::{changed, config};
use crate::config::{ModelKind, Parallelism};
use crate::model::{LayerEdges, Model};
use crate::step::{to_rows, to_tensor};

const IN: usize = 3;
const OUT: usize = 4;
/// Frontier rows 0 to 2 with 2, 0 and 3 sampled in-edges, among 5 mixed rows.
const INDPTR: [u32; 4] = [0, 2, 2, 5];
const SOURCES: [u32; 5] = [1, 4, 0, 3, 4];
const MIXED: usize = 5;

/// A model of one layer, which has no activation and one head.
fn model(kind: ModelKind) -> Model {
    let config = changed(&config(kind, Parallelism::Single, 1), |config| {
        config.model.layers = 1;
        config.fanouts = "3".parse().unwrap();
    });
    Model::new(&config, IN, OUT)
}

fn input() -> Vec<f32> {
    (0..MIXED * IN).map(|i| ((i * 37 % 11) as f32 - 5.0) / 4.0).collect()
}

fn run(model: &Model, input: &Tensor) -> Tensor {
    let edges = LayerEdges::new(&INDPTR, &SOURCES, MIXED);
    model.layer(0, &edges, input, &[10, 11, 12], None).unwrap()
}

fn parameter(model: &Model, name: &str) -> Vec<f32> {
    let (_, tensor) = model.parameters().iter().find(|(found, _)| *found == format!("layers.0.{name}")).unwrap();
    to_rows(tensor).unwrap()
}

/// `row × matrix`, the matrix stored row after row with `OUT` columns.
fn times(row: &[f32], matrix: &[f32]) -> Vec<f32> {
    (0..OUT).map(|column| row.iter().enumerate().map(|(i, value)| value * matrix[i * OUT + column]).sum()).collect()
}

fn edges_of(target: usize) -> Vec<usize> {
    SOURCES[INDPTR[target] as usize..INDPTR[target + 1] as usize].iter().map(|&source| source as usize).collect()
}

fn row(values: &[f32], index: usize, width: usize) -> &[f32] {
    &values[index * width..(index + 1) * width]
}

fn assert_close(found: &Tensor, expected: &[f32]) {
    let found = to_rows(found).unwrap();
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?}, expected {expected:?}");
}

#[test]
fn oracle_sage_is_its_formula() {
    let model = model(ModelKind::Sage);
    let (input, own, neigh) = (input(), parameter(&model, "weight_self"), parameter(&model, "weight_neigh"));
    let mut expected = Vec::new();
    for target in 0..3 {
        let sources = edges_of(target);
        let mut mean = [0f32; IN];
        for &source in &sources {
            mean.iter_mut().zip(row(&input, source, IN)).for_each(|(sum, value)| *sum += value / sources.len() as f32);
        }
        let (a, b) = (times(row(&input, target, IN), &own), times(&mean, &neigh));
        expected.extend(a.iter().zip(&b).map(|(a, b)| a + b));
    }
    assert_close(&run(&model, &to_tensor(&input, MIXED, IN)), &expected);
}

#[test]
fn oracle_gat_is_its_formula() {
    let model = model(ModelKind::Gat);
    let (input, weight) = (input(), parameter(&model, "weight"));
    let (source_part, target_part) = (parameter(&model, "attention_source"), parameter(&model, "attention_target"));
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let z: Vec<Vec<f32>> = (0..MIXED).map(|v| times(row(&input, v, IN), &weight)).collect();
    let mut expected = Vec::new();
    for target in 0..3 {
        let sources = [vec![target], edges_of(target)].concat();
        let score = |&source: &usize| {
            let sum = dot(&z[source], &source_part) + dot(&z[target], &target_part);
            if sum > 0.0 { sum } else { 0.2 * sum }
        };
        let raised: Vec<f32> = sources.iter().map(|source| score(source).exp()).collect();
        let total: f32 = raised.iter().sum();
        let mut sum = [0f32; OUT];
        for (source, raised) in sources.iter().zip(&raised) {
            sum.iter_mut().zip(&z[*source]).for_each(|(sum, value)| *sum += raised / total * value);
        }
        expected.extend(sum);
    }
    assert_close(&run(&model, &to_tensor(&input, MIXED, IN)), &expected);
}

#[test]
fn gradients_are_the_finite_differences() {
    for kind in [ModelKind::Sage, ModelKind::Gat] {
        let model = model(kind);
        let weights: Vec<f32> = (0..3 * OUT).map(|i| (i * 5 % 7) as f32 - 3.0).collect();
        let weights = to_tensor(&weights, 3, OUT);
        let objective = |input: &Tensor| (run(&model, input) * &weights).sum(tch::Kind::Float);
        let input = input();
        let leaf = to_tensor(&input, MIXED, IN).set_requires_grad(true);
        objective(&leaf).backward();
        let gradient = to_rows(&leaf.grad()).unwrap();
        const STEP: f32 = 1e-2;
        for position in 0..input.len() {
            let at = |change: f32| {
                let mut moved = input.clone();
                moved[position] += change;
                objective(&to_tensor(&moved, MIXED, IN)).double_value(&[])
            };
            let difference = (at(STEP) - at(-STEP)) / f64::from(2.0 * STEP);
            let found = f64::from(gradient[position]);
            assert!(
                (found - difference).abs() < 2e-2 * (1.0 + difference.abs()),
                "{kind:?}, {position}: {found}, {difference}"
            );
        }
    }
}
