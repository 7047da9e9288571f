//! Scores a pair of vertices by their rows: the dot product, or a trained perceptron over the
//! elementwise product of both, as in OGB's link examples (Hu et al., 2020, the class
//! `LinkPredictor`): s(u, v) = w · ReLU(W (h_u ⊙ h_v) + c) + b, with dropout after the ReLU during
//! training.
//!
//! Both are symmetric in u, v. Cost of the perceptron: a product of `[pairs, dim]` by `[dim,
//! hidden]`; two backwards.

use std::ops::Range;

use gsplit_kernels::{Stream, gather_f32, scatter_add_f32};
use rayon::prelude::*;
use tch::Tensor;

use super::score::{Scored, dot, logistic, score_pairs};
use crate::Result;
use crate::autograd::{self, Buffer, attach, values};
use crate::config::Dtype;
use crate::model::{DropoutKey, Named};
use crate::operator::{Activation, Dropout, Engine, Finish, Place, from_rows, linear, to_rows};

/// Computes a score from two rows: above 0 predicts an edge.
pub enum PairScorer {
    /// Their dot product.
    Dot,
    /// A perceptron over their elementwise product.
    Mlp(Mlp),
}

/// A perceptron with one hidden layer.
pub struct Mlp {
    hidden_weight: Tensor,
    hidden_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    place: Place,
}

/// Pairs of rows, as positions in a matrix, and whether each is an edge.
#[derive(Clone, Copy)]
pub struct Pairs<'a> {
    /// First and second position of each pair.
    pub ends: [&'a [u32]; 2],
    /// Each edge is followed by this many negative pairs.
    pub negatives: usize,
    /// Index of the first pair in the global mini-batch: dropout is drawn by it, and so is the same
    /// on every rank.
    pub first: usize,
}

impl Pairs<'_> {
    /// Whether pair `index` is an edge.
    pub fn is_edge(&self, index: usize) -> bool {
        index.is_multiple_of(1 + self.negatives)
    }
}

impl PairScorer {
    /// The loss of `pairs` of `rows`, each of `dim` values, and its gradient times `scale`; the
    /// gradients of the parameters are added to their `grad`. Dropout is drawn if there is a key
    /// for it.
    pub fn loss(
        &self,
        rows: Vec<f32>,
        dim: usize,
        pairs: Pairs<'_>,
        scale: f32,
        dropout: Option<DropoutKey>,
    ) -> Result<Scored> {
        match self {
            Self::Dot => score_pairs(&rows, dim, pairs.ends, |i| pairs.is_edge(i), scale),
            Self::Mlp(mlp) => mlp.loss(rows, dim, pairs, scale, dropout),
        }
    }

    /// The scores of the pairs `ends` of `rows`, each of `dim` values, without dropout.
    pub fn scores(&self, rows: &[f32], dim: usize, ends: [&[u32]; 2]) -> Result<Vec<f32>> {
        match self {
            Self::Dot => {
                let row = |v: u32| &rows[v as usize * dim..][..dim];
                let pairs = ends[0].par_iter().zip(ends[1]);
                Ok(pairs.map(|(&u, &v)| dot(row(u), row(v))).collect())
            }
            Self::Mlp(mlp) => tch::no_grad(|| {
                to_rows(&mlp.forward(&products(rows, dim, ends)?, Finish::default())?)
            }),
        }
    }

    /// The scores of each of `sources` with each of `targets`, source by source: [`Self::scores`]
    /// up to rounding, independent of the number of threads.
    pub fn table(
        &self,
        rows: &[f32],
        dim: usize,
        sources: &[u32],
        targets: Range<u32>,
    ) -> Result<Vec<f32>> {
        match self {
            Self::Dot => {
                let mut of = Buffer::new(sources.len() * dim)?;
                gather_f32(rows, dim, sources, of.as_mut_slice())?;
                let of = of.into_tensor(&[sources.len() as i64, dim as i64])?;
                let with = rows[targets.start as usize * dim..targets.end as usize * dim].to_vec();
                let with = from_rows(with, targets.len(), dim)?.f_transpose(0, 1)?;
                let place = Place::Host(Engine::in_tiles(Dtype::F32));
                tch::no_grad(|| to_rows(&linear(&place, &of, &with, None, Finish::default())?))
            }
            Self::Mlp(_) => {
                let from: Vec<u32> = sources
                    .iter()
                    .flat_map(|&source| std::iter::repeat_n(source, targets.len()))
                    .collect();
                let to: Vec<u32> = sources.iter().flat_map(|_| targets.clone()).collect();
                self.scores(rows, dim, [&from, &to])
            }
        }
    }
}

