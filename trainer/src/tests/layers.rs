//! Each kind of layer over sampled edges, with weights of edges and without, against its formula in
//! f64, values and all gradients.

use gsplit_kernels::schedule::Step;
use gsplit_kernels::{Draws, Graph, SampledCsc, Stream, StreamKey};
use tch::{Kind, Tensor};

use super::fixture::{changed, config};
use super::gradients::{InEdges, Reference, wide_parameters};
use crate::config::{ModelKind, Parallelism};
use crate::model::{LayerEdges, Model};
use crate::operator::Place;

const IN: usize = 3;
const OUT: usize = 4;
/// Frontier rows 0 to 2 with 2, 0 and 3 sampled in-edges, among 5 mixed rows.
const INDPTR: [u32; 4] = [0, 2, 2, 5];
const SOURCES: [u32; 5] = [1, 4, 0, 3, 4];
const VERTICES: [u32; 5] = [2, 0, 4, 1, 3];
/// In-degrees 4, 2, 3, 0, 5 of the graph's vertices, and of the mixed rows.
const GRAPH: [u64; 6] = [0, 4, 6, 9, 9, 14];
const DEGREES: [f64; 5] = [3.0, 4.0, 5.0, 2.0, 0.0];
/// Factors of the sampled edges, and the weighted degrees of the vertices.
const FACTORS: [f32; 5] = [0.5, 2.0, 1.5, 0.0, 3.0];
const WEIGHTED: [f32; 5] = [6.0, 3.0, 1.5, 0.25, 2.5];

fn random(seed: u32, rows: usize, columns: usize) -> Tensor {
    let mut draws = Draws::new(&StreamKey::new(5, Stream::Generate), seed);
    let values: Vec<f32> = (0..rows * columns).map(|_| draws.unit_f32() * 2.0 - 1.0).collect();
    Tensor::from_slice(&values).view([rows as i64, columns as i64])
}

fn assert_close(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.size(), expected.size(), "{what}");
    let off = (found.to_kind(Kind::Double) - expected).abs().max().double_value(&[]);
    let scale = expected.abs().max().double_value(&[]).max(1e-2);
    assert!(off <= 1e-5 * scale, "{what}: off by {off} of {scale}");
}

/// The edges, with [`FACTORS`] or without: for a layer, and for its formula.
fn edges(weighted: bool) -> (LayerEdges<'static>, InEdges) {
    let (mut graph, mut sampled) = (Graph::new(&GRAPH, &[0; 14]).unwrap(), SampledCsc::default());
    if weighted {
        graph = graph.with_factors(&[1.0; 14], &WEIGHTED).unwrap();
        sampled.factors = FACTORS.to_vec();
    }
    (sampled.indptr, sampled.local) = (INDPTR.to_vec(), SOURCES.to_vec());
    let edge = |edge: usize| {
        (SOURCES[edge] as usize, if weighted { f64::from(FACTORS[edge]) } else { 1.0 })
    };
    let list = |ends: &[u32]| (ends[0] as usize..ends[1] as usize).map(edge).collect();
    let weight = |row: usize| {
        if weighted { f64::from(WEIGHTED[VERTICES[row] as usize]) } else { DEGREES[row] }
    };
    let formula = InEdges {
        lists: INDPTR.windows(2).map(list).collect(),
        in_graph: DEGREES.to_vec(),
        degrees: (0..5).map(|row| weight(row) + 1.0).collect(),
    };
    (LayerEdges::new(&Place::host(), graph, sampled, &VERTICES).unwrap(), formula)
}

#[test]
fn oracle_every_kind_is_its_formula() {
    for (&kind, weighted) in ModelKind::ALL.iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let what = format!("{kind:?}, weighted {weighted}");
        let config = changed(&config(kind, Parallelism::Single, 1), |config| {
            (config.model.layers, config.model.dropout, config.model.attention_dropout) =
                (1, 0.0, 0.0);
        });
        let model = Model::new(&config, IN, OUT);
        // Biases and some other parameters do not start from random values.
        for (seed, (_, tensor)) in (100..).zip(model.parameters().iter()) {
            let _ = tch::no_grad(|| {
                tensor.shallow_clone().g_add_(&random(seed, 1, tensor.numel()).view_as(tensor))
            });
        }
        let (rows, frontier, (edges, formula)) =
            (random(1, 5, IN), &VERTICES[..3], edges(weighted));
        let leaf = rows.copy().set_requires_grad(true);
        let body = model.body(0, &edges, &leaf, None, frontier, None);
        if weighted && kind == ModelKind::SagePool {
            assert!(
                body.unwrap_err()
                    .to_string()
                    .contains("a maximum over neighbours cannot use edge factors")
            );
            continue;
        }
        let body = body.unwrap();
        let out = if model.has_tail(0) {
            model.tail(0, &body, None, frontier, None).unwrap()
        } else {
            body
        };
        let found = model.logits(&[&out]).unwrap();
        let reference = Reference {
            config: &config.model,
            step: Step { seed: 0, epoch: 1, step: 0 },
            parameters: wide_parameters(&model),
            edges: formula,
            rows: rows.to_kind(Kind::Double).set_requires_grad(true),
        };
        let expected = reference.logits();
        assert_close(&found.detach(), &expected.detach(), &what);
        let upstream = random(2, 3, OUT);
        (&found * &upstream).sum(Kind::Float).backward();
        (&expected * &upstream).sum(Kind::Double).backward();
        assert_close(
            &leaf.grad(),
            &reference.rows.grad(),
            &format!("{what}, gradient of the rows"),
        );
        for (name, tensor) in model.parameters().iter() {
            let expected = reference.parameters[name].grad();
            assert!(
                tensor.grad().defined() && expected.defined(),
                "{what}: {name} has no gradient"
            );
            assert_close(&tensor.grad(), &expected, &format!("{what}, gradient of {name}"));
        }
    }
}
