//! Gradients of whole models against a reference in f64 written with torch's own operators, with
//! values that are exactly zero: rows of zeros, vertices without in-edges, biases of 0, dropout of
//! rows and of attention.
//!
//! Every kind of model, norm and kind of head, each with every dropout. (Activations that no model
//! has are tested with the operators.) All neighbours are drawn, so the reference works on dense
//! matrices. At a corner a derivative is the one of torch: ReLU's is 0 at 0.

use std::collections::{BTreeMap, BTreeSet};

use gsplit_kernels::schedule::Step;
use gsplit_kernels::{Draws, Stream, StreamKey, dropout_mask};
use gsplit_store::Split;
use tch::{Device, Kind, Reduction, Tensor};

use super::cases::cases;
use super::equivalence::run;
use super::fixture::{CLASSES, Fixture, add_features, changed, config, on_graph};
use crate::config::{
    ClassWeights, Config, JumpingKnowledge, ModelConfig, ModelKind, NormKind, NumberLoss,
    Parallelism, TaskConfig, TaskKind,
};
use crate::model::Model;

const N: usize = 36;
/// Less than the number of classes, more than for numbers: S-GCN multiplies by its weights at the
/// top or at the bottom.
const IN: usize = 3;
const F64: (Kind, Device) = (Kind::Double, Device::Cpu);
const SEEDS: [u32; 12] = [0, 1, 2, 3, 5, 8, 13, 21, 30, 31, 34, 35];

/// In-neighbours of each vertex: 0 to 4 others, without loops.
fn neighbours() -> Vec<Vec<u32>> {
    let of = |v: u32| {
        let mut draws = Draws::new(&StreamKey::new(12, Stream::Generate), v);
        let mut list: Vec<u32> =
            (0..v % 5).map(|_| draws.below(N as u32)).filter(|&u| u != v).collect();
        list.sort_unstable();
        list.dedup();
        list
    };
    (0..N as u32).map(of).collect()
}

/// Features of all vertices: two rows of three are zeros.
fn features() -> Vec<f32> {
    let mut draws = Draws::new(&StreamKey::new(13, Stream::Generate), 0);
    let mut value = |at: usize| if at / IN % 3 == 1 { 2.0 * draws.unit_f32() - 1.0 } else { 0.0 };
    (0..N * IN).map(&mut value).collect()
}

fn class(v: usize) -> i32 {
    (v * 7 % CLASSES) as i32
}

/// The number to learn for a vertex; one of the seeds has none.
fn number(v: usize) -> f32 {
    if v == 13 { f32::NAN } else { 20.0 + (v * 11 % 17) as f32 }
}

/// Weights of the classes, if they are weighted.
const WEIGHTS: [f64; CLASSES] = [0.5, 2.0, 1.0, 4.0];

/// Loss of a reference.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Learnt {
    Classes,
    Weighted,
    Number(NumberLoss),
}

impl Learnt {
    fn task(self) -> TaskConfig {
        let weights = ClassWeights::Each(WEIGHTS.map(|weight| weight as f32).to_vec());
        let default = TaskConfig::default();
        match self {
            Self::Classes => default,
            Self::Weighted => TaskConfig { class_weights: Some(weights), ..default },
            Self::Number(loss) => {
                TaskConfig { kind: Some(TaskKind::Regression), loss: Some(loss), ..default }
            }
        }
    }

    fn outputs(self) -> usize {
        if matches!(self, Self::Number(_)) { 1 } else { CLASSES }
    }