impl Mlp {
    /// Creates a perceptron for rows of `dim` values, with parameters at `place`.
    pub fn new(named: &mut Named<'_>, place: &Place, dim: usize, hidden: usize) -> Self {
        Self {
            hidden_weight: named.glorot("hidden_weight", [dim, hidden]),
            hidden_bias: named.zeros("hidden_bias", hidden),
            weight: named.glorot("weight", [hidden, 1]),
            bias: named.zeros("bias", 1),
            place: place.clone(),
        }
    }

    /// Scores `[pairs, 1]` of `products`, `[pairs, dim]`; `finish` holds the dropout of the hidden
    /// layer.
    fn forward(&self, products: &Tensor, finish: Finish) -> Result<Tensor> {
        let finish = Finish { activation: Activation::Relu, ..finish };
        let products = self.place.bring(products)?;
        let hidden =
            linear(&self.place, &products, &self.hidden_weight, Some(&self.hidden_bias), finish)?;
        linear(&self.place, &hidden, &self.weight, Some(&self.bias), Finish::default())
    }

    fn loss(
        &self,
        rows: Vec<f32>,
        dim: usize,
        pairs: Pairs<'_>,
        scale: f32,
        dropout: Option<DropoutKey>,
    ) -> Result<Scored> {
        let count = pairs.ends[0].len();
        if count == 0 {
            return Ok(Scored { loss: 0.0, correct: 0, gradient: vec![0.0; rows.len()] });
        }
        let num_rows = rows.len() / dim.max(1);
        let rows = from_rows(rows, num_rows, dim)?.set_requires_grad(true);
        let dropout = dropout.filter(|dropout| dropout.probability > 0.0).map(|dropout| {
            let ids = (pairs.first..pairs.first + count).map(|pair| pair as u32).collect();
            let key = dropout.step.key(Stream::Pairs, 0);
            Dropout { ids, probability: dropout.probability as f32, key }
        });
        let products = recorded_products(&rows, dim, pairs.ends)?;
        let scores = self.forward(&products, Finish { dropout, ..Finish::default() })?;
        let (loss, correct, slopes) = logistic(&to_rows(&scores)?, |i| pairs.is_edge(i), scale);
        autograd::backward(&scores, &self.place.bring(&from_rows(slopes, count, 1)?)?)?;
        Ok(Scored { loss, correct, gradient: to_rows(&rows.grad())? })
    }
}

/// The elementwise products of the pairs of `rows`, f32 `[pairs, dim]`.
fn products(rows: &[f32], dim: usize, [sources, targets]: [&[u32]; 2]) -> Result<Tensor> {
    let len = sources.len() * dim;
    let (mut of, mut with) = (Buffer::new(len)?, Buffer::new(len)?);
    gather_f32(rows, dim, sources, of.as_mut_slice())?;
    gather_f32(rows, dim, targets, with.as_mut_slice())?;
    of.as_mut_slice().par_iter_mut().zip(with.as_slice()).for_each(|(u, v)| *u *= v);
    of.into_tensor(&[sources.len() as i64, dim as i64])
}

/// [`products`] as a node of torch's graph: the gradient of h_u is that of the product times h_v,
/// and vice versa.
fn recorded_products(rows: &Tensor, dim: usize, ends: [&[u32]; 2]) -> Result<Tensor> {
    let x = rows.detach().contiguous();
    let found = products(values(&x)?, dim, ends)?;
    let ends = ends.map(<[u32]>::to_vec);
    attach(&[rows], &[&x], found, move |gradient| {
        let [x] = gradient.saved()?;
        let (given, num_rows) = (gradient.output.contiguous(), x.size()[0]);
        let mut of_rows = Buffer::new(x.numel())?;
        of_rows.as_mut_slice().fill(0.0);
        for (of, with) in [(0, 1), (1, 0)] {
            let mut part = Buffer::new(given.numel())?;
            gather_f32(values(x)?, dim, &ends[with], part.as_mut_slice())?;
            part.as_mut_slice()
                .par_iter_mut()
                .zip(values(&given)?)
                .for_each(|(v, gradient)| *v *= gradient);
            scatter_add_f32(of_rows.as_mut_slice(), dim, &ends[of], part.as_slice())?;
        }
        Ok(vec![Some(of_rows.into_tensor(&[num_rows, dim as i64])?)])
    })
}

#[cfg(test)]
mod tests {
    use tch::{Kind, Reduction};

    use gsplit_kernels::schedule::Step;

    use super::*;
    use crate::config::{ModelKind, Parallelism, ScorerKind, TaskConfig, TaskKind};
    use crate::model::Model;
    use crate::tests::quick_config;

    const DIM: usize = 6;

