//! The loss of vertices: cross entropy if a vertex has one class; binary cross entropy, summed over
//! the classes, if it can have several; the squared or absolute error of a number, in standard
//! deviations. All are means over the labelled seeds of the global mini-batch; cross entropy with
//! weights of classes is the weighted mean, as in torch's `cross_entropy(weight=...)`. If some
//! cells of several classes have no value, the sum over the other cells is divided by their number
//! per class, so that a seed counts by the share of its cells that have a value.

use gsplit_kernels::Communicator;
use gsplit_store::{Column, Dataset};
use tch::{Kind, Reduction, Tensor};

use super::Loss;
use super::weights::{LossWeights, TrainSplit};
use crate::config::{NumberLoss, TaskConfig};
use crate::metric::labels::Labels;
use crate::operator::Place;
use crate::{Error, Result};

/// Label of a seed that is left out of the loss.
const UNLABELLED: i64 = -1;

/// Labels of vertices, and the parameters of their loss.
pub struct NodeTask {
    /// The labels.
    pub labels: Labels,
    loss: NumberLoss,
    weights: Option<LossWeights>,
}

impl NodeTask {
    /// The task according to `config` on `labels` of `dataset`, whose train split is `train`.
    /// Collective over the processes of `comm`, which hold shards.
    pub fn new(
        dataset: &Dataset,
        labels: Labels,
        config: &TaskConfig,
        train: &Column<u32>,
        comm: Option<&dyn Communicator>,
    ) -> Result<Self> {
        let train = TrainSplit { vertices: train, comm };
        let weights = match (&labels, &config.class_weights) {
            (Labels::One { class, classes }, Some(asked)) => {
                Some(LossWeights::of_one(asked, dataset, class, *classes, train)?)
            }
            (Labels::Several(labels), asked) if asked.is_some() || dataset.lacks_label_cells() => {
                Some(LossWeights::of_several(asked.as_ref(), dataset, labels, train)?)
            }
            _ => None,
        };
        let scale = match &labels {
            Labels::Number { number, .. } => Some(train.scale(number)?),
            _ => None,
        };
        let labels = scale.into_iter().fold(labels, Labels::on);
        Ok(Self { labels, loss: config.loss.unwrap_or_default(), weights })
    }

    /// The targets of the global mini-batch `batch`.
    pub fn targets(&self, batch: &[u32]) -> NodeTargets<'_> {
        let weight = self.weights.as_ref().and_then(|weights| weights.total(batch));
        let labelled = || batch.iter().filter(|&&v| self.labels.is_labelled(v)).count() as f64;
        NodeTargets { task: self, weight: weight.unwrap_or_else(labelled) }
    }

    /// The weighted loss of `v`, for which the model returned `logits`, and its weight, as in
    /// [`NodeTargets::loss`]; `None` if it is unlabelled.
    pub fn loss_of(&self, v: u32, logits: &[f32]) -> Option<[f64; 2]> {
        let by_class = self.weights.as_ref().map(|weights| &weights.by_class);
        let weight = |class: usize| by_class.map_or(1.0, |weights| f64::from(weights[class]));
        match &self.labels {
            Labels::One { class, .. } => {
                let class = usize::try_from(class.get(v)?).ok()?;
                let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
                let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
                let loss = sum.ln() + largest - f64::from(logits[class]);
                Some([weight(class) * loss, weight(class)])
            }
            Labels::Several(labels) => {
                let of_class = |(class, (&logit, cell)): (usize, (&f32, _))| match cell {
                    Some(true) => weight(class) * softplus(-f64::from(logit)),
                    Some(false) => softplus(f64::from(logit)),
                    None => 0.0,
                };
                let share = f64::from(labels.num_known(v)?) / f64::from(labels.num_classes());
                let loss = logits.iter().zip(labels.cells(v)).enumerate().map(of_class).sum();
                Some([loss, share])
            }
            Labels::Number { number, scale } => {
                let actual = number.get(v).filter(|number| !number.is_nan())?;
                let error = f64::from(logits[0]) - f64::from(scale.scaled(actual));
                let loss = match self.loss {
                    NumberLoss::Mse => error * error,
                    NumberLoss::Mae => error.abs(),
                };
                Some([loss, 1.0])
            }
        }
    }
}

/// The labels of a mini-batch's seeds.
#[derive(Clone, Copy)]
pub struct NodeTargets<'a> {
    task: &'a NodeTask,
    /// Weight of the labelled seeds of the global mini-batch, by which the loss is divided.
    /// Averaging the ranks' own means instead would be wrong if ranks hold unequal numbers of
    /// seeds.
    pub weight: f64,
}