    /// The loss of the seeds; `logits` has all vertices.
    fn loss(self, logits: &Tensor) -> Tensor {
        let logits = logits.index_select(0, &index(SEEDS));
        let classes = Tensor::from_slice(&SEEDS.map(|v| i64::from(class(v as usize))));
        let weights = Some(Tensor::from_slice(&WEIGHTS)).filter(|_| self == Self::Weighted);
        let Self::Number(loss) = self else {
            return logits.cross_entropy_loss(&classes, weights, Reduction::Mean, -1, 0.0);
        };
        let known: Vec<usize> =
            (0..SEEDS.len()).filter(|&at| !number(SEEDS[at] as usize).is_nan()).collect();
        let numbers: Vec<f64> =
            known.iter().map(|&at| f64::from(number(SEEDS[at] as usize))).collect();
        let numbers = Tensor::from_slice(&numbers);
        let wanted = (&numbers - numbers.mean(None)) / numbers.std_dim(0, false, false);
        let known = Tensor::from_slice(&known.iter().map(|&at| at as i64).collect::<Vec<_>>());
        let errors = logits.view(-1).index_select(0, &known) - wanted;
        match loss {
            NumberLoss::Mse => errors.square().mean(None),
            NumberLoss::Mae => errors.abs().mean(None),
        }
    }
}

fn dataset(learnt: Learnt) -> Fixture {
    on_graph(&neighbours(), |writer| {
        add_features(writer, IN, &features());
        match learnt {
            Learnt::Number(_) => {
                writer.add_numeric_labels(&(0..N).map(number).collect::<Vec<_>>()).unwrap()
            }
            _ => writer.add_labels(&(0..N).map(class).collect::<Vec<_>>()).unwrap(),
        }
        writer.add_split(Split::Train, SEEDS.to_vec()).unwrap();
    })
}

/// In-edges by target row: the source rows, with the multiplicity of each edge.
pub struct InEdges {
    pub lists: Vec<Vec<(usize, f64)>>,
    /// Number of in-edges of each row in the graph.
    pub in_graph: Vec<f64>,
    /// Their number with multiplicity, including a loop.
    pub degrees: Vec<f64>,
}

impl InEdges {
    /// The edges of the whole graph.
    fn all() -> Self {
        let lists: Vec<Vec<_>> = neighbours()
            .into_iter()
            .map(|list| list.into_iter().map(|u| (u as usize, 1.0)).collect())
            .collect();
        let in_graph: Vec<f64> = lists.iter().map(|list| list.len() as f64).collect();
        Self { lists, degrees: in_graph.iter().map(|count| count + 1.0).collect(), in_graph }
    }

    /// `[targets, rows]`: entry (t, s) is `weight(t, s)` times the multiplicity of the edge.
    fn matrix(&self, weight: impl Fn(usize, usize) -> f64) -> Tensor {
        let width = self.degrees.len();
        let mut values = vec![0f64; self.lists.len() * width];
        for (t, list) in self.lists.iter().enumerate() {
            list.iter().for_each(|&(s, count)| values[t * width + s] = count * weight(t, s));
        }
        self.rectangle(&values)
    }

    fn rectangle(&self, values: &[f64]) -> Tensor {
        Tensor::from_slice(values).view([self.lists.len() as i64, -1])
    }

    /// In-edges of the graph per sampled one.
    fn per_edge(&self, target: usize) -> f64 {
        self.in_graph[target] / self.lists[target].len() as f64
    }
}

/// A model by its formulas, in f64, with the same in-edges in every layer.
pub struct Reference<'a> {
    pub config: &'a ModelConfig,
    pub step: Step,
    pub parameters: BTreeMap<String, Tensor>,
    pub edges: InEdges,
    pub rows: Tensor,
}