    /// A model whose scorer is a perceptron with nonzero biases.
    fn model() -> Model {
        let task = TaskConfig {
            kind: Some(TaskKind::Link),
            scorer: ScorerKind::Mlp,
            ..TaskConfig::default()
        };
        let mut config = quick_config(ModelKind::Sage, Parallelism::Single, 1);
        config.data.task = task;
        let model = Model::new(&config, 5, DIM);
        for (name, tensor) in
            model.parameters().iter().filter(|(name, _)| name.starts_with("scorer."))
        {
            let shift = if name.ends_with("bias") { 0.1 } else { 0.0 };
            tch::no_grad(|| drop(tensor.shallow_clone().g_add_scalar_(shift)));
        }
        model
    }

    fn of_scorer(model: &Model) -> Vec<&Tensor> {
        let named =
            |name: &str| model.parameters().iter().find(|(found, _)| *found == name).unwrap().1;
        ["scorer.hidden_weight", "scorer.hidden_bias", "scorer.weight", "scorer.bias"]
            .map(named)
            .to_vec()
    }

    fn rows() -> Vec<f32> {
        (0..9 * DIM as i32).map(|i| ((i * 37 % 23) as f32 - 11.0) / 7.0).collect()
    }

    // A vertex paired with itself, a vertex in many pairs, and a vertex in none.
    const ENDS: [&[u32]; 2] = [&[0, 0, 3, 3, 2, 2, 7, 7], &[1, 2, 3, 0, 1, 5, 6, 0]];

    #[test]
    fn oracle_the_perceptron_is_torchs_own_in_f64() {
        let (model, scale) = (model(), 0.125);
        let pairs = Pairs { ends: ENDS, negatives: 1, first: 0 };
        let found = model.pair_scorer().loss(rows(), DIM, pairs, scale, None).unwrap();

        let leaf = |tensor: &Tensor| tensor.detach().to_kind(Kind::Double).set_requires_grad(true);
        let h = leaf(&from_rows(rows(), 9, DIM).unwrap());
        let parameters: Vec<Tensor> = of_scorer(&model).into_iter().map(leaf).collect();
        let positions = |ends: &[u32]| ends.iter().map(|&end| i64::from(end)).collect::<Vec<_>>();
        let [u, v] = ENDS.map(|ends| h.index_select(0, &Tensor::from_slice(&positions(ends))));
        let hidden = ((u * v).matmul(&parameters[0]) + &parameters[1]).relu();
        let scores = (hidden.matmul(&parameters[2]) + &parameters[3]).squeeze_dim(1);
        let edge = Tensor::from_slice(&[1f64, 0., 1., 0., 1., 0., 1., 0.]);
        let loss =
            scores.binary_cross_entropy_with_logits::<Tensor>(&edge, None, None, Reduction::Sum);
        (&loss * f64::from(scale)).backward();

        let expected = loss.double_value(&[]);
        assert!((found.loss - expected).abs() < 1e-5 * expected, "{} {expected}", found.loss);
        let right = scores.gt(0.0).eq_tensor(&edge.gt(0.5)).sum(Kind::Int64).int64_value(&[]);
        assert_eq!(found.correct as i64, right);
        let mine = [from_rows(found.gradient, 9, DIM).unwrap()].into_iter();
        let mine = mine.chain(of_scorer(&model).into_iter().map(Tensor::grad));
        for (mine, theirs) in mine.zip([&h].into_iter().chain(&parameters)) {
            let (off, most) = ((mine - theirs.grad()).abs().max(), theirs.grad().abs().max());
            assert!(off.double_value(&[]) < 1e-5 * most.double_value(&[]), "{off} of {most}");
            assert!(most.double_value(&[]) > 0.0);
        }
        let plain = model.pair_scorer().scores(&rows(), DIM, ENDS).unwrap();
        let theirs = Vec::<f64>::try_from(&scores).unwrap();
        assert!(plain.iter().zip(theirs).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5));
    }

    #[test]
    fn dropout_goes_by_the_pair_wherever_it_is_scored() {
        let model = model();
        let dropout =
            |step| Some(DropoutKey { probability: 0.5, step: Step { seed: 7, epoch: 1, step } });
        let loss = |range: std::ops::Range<usize>, dropout: Option<DropoutKey>| {
            let pairs = Pairs {
                ends: ENDS.map(|ends| &ends[range.clone()]),
                negatives: 1,
                first: range.start,
            };
            let scored = model.pair_scorer().loss(rows(), DIM, pairs, 1.0, dropout).unwrap();
            (scored.loss, scored.gradient)
        };
        let (whole, gradient) = loss(0..8, dropout(0));
        let parts = [loss(0..2, dropout(0)), loss(2..8, dropout(0)), loss(8..8, dropout(0))];
        assert!((parts.iter().map(|(loss, _)| loss).sum::<f64>() - whole).abs() < 1e-5);
        for (i, gradient) in gradient.iter().enumerate() {
            assert!((parts.iter().map(|(_, part)| part[i]).sum::<f32>() - gradient).abs() < 1e-5);
        }
        assert!(whole != loss(0..8, None).0 && whole != loss(0..8, dropout(1)).0);
    }
}
