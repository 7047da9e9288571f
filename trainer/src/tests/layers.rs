//! Each kind of layer, with weights of edges and without, and what surrounds it, against its formula in f64 written with torch's own
//! operators, values and all gradients; and graph convolution against the dense formula.

use std::collections::BTreeMap;

use gsplit_kernels::{Draw, Draws, EdgeIds, Fanout, Graph, SampledCsc, Sampler, Stream, StreamKey};
use tch::{Device, Kind, Tensor};

use super::fixture::{changed, config};
use crate::config::{JumpingKnowledge, ModelKind, NormKind, Parallelism};
use crate::model::{LayerEdges, Model};
use crate::operator::{Moments, Place};

const IN: usize = 3;
const OUT: usize = 4;
/// Frontier rows 0 to 2 with 2, 0 and 3 sampled in-edges, among 5 mixed rows.
const INDPTR: [u32; 4] = [0, 2, 2, 5];
const SOURCES: [u32; 5] = [1, 4, 0, 3, 4];
const VERTICES: [u32; 5] = [2, 0, 4, 1, 3];
/// In-degrees 4, 2, 3, 0, 5 of the graph's vertices; all but the mixed rows' degrees is of no consequence.
const GRAPH: [u64; 6] = [0, 4, 6, 9, 9, 14];
const DEGREES: [f64; 5] = [3.0, 4.0, 5.0, 2.0, 0.0];
const NEIGHBOURS: [u32; 14] = [0; 14];
/// Factors of the sampled edges, and the weighted degrees of the mixed rows.
const FACTORS: [f32; 5] = [0.5, 2.0, 1.5, 0.0, 3.0];
const WEIGHTED: [f64; 5] = [1.5, 6.0, 2.5, 3.0, 0.25];
/// [`WEIGHTED`] by vertex.
const WEIGHTED_BY_VERTEX: [f32; 5] = [6.0, 3.0, 1.5, 0.25, 2.5];

fn random(seed: u32, rows: usize, columns: usize) -> Tensor {
    let mut draws = Draws::new(&StreamKey::new(5, Stream::Generate), seed);
    let values: Vec<f32> = (0..rows * columns).map(|_| draws.unit_f32() * 2.0 - 1.0).collect();
    Tensor::from_slice(&values).view([rows as i64, columns as i64])
}

/// A model of one layer, which has no activation and one head, with random parameters.
fn model(kind: ModelKind) -> Model {
    let config = changed(&config(kind, Parallelism::Single, 1), |config| config.model.layers = 1);
    shaken(Model::new(&config, IN, OUT))
}

/// Biases and the like do not start from random values; these do.
fn shaken(model: Model) -> Model {
    for (seed, (_, tensor)) in (100..).zip(model.parameters().iter()) {
        let _ = tch::no_grad(|| tensor.shallow_clone().g_add_(&random(seed, 1, tensor.numel()).view_as(tensor)));
    }
    model
}

/// Input of a formula: the parameters by name, the rows, and the edges of the sample.
struct Given {
    parameters: BTreeMap<String, Tensor>,
    rows: Tensor,
    /// Whether edges have [`FACTORS`].
    weighted: bool,
}

impl Given {
    fn get(&self, name: &str) -> &Tensor {
        self.parameters.get(&format!("layers.0.{name}")).unwrap_or_else(|| panic!("no parameter {name}"))
    }

    fn own(&self) -> Tensor {
        self.rows.narrow(0, 0, 3)
    }

    fn factor(&self, edge: usize) -> f64 {
        if self.weighted { f64::from(FACTORS[edge]) } else { 1.0 }
    }

    /// Degree of a mixed row, with its loop.
    fn degree(&self, row: usize) -> f64 {
        if self.weighted { WEIGHTED[row] + 1.0 } else { DEGREES[row] + 1.0 }
    }