impl Reference<'_> {
    fn find(&self, layer: usize, name: &str) -> Option<&Tensor> {
        self.parameters.get(&format!("layers.{layer}.{name}"))
    }

    /// The logits of all targets.
    pub fn logits(&self) -> Tensor {
        let (config, pre_activation) = (self.config, self.config.kind == ModelKind::Resgcn);
        let mut rows = self.rows.shallow_clone();
        let (mut all, mut below): (Vec<Tensor>, Option<Tensor>) = (Vec::new(), None);
        for layer in 0..config.layers {
            let mut sums = self.layer(layer, &rows);
            if config.kind == ModelKind::Sgc || (layer + 1 == config.layers && !config.has_head()) {
                rows = sums;
                continue;
            }
            if config.residual {
                sums += self
                    .find(layer, "residual")
                    .map_or(rows.shallow_clone(), |weight| rows.matmul(weight));
            }
            sums = below
                .filter(|_| pre_activation)
                .map_or(sums.shallow_clone(), |below| &sums + below);
            below = Some(sums.shallow_clone());
            let normed = self.normed(layer, &sums);
            let active = if self.heads(layer).is_some() { normed.elu() } else { normed.relu() };
            rows = active * self.mask(layer);
            all.push(rows.shallow_clone());
        }
        if !config.has_head() {
            return rows;
        }
        let read = match config.jumping_knowledge {
            JumpingKnowledge::None => rows,
            JumpingKnowledge::Cat => Tensor::cat(&all, 1),
            JumpingKnowledge::Max => all[0].maximum(&all[1]).maximum(&all[2]),
        };
        read.matmul(&self.parameters["head.weight"]) + &self.parameters["head.bias"]
    }

    /// Number of heads of a layer with attention.
    fn heads(&self, layer: usize) -> Option<usize> {
        let hidden = self.config.has_head() || layer + 1 < self.config.layers;
        let attends = matches!(self.config.kind, ModelKind::Gat | ModelKind::Gatv2);
        attends.then_some(if hidden { self.config.heads } else { 1 })
    }

    fn layer(&self, layer: usize, x: &Tensor) -> Tensor {
        let p = |name: &str| {
            self.find(layer, name).unwrap_or_else(|| panic!("layer {layer} has no {name}"))
        };
        // Before a batch norm there is no bias.
        let bias = |name: &str| {
            self.find(layer, name).map_or(Tensor::zeros([1], F64), Tensor::shallow_clone)
        };
        let (edges, own) = (&self.edges, x.narrow(0, 0, self.edges.lists.len() as i64));
        match self.config.kind {
            ModelKind::Sage => {
                let mean = edges.matrix(|t, _| 1.0 / edges.lists[t].len() as f64).matmul(x);
                own.matmul(p("weight_self")) + mean.matmul(p("weight_neigh")) + bias("bias")
            }
            ModelKind::SagePool => {
                let pooled = (x.matmul(p("weight_pool")) + p("bias_pool")).relu();
                let largest = |list: &Vec<(usize, f64)>| match &list[..] {
                    [] => Tensor::zeros([x.size()[1]], F64),
                    list => pooled
                        .index_select(0, &index(list.iter().map(|&(s, _)| s as u32)))
                        .amax(0, false),
                };
                let largest =
                    Tensor::stack(&edges.lists.iter().map(largest).collect::<Vec<_>>(), 0);
                own.matmul(p("weight_self")) + largest.matmul(p("weight_neigh")) + bias("bias")
            }
            ModelKind::Gcn | ModelKind::Sgc | ModelKind::Resgcn => {
                let degree = |v: usize| edges.degrees[v];
                let sums = edges.matrix(|t, s| edges.per_edge(t) / (degree(t) * degree(s)).sqrt());
                let loops: Vec<f64> = (0..edges.lists.len()).map(|v| 1.0 / degree(v)).collect();
                let rows = sums.matmul(x) + own * Tensor::from_slice(&loops).view([-1, 1]);
                self.find(layer, "weight")
                    .map_or(rows.shallow_clone(), |weight| rows.matmul(weight))
                    + bias("bias")
            }
            ModelKind::Gin => {
                let sum =
                    edges.matrix(|t, _| edges.per_edge(t)).matmul(x) + own * (p("epsilon") + 1.0);
                (sum.matmul(p("weight_1")) + p("bias_1")).relu().matmul(p("weight_2"))
                    + bias("bias_2")
            }
            ModelKind::Gat => {
                let z = x.matmul(p("weight"));
                self.attend(layer, &z, |head, z| {
                    let of = |name: &str| z.mv(&p(name).get(head));
                    let of_targets = of("attention_target").narrow(0, 0, edges.lists.len() as i64);
                    leaky(&(of_targets.view([-1, 1]) + of("attention_source").view([1, -1])))
                }) + bias("bias")
            }
            ModelKind::Gatv2 => {
                let l = x.matmul(p("weight_source")) + p("bias_source");
                let r = own.matmul(p("weight_target")) + p("bias_target");
                self.attend(layer, &l, |head, l| {
                    let r = r.narrow(1, head * l.size()[1], l.size()[1]);
                    leaky(&(r.unsqueeze(1) + l.unsqueeze(0))).matmul(&p("attention").get(head))
                }) + bias("bias")
            }
        }
    }

    /// Sums rows weighted by the softmax of `scores(head, rows of the head)`, `[targets, rows]`,
    /// after dropout, over a loop and the in-edges with their multiplicity.
    fn attend(
        &self,
        layer: usize,
        rows: &Tensor,
        scores: impl Fn(i64, &Tensor) -> Tensor,
    ) -> Tensor {
        let heads = self.heads(layer).unwrap();
        let key = self.step.key(Stream::Attention, layer as u8);
        let (lists, width) = (&self.edges.lists, self.edges.degrees.len());
        let of_head = |head: usize| {
            let mut kept = vec![0f64; lists.len() * width];
            let mut counts = kept.clone();
            for (t, list) in lists.iter().enumerate() {
                let mut mask = vec![1f32; (1 + list.len()) * heads];
                let rate = self.config.attention_dropout as f32;
                dropout_mask(&[t as u32], mask.len(), rate, &key, &mut mask).unwrap();
                for (i, &(s, count)) in [(t, 1.0)].iter().chain(list).enumerate() {
                    kept[t * width + s] = f64::from(mask[i * heads + head]);
                    counts[t * width + s] = count;
                }
            }
            let rows = rows.chunk(heads as i64, 1).swap_remove(head);
            let scores = scores(head as i64, &rows) + self.edges.rectangle(&counts).log();
            (scores.softmax(1, Kind::Double) * self.edges.rectangle(&kept)).matmul(&rows)
        };
        Tensor::cat(&(0..heads).map(of_head).collect::<Vec<_>>(), 1)
    }

    fn normed(&self, layer: usize, sums: &Tensor) -> Tensor {
        let [scale, shift] = ["norm.scale", "norm.shift"].map(|name| self.find(layer, name));
        match self.config.norm() {
            NormKind::None => sums.shallow_clone(),
            NormKind::Layer => sums.layer_norm([sums.size()[1]], scale, shift, 1e-5, false),
            NormKind::Batch => {
                let rows = sums.index_select(0, &index(self.frontier(layer)));
                let mean = rows.mean_dim(0, true, Kind::Double);
                let variance = (rows - &mean).square().mean_dim(0, true, Kind::Double);
                (sums - mean) / (variance + 1e-5).sqrt() * scale.unwrap() + shift.unwrap()
            }
        }
    }

    /// Vertices for which a mini-batch computes layer `layer`.
    fn frontier(&self, layer: usize) -> BTreeSet<u32> {
        let mut reached = BTreeSet::from(SEEDS);
        for _ in layer + 1..self.config.layers {
            let next = |&v: &u32| self.edges.lists[v as usize].iter().map(|&(u, _)| u as u32);
            let next: Vec<u32> = reached.iter().flat_map(next).collect();
            reached.extend(next);
        }
        reached
    }

    fn mask(&self, layer: usize) -> Tensor {
        let ids: Vec<u32> = (0..self.edges.lists.len() as u32).collect();
        let mut mask = vec![0f32; ids.len() * self.config.hidden];
        let key = self.step.key(Stream::Dropout, layer as u8);
        dropout_mask(&ids, self.config.hidden, self.config.dropout as f32, &key, &mut mask)
            .unwrap();
        Tensor::from_slice(&mask).view([ids.len() as i64, -1]).to_kind(Kind::Double)
    }
}

