//! One mini-batch on one rank: forward, loss, backward, update.
//!
//! torch's autograd works inside a layer; between layers stand the exchanges. Each layer reads a leaf tensor, and its
//! backward is started on its own once the gradient of its output has come back through the exchange above. No collective
//! ever runs inside torch's backward pass, so ranks that share a device cannot wait for each other there.

use std::time::Instant;

use gsplit_kernels::Communicator;
use tch::Tensor;

use crate::batch::Loaded;
use crate::model::{DropoutKey, LayerEdges, Model};
use crate::operator::Rows;
use crate::optimizer::Adam;
use crate::report::StepReport;
use crate::task::Targets;
use crate::{Exchange, Result, autograd};

/// Runs the mini-batch and updates the parameters. Collective.
pub fn train_step(
    model: &Model,
    adam: &mut Adam,
    batch: Loaded<'_>,
    targets: &Targets<'_>,
    dropout: DropoutKey,
    comm: &dyn Communicator,
) -> Result<StepReport> {
    let started = Instant::now();
    let mut report = StepReport::default();
    let pass = forward(model, batch, Some(dropout), comm, &mut report)?;
    let loss = targets.loss(pass.logits(), pass.seeds(), comm)?;
    (report.loss, report.correct, report.counted) = (loss.value, loss.correct, loss.counted);
    backward(pass, loss.gradient, comm, &mut report)?;
    let reducing = Instant::now();
    adam.update(model.parameters(), comm)?;
    report.timings.exchange_s += reducing.elapsed().as_secs_f64();
    report.timings.compute_s = started.elapsed().as_secs_f64() - report.timings.exchange_s;
    Ok(report)
}

/// What forward leaves for backward.
pub struct Pass<'a> {
    batch: Loaded<'a>,
    /// For each layer from the features upwards: the leaf it read, if these were not stored rows, and what it returned.
    tape: Vec<(Option<Tensor>, Tensor)>,
}

impl Pass<'_> {
    /// The vertices of [`Pass::logits`]: this rank's seeds.
    pub fn seeds(&self) -> &[u32] {
        &self.batch.sampled.layers[0].frontier
    }

    /// f32 `[my seeds, outputs]`, or empty.
    pub fn logits(&self) -> &Tensor {
        &self.tape[self.tape.len() - 1].1
    }
}

/// Computes the logits of this rank's seeds. Collective.
pub fn forward<'a>(
    model: &Model,
    mut batch: Loaded<'a>,
    dropout: Option<DropoutKey>,
    comm: &dyn Communicator,
    report: &mut StepReport,
) -> Result<Pass<'a>> {
    let mut tape: Vec<(Option<Tensor>, Tensor)> = Vec::with_capacity(model.num_layers());
    let mut dim = batch.features.dim();
    let shape = [batch.sampled.input.len() as i64, dim as i64];
    let mut rows = batch.input_rows.take().map(|rows| rows.into_tensor(&shape)).transpose()?;
    for (index, layer) in batch.sampled.layers.iter().rev().enumerate() {
        let exchanging = Instant::now();
        let mixed = match (&layer.exchange, rows) {
            (Exchange::Identity, rows) => rows,
            (exchange, rows) => {
                let rows = rows.as_ref().map(to_rows).transpose()?.unwrap_or_default();
                Some(from_rows(exchange.forward(comm, rows, dim)?, layer.mixed.len(), dim)?)
            }
        };
        report.timings.exchange_s += exchanging.elapsed().as_secs_f64();
        let leaf = mixed.map(|mixed| mixed.set_requires_grad(index > 0));
        let edges = LayerEdges::new(&layer.indptr, &layer.local, layer.mixed.len());
        let stored = Rows::Stored { features: batch.features, vertices: &layer.mixed };
        let input = leaf.as_ref().map_or(stored, Rows::Hidden);
        let out = model.layer(index, &edges, input, &layer.frontier, dropout)?;
        dim = model.out_dim(index);
        rows = Some(out.detach());
        tape.push((leaf, out));
    }
    Ok(Pass { batch, tape })
}

/// Gradients of the parameters, from that of the logits down. Collective.
fn backward(
    mut pass: Pass<'_>,
    gradient: Option<Tensor>,
    comm: &dyn Communicator,
    report: &mut StepReport,
) -> Result<()> {
    if let Some(gradient) = gradient {
        autograd::backward(pass.logits(), &gradient)?;
    }
    for layer in &pass.batch.sampled.layers {
        // What the layer kept for backward is free from here on.
        let Some((Some(leaf), _)) = pass.tape.pop() else { break };
        let Some((_, below)) = pass.tape.last() else { break };
        let dim = leaf.size()[1] as usize;
        let gradient = leaf.grad();
        drop(leaf);
        let exchanging = Instant::now();
        let summed = match &layer.exchange {
            Exchange::Identity if !gradient.defined() => continue,
            Exchange::Identity => gradient,
            exchange => {
                let rows = if gradient.defined() { to_rows(&gradient)? } else { vec![0f32; layer.mixed.len() * dim] };
                from_rows(exchange.backward(comm, rows, dim)?, below.size()[0] as usize, dim)?
            }
        };
        report.timings.exchange_s += exchanging.elapsed().as_secs_f64();
        if below.requires_grad() {
            autograd::backward(below, &summed)?;
        }
    }
    Ok(())
}

/// A tensor of `rows × dim` values, on their memory.
pub fn from_rows(values: Vec<f32>, rows: usize, dim: usize) -> Result<Tensor> {
    autograd::adopt(values, &[rows as i64, dim as i64])
}

/// A tensor of `rows × dim` values.
#[cfg(test)]
pub fn to_tensor(values: &[f32], rows: usize, dim: usize) -> Tensor {
    Tensor::from_slice(values).view([rows as i64, dim as i64])
}

/// The values of a tensor, row after row.
pub fn to_rows(tensor: &Tensor) -> Result<Vec<f32>> {
    let tensor = tensor.detach().contiguous();
    let mut values = vec![0f32; tensor.numel()];
    tensor.f_copy_data(&mut values, tensor.numel())?;
    Ok(values)
}