impl NodeTargets<'_> {
    /// The loss of `seeds`, whose logits are `rows`, f32 `[seeds, outputs]`, at `place`, and the
    /// gradient of `scale` times the loss.
    pub fn loss(&self, place: &Place, rows: &Tensor, seeds: &[u32], scale: f32) -> Result<Loss> {
        if seeds.is_empty() {
            return Ok(Loss::default());
        }
        let rows = rows.detach().set_requires_grad(true);
        let weights = self
            .task
            .weights
            .as_ref()
            .map(|weights| place.upload(&weights.by_class))
            .transpose()?;
        let (sum, correct, counted) = match &self.task.labels {
            Labels::One { class, .. } => {
                let classes = held(seeds, |v| class.get(v))?;
                let counted =
                    classes.iter().filter(|&&label| i64::from(label) != UNLABELLED).count() as u64;
                let classes = place.upload(&classes)?.f_to_kind(Kind::Int64)?;
                let sum = rows.f_cross_entropy_loss(
                    &classes,
                    weights.as_ref(),
                    Reduction::Sum,
                    UNLABELLED,
                    0.0,
                )?;
                (sum, rows.argmax(1, false).eq_tensor(&classes), counted)
            }
            Labels::Several(labels) => {
                let matrix = |flag: fn(Option<bool>) -> bool| -> Result<Tensor> {
                    let cells = seeds.iter().flat_map(|&v| labels.cells(v));
                    let flags = cells.map(|cell| u8::from(flag(cell))).collect::<Vec<u8>>();
                    let shape = [seeds.len() as i64, i64::from(labels.num_classes())];
                    Ok(place.upload(&flags)?.f_to_kind(Kind::Float)?.f_view(shape)?)
                };
                let wanted = matrix(|cell| cell == Some(true))?;
                let known = labels.lacks_cells().then(|| matrix(|cell| cell.is_some()));
                let known = known.transpose()?;
                let sum = rows.f_binary_cross_entropy_with_logits(
                    &wanted,
                    known.as_ref(),
                    weights.as_ref(),
                    Reduction::Sum,
                )?;
                let right = rows.gt(0.0).eq_tensor(&wanted.gt(0.5));
                let right = match known {
                    Some(known) => right.f_mul(&known)?,
                    None => right,
                };
                let counted = seeds.iter().filter_map(|&v| labels.num_known(v)).map(u64::from);
                (sum, right, counted.sum())
            }
            Labels::Number { number, scale } => {
                let numbers = held(seeds, |v| number.get(v))?;
                let known: Vec<f32> =
                    numbers.iter().map(|number| if number.is_nan() { 0.0 } else { 1.0 }).collect();
                let wanted = numbers
                    .iter()
                    .map(|&number| if number.is_nan() { 0.0 } else { scale.scaled(number) });
                let (wanted, known) =
                    (place.upload(&wanted.collect::<Vec<f32>>())?, place.upload(&known)?);
                let errors = rows.f_view(-1)?.f_sub(&wanted)?.f_mul(&known)?;
                let errors = match self.task.loss {
                    NumberLoss::Mse => errors.f_square()?,
                    NumberLoss::Mae => errors.f_abs()?,
                };
                // There are no decisions.
                (
                    errors.f_sum(Kind::Float)?,
                    Tensor::f_zeros([1], (Kind::Float, place.device()))?,
                    0,
                )
            }
        };
        let loss = sum / if self.weight > 0.0 { self.weight } else { 1.0 };
        loss.f_backward()?;
        let mut gradient = rows.grad();
        if scale != 1.0 {
            let _ = gradient.f_mul_scalar_(f64::from(scale))?;
        }
        let numbers = [loss.detach().f_to_kind(Kind::Double)?, correct.f_sum(Kind::Double)?];
        Ok(Loss { numbers: Some(Tensor::f_stack(&numbers, 0)?), counted, gradient: Some(gradient) })
    }
}

/// ln(1 + e^x), without overflow.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// The label of each of `seeds`.
fn held<T>(seeds: &[u32], label: impl Fn(u32) -> Option<T>) -> Result<Vec<T>> {
    let unknown = |v| Error::Option(format!("the label of seed {v} is not on this host"));
    seeds.iter().map(|&v| label(v).ok_or_else(|| unknown(v))).collect()
}