/// LeakyReLU, whose slope at 0 is that of negative values.
fn leaky(x: &Tensor) -> Tensor {
    x * 0.2 + x.relu() * 0.8
}

fn index(vertices: impl IntoIterator<Item = u32>) -> Tensor {
    Tensor::from_slice(&vertices.into_iter().map(i64::from).collect::<Vec<_>>())
}

const NORMS: [NormKind; 3] = [NormKind::None, NormKind::Layer, NormKind::Batch];
/// Residual connections, and the input of the head.
const HEADS: [(bool, JumpingKnowledge); 4] = [
    (false, JumpingKnowledge::None),
    (true, JumpingKnowledge::None),
    (true, JumpingKnowledge::Cat),
    (false, JumpingKnowledge::Max),
];
/// Rates of dropout of rows and of attention.
const DROPOUTS: [(f64, f64); 4] = [(0.0, 0.0), (0.4, 0.0), (0.0, 0.6), (0.4, 0.6)];
const LEARNT: [Learnt; 4] = [
    Learnt::Classes,
    Learnt::Weighted,
    Learnt::Number(NumberLoss::Mse),
    Learnt::Number(NumberLoss::Mae),
];

/// The run of a kind of model, norm, head and dropout, by their numbers.
fn config_of(case: &[usize]) -> Config {
    let &[kind, norm, head, dropout, ..] = case else { unreachable!() };
    changed(&config(ModelKind::ALL[kind], Parallelism::Single, 1), |config| {
        config.data.fanouts = "all,all,all".parse().unwrap();
        let model = &mut config.model;
        model.norm = Some(NORMS[norm]);
        (model.residual, model.jumping_knowledge) = HEADS[head];
        (model.dropout, model.attention_dropout) = DROPOUTS[dropout];
    })
}