    /// `[3, 5]`: entry (t, s) is `weight(t, s, edges of t)`, times its factor, where there is an edge, else 0.
    fn matrix(&self, weight: impl Fn(usize, usize, f64) -> f64) -> Tensor {
        let mut values = [[0f64; 5]; 3];
        for (target, values) in values.iter_mut().enumerate() {
            let of = INDPTR[target] as usize..INDPTR[target + 1] as usize;
            for edge in of.clone() {
                let source = SOURCES[edge] as usize;
                values[source] += self.factor(edge) * weight(target, source, of.len() as f64);
            }
        }
        Tensor::from_slice(values.as_flattened()).view([3, 5])
    }

    /// The convolution's matrix: loops, and sampled edges for all.
    fn symmetric(&self) -> Tensor {
        let root = |row: usize| self.degree(row).sqrt();
        let edges = self.matrix(|t, s, sampled| DEGREES[t] / sampled / (root(t) * root(s)));
        let loops: Vec<f64> = (0..15).map(|i| if i / 5 == i % 5 { 1.0 / self.degree(i / 5) } else { 0.0 }).collect();
        edges + Tensor::from_slice(&loops).view([3, 5])
    }

    /// Softmax of `score(target, source)`, a scalar, over each target's edges, each as often as its factor says, and itself, times the
    /// rows `of`.
    fn attend(&self, score: impl Fn(i64, i64) -> Tensor, of: &Tensor) -> Tensor {
        let target = |t: usize| {
            let of_target = INDPTR[t] as usize..INDPTR[t + 1] as usize;
            let sources: Vec<i64> =
                [t as i64].into_iter().chain(SOURCES[of_target.clone()].iter().map(|&s| i64::from(s))).collect();
            let scores: Vec<Tensor> = sources.iter().map(|&s| score(t as i64, s)).collect();
            let counts: Vec<f64> = [1.0].into_iter().chain(of_target.map(|edge| self.factor(edge))).collect();
            let weights = (Tensor::stack(&scores, 0) + Tensor::from_slice(&counts).log()).softmax(0, Kind::Double);
            (of.index_select(0, &Tensor::from_slice(&sources)) * weights.view([-1, 1])).sum_dim_intlist(
                0,
                false,
                Kind::Double,
            )
        };
        Tensor::stack(&(0..3).map(target).collect::<Vec<_>>(), 0)
    }
}

fn leaky(x: Tensor) -> Tensor {
    x.maximum(&(&x * 0.2))
}

fn formula(kind: ModelKind, g: &Given) -> Tensor {
    let (x, p) = (&g.rows, |name: &str| g.get(name));
    match kind {
        ModelKind::Sage => {
            let mean = g.matrix(|_, _, sampled| 1.0 / sampled).matmul(x);
            // Where batch norm follows there is none.
            let bias = g.parameters.get("layers.0.bias").map_or(Tensor::from(0.0), Tensor::shallow_clone);
            g.own().matmul(p("weight_self")) + mean.matmul(p("weight_neigh")) + bias
        }
        ModelKind::SagePool => {
            let pooled = (x.matmul(p("weight_pool")) + p("bias_pool")).relu();
            let largest = |t: usize| match &SOURCES[INDPTR[t] as usize..INDPTR[t + 1] as usize] {
                [] => Tensor::zeros([IN as i64], (Kind::Double, Device::Cpu)),
                of => {
                    let of: Vec<i64> = of.iter().map(|&s| i64::from(s)).collect();
                    pooled.index_select(0, &Tensor::from_slice(&of)).amax(0, false)
                }
            };
            let largest = Tensor::stack(&[0, 1, 2].map(largest), 0);
            g.own().matmul(p("weight_self")) + largest.matmul(p("weight_neigh")) + p("bias")
        }
        ModelKind::Gcn | ModelKind::Sgc => g.symmetric().matmul(x).matmul(p("weight")) + p("bias"),
        ModelKind::Gin => {
            let sum = g.matrix(|t, _, sampled| DEGREES[t] / sampled).matmul(x) + g.own() * (p("epsilon") + 1.0);
            (sum.matmul(p("weight_1")) + p("bias_1")).relu().matmul(p("weight_2")) + p("bias_2")
        }
        ModelKind::Gat => {
            let z = x.matmul(p("weight"));
            let (by_source, by_target) = (z.matmul(&p("attention_source").tr()), z.matmul(&p("attention_target").tr()));
            g.attend(|t, s| leaky(by_source.get(s).get(0) + by_target.get(t).get(0)), &z) + p("bias")
        }
        ModelKind::Gatv2 => {
            let (l, r) =
                (x.matmul(p("weight_source")) + p("bias_source"), x.matmul(p("weight_target")) + p("bias_target"));
            g.attend(|t, s| leaky(l.get(s) + r.get(t)).dot(&p("attention").get(0)), &l) + p("bias")
        }
        ModelKind::Resgcn => {
            let sums = g.symmetric().matmul(x).matmul(p("weight")) + p("bias");
            let normed = sums.layer_norm([8], Some(p("norm.scale")), Some(p("norm.shift")), 1e-5, false);
            let head = |name: &str| &g.parameters[&format!("head.{name}")];
            normed.relu().matmul(head("weight")) + head("bias")
        }
    }
}

