//! One mini-batch on one rank: forward, loss, backward, update.
//!
//! Forward and backward, with the exchanges between layers: `pass.rs`.

use std::time::Instant;

use gsplit_kernels::{Communicator, Graph};
use tch::{Kind, Reduction, Tensor};

use crate::batch::Loaded;
use crate::model::{DropoutKey, Model};
use crate::optimizer::Optimizer;
use crate::pass::{Pass, backward, forward};
use crate::report::StepReport;
use crate::{Result, autograd};

/// Label of a seed that is left out of the loss.
const UNLABELLED: i64 = -1;

/// What a mini-batch is to learn.
#[derive(Clone, Copy, Debug)]
pub struct Targets<'a> {
    /// Class of every vertex of the graph, -1 for unlabelled.
    pub labels: &'a [i32],
    /// Labelled seeds of the global mini-batch, which the loss is the mean over. Averaging the ranks' own means instead
    /// would be wrong wherever ranks hold unequal numbers of seeds.
    pub labelled: usize,
}

impl<'a> Targets<'a> {
    /// The targets of the global mini-batch `batch`.
    pub fn of(batch: &[u32], labels: &'a [i32]) -> Self {
        Self { labels, labelled: batch.iter().filter(|&&v| labels[v as usize] >= 0).count() }
    }
}

/// Runs the mini-batch and updates the parameters. Collective.
pub fn train_step(
    model: &Model,
    optimizer: &mut Optimizer,
    batch: Loaded<'_>,
    graph: Graph<'_>,
    targets: Targets<'_>,
    dropout: DropoutKey,
    comm: &dyn Communicator,
) -> Result<StepReport> {
    let started = Instant::now();
    let mut report = StepReport::default();
    let pass = forward(model, batch, graph, Some(dropout), comm, &mut report)?;
    let (loss, correct, counted) = loss(&pass, targets);
    report.loss = loss.double_value(&[]);
    (report.correct, report.counted) = (correct, counted);
    backward(pass, loss, comm, &mut report)?;
    let reducing = Instant::now();
    let update = optimizer.update(model.parameters(), comm)?;
    (report.gradient_norm, report.learning_rate) = (update.gradient_norm, update.learning_rate);
    report.timings.exchange_s += reducing.elapsed().as_secs_f64();
    report.timings.compute_s = started.elapsed().as_secs_f64() - report.timings.exchange_s;
    Ok(report)
}

/// This rank's share of the mean loss over the global mini-batch, the seeds it classified rightly, and those it counted.
fn loss(pass: &Pass<'_>, targets: Targets<'_>) -> (Tensor, u64, u64) {
    let seeds = pass.seeds();
    let options = (Kind::Float, tch::Device::Cpu);
    if seeds.is_empty() {
        return (Tensor::zeros([] as [i64; 0], options), 0, 0);
    }
    let classes: Vec<i64> = seeds.iter().map(|&v| i64::from(targets.labels[v as usize])).collect();
    let counted = classes.iter().filter(|&&label| label != UNLABELLED).count() as u64;
    let classes = Tensor::from_slice(&classes);
    let sum = pass.logits().cross_entropy_loss::<Tensor>(&classes, None, Reduction::Sum, UNLABELLED, 0.0);
    let correct = pass.logits().argmax(1, false).eq_tensor(&classes).sum(Kind::Int64).int64_value(&[]);
    (sum / targets.labelled.max(1) as f64, correct as u64, counted)
}

/// A tensor of `rows × dim` values, on their memory.
pub fn from_rows(values: Vec<f32>, rows: usize, dim: usize) -> Result<Tensor> {
    autograd::adopt(values, &[rows as i64, dim as i64])
}

/// The values of a tensor, row after row.
pub fn to_rows(tensor: &Tensor) -> Result<Vec<f32>> {
    let tensor = tensor.detach().contiguous();
    let mut values = vec![0f32; tensor.numel()];
    tensor.f_copy_data(&mut values, tensor.numel())?;
    Ok(values)
}