fn levels() -> [usize; 5] {
    [ModelKind::ALL.len(), NORMS.len(), HEADS.len(), DROPOUTS.len(), LEARNT.len()]
}

/// Every kind of model, norm, head, dropout and loss, in pairs.
#[test]
fn oracle_gradients_of_every_model_where_values_are_zero() {
    let cases = cases(&levels(), |case| config_of(case).check().is_ok());
    for (number, learnt) in LEARNT.into_iter().enumerate() {
        let configs: Vec<_> =
            cases.iter().filter(|case| case[4] == number).map(|case| config_of(case)).collect();
        gradients_are_those_of_the_reference(&configs, learnt);
    }
}

fn gradients_are_those_of_the_reference(configs: &[Config], learnt: Learnt) {
    tch::set_num_threads(1);
    let fixture = dataset(learnt);
    for config in configs {
        let config = changed(config, |config| config.data.task = learnt.task());
        let what = format!("{learnt:?}, {:?}", config.model);
        let (loss, gradient) = run(&fixture.dataset, &config, &SEEDS);
        let model = Model::new(&config, IN, learnt.outputs());
        let reference = Reference {
            config: &config.model,
            step: Step { seed: config.run.seed, epoch: 1, step: 0 },
            parameters: wide_parameters(&model),
            edges: InEdges::all(),
            rows: Tensor::from_slice(&features()).view([N as i64, IN as i64]).to_kind(Kind::Double),
        };
        let expected = learnt.loss(&reference.logits());
        expected.backward();
        let expected = expected.double_value(&[]);
        assert!(
            (loss - expected).abs() < 1e-5 * expected,
            "{what}: loss {loss}, expected {expected}"
        );
        let norm = gradient.iter().map(|value| f64::from(value * value)).sum::<f64>().sqrt();
        let mut rest = &gradient[..];
        for (name, tensor) in model.parameters().iter() {
            let (found, after) = rest.split_at(tensor.numel());
            rest = after;
            let expected = reference.parameters[name].grad();
            let expected = if expected.defined() {
                expected.flatten(0, -1)
            } else {
                Tensor::zeros(found.len() as i64, F64)
            };
            let off = (Tensor::from_slice(found).to_kind(Kind::Double) - &expected)
                .abs()
                .max()
                .double_value(&[]);
            let most = expected.abs().max().double_value(&[]);
            // Errors from a mean that is predicted everywhere cancel: such a gradient is 0 except
            // for rounding.
            assert!(
                off < 1e-5 * (most + norm) + 1e-7,
                "{what}: gradient of {name} off by {off} of {most}"
            );
        }
        assert!(rest.is_empty());
    }
}

/// The parameters of `model` in f64, by name, with gradients of their own.
pub fn wide_parameters(model: &Model) -> BTreeMap<String, Tensor> {
    let wide = |tensor: &Tensor| tensor.detach().to_kind(Kind::Double).set_requires_grad(true);
    model.parameters().iter().map(|(name, tensor)| (name.into(), wide(tensor))).collect()
}