fn assert_close(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.size(), expected.size(), "{what}");
    let off = (found.to_kind(Kind::Double) - expected).abs().max().double_value(&[]);
    let scale = expected.abs().max().double_value(&[]).max(1e-2);
    assert!(off <= 1e-5 * scale, "{what}: off by {off} of {scale}");
}

/// Compares what `run` returns, and its gradients of the rows and of the parameters that `of` picks, with `formula` of the
/// same in f64.
fn compare_some(
    what: &str,
    model: &Model,
    of: &dyn Fn(&(&str, &Tensor)) -> bool,
    run: &dyn Fn(&Tensor) -> Tensor,
    (weighted, formula): (bool, &dyn Fn(&Given) -> Tensor),
) {
    let rows = random(1, VERTICES.len(), IN);
    let wide = |tensor: &Tensor| tensor.detach().to_kind(Kind::Double).set_requires_grad(true);
    let picked: Vec<(&str, &Tensor)> = model.parameters().iter().filter(of).collect();
    let parameters = picked.iter().map(|(name, tensor)| (name.to_string(), wide(tensor))).collect();
    let given = Given { parameters, rows: wide(&rows), weighted };
    let leaf = rows.copy().set_requires_grad(true);
    let (found, expected) = (run(&leaf), formula(&given));
    assert_close(&found.detach(), &expected.detach(), what);
    let upstream = random(2, found.size()[0] as usize, found.size()[1] as usize);
    (&found * &upstream).sum(Kind::Float).backward();
    (&expected * &upstream).sum(Kind::Double).backward();
    assert_close(&leaf.grad(), &given.rows.grad(), &format!("{what}, gradient of the rows"));
    for (name, tensor) in picked {
        let expected = given.parameters[name].grad();
        assert!(tensor.grad().defined() && expected.defined(), "{what}: {name} has no gradient");
        assert_close(&tensor.grad(), &expected, &format!("{what}, gradient of {name}"));
    }
}

/// [`compare_some`] for all parameters.
fn compare(what: &str, model: &Model, run: &dyn Fn(&Tensor) -> Tensor, formula: &dyn Fn(&Given) -> Tensor) {
    compare_some(what, model, &|_| true, run, (false, formula));
}

/// The edges, with [`FACTORS`] or without.
fn edges_with(factors: bool) -> LayerEdges<'static> {
    let (mut graph, mut sampled) = (Graph::new(&GRAPH, &NEIGHBOURS).unwrap(), SampledCsc::default());
    if factors {
        graph = graph.with_factors(&[1.0; 14], &WEIGHTED_BY_VERTEX).unwrap();
        sampled.factors = FACTORS.to_vec();
    }
    (sampled.indptr, sampled.local) = (INDPTR.to_vec(), SOURCES.to_vec());
    LayerEdges::new(&Place::host(), graph, sampled, &VERTICES).unwrap()
}

fn edges() -> LayerEdges<'static> {
    edges_with(false)
}

/// The logits of a model of one layer.
fn logits(model: &Model, rows: &Tensor) -> Tensor {
    logits_over(&edges(), model, rows)
}

fn logits_over(edges: &LayerEdges<'_>, model: &Model, rows: &Tensor) -> Tensor {
    let frontier = &VERTICES[..3];
    let body = model.body(0, edges, rows, None, frontier, None).unwrap();
    let out = if model.has_tail(0) { model.tail(0, &body, None, frontier, None).unwrap() } else { body };
    model.logits(&[&out]).unwrap()
}

