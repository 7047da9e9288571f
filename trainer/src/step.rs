//! One mini-batch on one rank: forward, loss, backward, update.
//!
//! Forward and backward, with the exchanges between layers: `pass.rs`.

use std::time::Instant;

use gsplit_kernels::Graph;
use tch::Tensor;

use crate::batch::Loaded;
use crate::comms::Ranks;
use crate::model::{DropoutKey, Model};
use crate::optimizer::Optimizer;
use crate::pass::{backward, forward};
use crate::place::on_host;
use crate::report::StepReport;
use crate::task::Targets;
use crate::{Result, autograd};

/// Runs the mini-batch and updates the parameters. Collective.
pub fn train_step(
    model: &Model,
    optimizer: &mut Optimizer,
    batch: Loaded<'_>,
    graph: Graph<'_>,
    targets: &Targets<'_>,
    dropout: DropoutKey,
    comm: Ranks<'_>,
) -> Result<StepReport> {
    let started = Instant::now();
    let mut report = StepReport::default();
    let pass = forward(model, batch, graph, Some(dropout), comm, &mut report)?;
    let loss = targets.loss(model, pass.logits(), pass.seeds().on_host()?, (dropout, optimizer.loss_scale()), comm.group)?;
    (report.loss, report.correct, report.counted) = (loss.value, loss.correct, loss.counted);
    backward(pass, loss.gradient, comm, &mut report)?;
    let reducing = Instant::now();
    let update = optimizer.update(model.parameters(), comm.all)?;
    (report.gradient_norm, report.learning_rate) = (update.gradient_norm, update.learning_rate);
    report.loss_scale = optimizer.scaling().map(|scaling| scaling.scale.into());
    if update.skipped {
        // A loss that is not finite either would spoil the mean.
        (report.loss, report.skipped) = (0.0, 1);
    }
    report.timings.exchange_s += reducing.elapsed().as_secs_f64();
    report.timings.compute_s = started.elapsed().as_secs_f64() - report.timings.exchange_s;
    Ok(report)
}

/// A tensor of `rows × dim` values, on their memory.
pub fn from_rows(values: Vec<f32>, rows: usize, dim: usize) -> Result<Tensor> {
    autograd::adopt(values, &[rows as i64, dim as i64])
}

/// The values of a tensor, row after row.
pub fn to_rows(tensor: &Tensor) -> Result<Vec<f32>> {
    let tensor = on_host(tensor)?;
    let mut values = vec![0f32; tensor.numel()];
    tensor.f_copy_data(&mut values, tensor.numel())?;
    Ok(values)
}