#[test]
fn oracle_every_kind_is_its_formula() {
    use clap::ValueEnum;
    for &kind in ModelKind::value_variants() {
        let model = model(kind);
        compare(&format!("{kind:?}"), &model, &|rows| logits(&model, rows), &|given| formula(kind, given));
        let weighted = edges_with(true);
        if kind == ModelKind::SagePool {
            let refused = model.body(0, &weighted, &random(1, VERTICES.len(), IN), None, &VERTICES[..3], None);
            assert!(refused.unwrap_err().to_string().contains("a maximum over neighbours takes no factors"));
            continue;
        }
        // Gradients are added to those that are there.
        let model = self::model(kind);
        let formula = |given: &Given| formula(kind, given);
        let run = |rows: &Tensor| logits_over(&weighted, &model, rows);
        compare_some(&format!("{kind:?}, weighted"), &model, &|_| true, &run, (true, &formula));
    }
}

/// A hidden layer of three, without head: what surrounds a layer shows in it.
#[test]
fn oracle_norms_and_residuals_are_their_formulas() {
    for (norm, residual, input) in [NormKind::None, NormKind::Layer, NormKind::Batch]
        .into_iter()
        .flat_map(|n| [(n, false), (n, true)])
        .flat_map(|(n, r)| [(n, r, IN), (n, r, 8)])
    {
        let config = changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
            (config.model.norm, config.model.residual) = (Some(norm), residual);
            config.model.hidden = if input == IN { 8 } else { IN };
        });
        // With hidden width IN the residual is the row itself.
        let whole = shaken(Model::new(&config, IN, OUT));
        let hidden = config.model.hidden as i64;
        let run = |rows: &Tensor| {
            let body = whole.body(0, &edges(), rows, None, &VERTICES[..3], None).unwrap();
            if !whole.has_tail(0) {
                return body;
            }
            // Moments as constants: what depends on them is tested where ranks are.
            let moments = Moments::of(&Place::host(), &body, None, &gsplit_kernels::Solo).unwrap();
            whole.tail(0, &body, Some(&moments), &VERTICES[..3], None).unwrap()
        };
        let formula = |g: &Given| {
            let mut sums = formula(ModelKind::Sage, g);
            if residual {
                let projected = || g.own().matmul(g.get("residual"));
                sums += if hidden == IN as i64 { g.own() } else { projected() };
            }
            let normed = match norm {
                NormKind::None => sums,
                NormKind::Layer => {
                    sums.layer_norm([hidden], Some(g.get("norm.scale")), Some(g.get("norm.shift")), 1e-5, false)
                }
                NormKind::Batch => {
                    let fixed = sums.detach();
                    let mean = fixed.mean_dim(0, true, Kind::Double);
                    let variance = (&fixed - &mean).square().mean_dim(0, true, Kind::Double);
                    (sums - mean) / (variance + 1e-5).sqrt() * g.get("norm.scale") + g.get("norm.shift")
                }
            };
            normed.relu()
        };
        let what = format!("{norm:?}, residual {residual}, hidden {hidden}");
        let first = |(name, _): &(&str, &Tensor)| name.starts_with("layers.0");
        compare_some(&what, &whole, &first, &run, (false, &formula));
    }
}

#[test]
fn oracle_jumping_knowledge_is_its_formula() {
    for mode in [JumpingKnowledge::Cat, JumpingKnowledge::Max] {
        let config = changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
            config.model.jumping_knowledge = mode;
            config.model.hidden = IN;
        });
        let model = shaken(Model::new(&config, IN, OUT));
        assert_eq!(model.logits_of(), 0..3);
        let head = |(name, _): &(&str, &Tensor)| name.starts_with("head");
        let parts = |rows: &Tensor| [0, 1, 2].map(|at| rows.narrow(0, at, 3));
        let run = |rows: &Tensor| model.logits(&parts(rows).each_ref()).unwrap();
        let formula = |g: &Given| {
            let [a, b, c] = parts(&g.rows);
            let joined = match mode {
                JumpingKnowledge::Cat => Tensor::cat(&[a, b, c], 1),
                _ => a.maximum(&b).maximum(&c),
            };
            joined.matmul(&g.parameters["head.weight"]) + &g.parameters["head.bias"]
        };
        compare_some(&format!("{mode:?}"), &model, &head, &run, (false, &formula));
    }
}

/// With all neighbours, layers of GCN and S-GCN are D⁻¹ᐟ² (A + I) D⁻¹ᐟ² X W + b with the dense matrix of the graph.
#[test]
fn oracle_convolution_with_all_neighbours_is_the_dense_formula() {
    dense_formula(false);
    dense_formula(true);
}

fn dense_formula(weighted: bool) {
    let n = 30usize;
    let mut dense = vec![0f64; n * n];
    let mut draws = Draws::new(&StreamKey::new(6, Stream::Generate), 0);
    for _ in 0..60 {
        let (u, v) = (draws.below(n as u32) as usize, draws.below(n as u32) as usize);
        if u != v {
            // Two directions of an edge may differ.
            let mut weight = || if weighted { f64::from(draws.below(16) + 1) / 8.0 } else { 1.0 };
            (dense[u * n + v], dense[v * n + u]) = (weight(), weight());
        }
    }
    let neighbours = |v: usize| (0..n as u32).filter(|&u| dense[v * n + u as usize] > 0.0).collect::<Vec<_>>();
    let mut indptr = vec![0u64];
    let mut indices = Vec::new();
    for v in 0..n {
        indices.extend(neighbours(v));
        indptr.push(indices.len() as u64);
    }
    let weights: Vec<f32> = dense.iter().filter(|&&weight| weight > 0.0).map(|&weight| weight as f32).collect();
    let graph = Graph::new(&indptr, &indices).unwrap();
    let degrees = graph.weighted_degrees(&weights).unwrap();
    let graph = if weighted { graph.with_factors(&weights, &degrees).unwrap() } else { graph };
    let vertices: Vec<u32> = (0..n as u32).collect();
    let (mut sampler, mut all) = (Sampler::new(1), SampledCsc::default());
    sampler.start(&vertices);
    let key = StreamKey::new(1, Stream::Sample);
    sampler.layer(&graph, &Draw::new(Fanout::All), &key, EdgeIds::Drop, &mut all).unwrap();
    let edges = LayerEdges::new(&Place::host(), graph, all, &vertices).unwrap();
    let a = Tensor::from_slice(&dense).view([n as i64, n as i64]) + Tensor::eye(n as i64, (Kind::Double, Device::Cpu));
    let root = a.sum_dim_intlist(1, false, Kind::Double).rsqrt();
    let a = root.view([-1, 1]) * a * root.view([1, -1]);
    for (kind, classes) in [(ModelKind::Gcn, 4), (ModelKind::Sgc, 4), (ModelKind::Sgc, 9)] {
        let config = changed(&config(kind, Parallelism::Single, 1), |config| config.model.layers = 2);
        let model = shaken(Model::new(&config, 6, classes));
        let x = random(3, n, 6);
        let hidden = model.body(0, &edges, &x, None, &vertices[..], None).unwrap();
        let found = model.body(1, &edges, &hidden, None, &vertices[..], None).unwrap();
        let p = |name: &str| {
            let (_, tensor) = model.parameters().iter().find(|(found, _)| *found == name)?;
            Some(tensor.to_kind(Kind::Double))
        };
        let x = x.to_kind(Kind::Double);
        let expected = match (p("layers.0.weight"), p("layers.1.weight"), p("layers.0.bias")) {
            (Some(first), Some(second), Some(bias)) => {
                a.matmul(&(a.matmul(&x).matmul(&first) + bias).relu()).matmul(&second)
            }
            (Some(weight), None, None) | (None, Some(weight), None) => a.matmul(&a.matmul(&x)).matmul(&weight),
            other => panic!("parameters {other:?}"),
        } + p("layers.1.bias").unwrap();
        assert_close(&found.detach(), &expected.detach(), &format!("{kind:?} with {classes} classes"));
    }
}
