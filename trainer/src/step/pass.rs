//! Forward and backward of one mini-batch on one rank, with the loss in between: layer after layer,
//! with the exchanges between them.
//!
//! No collective ever runs inside torch's backward pass, so ranks that share a device cannot wait
//! for each other there: the input of a layer is a leaf, and `layer.rs` starts the backward pass of
//! each layer separately.
//!
//! A layer's rows have up to three readers: the layer above through the exchange, its residual, and
//! the logits. The latter two read only the first rows, because a local frontier starts with the
//! one above it: they need no exchange, and their gradients are added to those rows. (If ranks
//! share the frontier above and a map holds the one below, the rows that the residual adds are
//! exchanged as well.)
//!
//! With activation checkpointing (Chen et al., "Training Deep Nets with Sublinear Memory Cost",
//! 2016) forward keeps one matrix per layer, and backward recomputes the inner values of layers:
//! the same operations on the same values, so the same bits. The kept matrix is the layer's input,
//! or in pre-activation models the pre-activation below, if the input follows from it. Rows that
//! came from other ranks and the statistics of batch norm are kept too, so no collective is
//! repeated.

use gsplit_kernels::Graph;
use tch::{Kind, Tensor};

use super::layer::{Below, LayerTape, Taped, with_first};
use crate::batch::PushPull;
use crate::model::{DropoutKey, Encoders, Model};
use crate::operator::Ids;
use crate::ranks::clock::Clock;
use crate::ranks::comms::Ranks;
use crate::residence::source::{InputRows, Loaded};
use crate::{Error, Result, autograd};

/// Results of forward, for the loss and for backward.
pub struct Pass<'a> {
    pub(super) model: &'a Model,
    pub(super) graph: Graph<'a>,
    pub(super) dropout: Option<DropoutKey>,
    pub(super) batch: Loaded<'a>,
    /// P3 only: all ranks' bottom layers, each computed by columns. This rank's then starts from
    /// their sums.
    pub(super) push_pull: Option<PushPull<'a>>,
    /// One entry for each layer from the features upwards.
    pub(super) tape: Vec<Taped>,
    /// Index and seed rows (autograd leaves) of each layer that feeds the logits.
    leaves: Vec<(usize, Tensor)>,
    /// Rows of the vertices that this rank loaded, if they have several types.
    encoded: Option<Tensor>,
    logits: Tensor,
}

impl<'a> Pass<'a> {
    /// Logits, f32 `[my seeds, classes]`, or empty. [`backward`] passes their gradients on to the
    /// layers.
    pub fn logits(&self) -> &Tensor {
        &self.logits
    }

    /// The seeds that the rows of [`Pass::logits`] belong to.
    pub fn seeds(&self) -> &Ids {
        &self.batch.sampled.layers[0].frontier
    }

    /// The rows of the vertices that this rank loaded.
    fn encode(&self, encoders: &Encoders) -> Result<Tensor> {
        let InputRows::ByType(features) = &self.batch.input_rows else {
            return Err(Error::Option("rows that are not read by type".into()));
        };
        let (place, vertices) = (self.model.place(), self.batch.sampled.input.on_host()?);
        let mut looked_up = Vec::new();
        let is_trained = self.dropout.map(|_| &mut looked_up);
        let encoded = encoders.encode(place, vertices, features, is_trained)?;
        self.model.parameters().look_up(looked_up);
        Ok(encoded)
    }

    fn layer(&self, index: usize) -> LayerTape<'_, 'a> {
        LayerTape { pass: self, index }
    }
}

/// Computes the logits of this rank's seeds; for training if there is a key for `dropout`.
/// Collective.
pub fn forward<'a>(
    model: &'a Model,
    batch: Loaded<'a>,
    push_pull: Option<PushPull<'a>>,
    graph: Graph<'a>,
    dropout: Option<DropoutKey>,
    comm: Ranks<'_>,
    clock: &mut Clock<'_>,
) -> Result<Pass<'a>> {
    let place = model.place();
    let logits = Tensor::f_zeros([0, 0], (Kind::Float, place.device()))?;
    let (tape, leaves) = (Vec::new(), Vec::new());
    let encoded = None;
    let mut pass = Pass { model, graph, dropout, batch, push_pull, tape, leaves, encoded, logits };
    let mut read = match &mut pass.push_pull {
        Some(push_pull) => {
            let keep = !model.checkpoints_activations();
            let sums = push_pull.forward(model, graph, keep, comm.group, clock)?;
            Some(sums.set_requires_grad(true))
        }
        None if let Some(encoders) = model.encoders() => {
            let encoded = pass.encode(encoders)?;
            let (rows, width) = (encoded.detach(), encoders.width());
            pass.encoded = Some(encoded);
            let exchange = &pass.batch.sampled.bottom().exchange;
            let rows =
                clock.exchange(|| exchange.forward_at(place, comm.group, Some(rows), width))?;
            Some(rows.set_requires_grad(true))
        }
        None => {
            let Loaded { sampled, input_rows, features, .. } = &mut pass.batch;
            clock.exchange(|| {
                input_rows.take_tensor(place, sampled.bottom(), features.dim(), comm.group)
            })?
        }
    };
    for index in 0..model.num_layers() {
        let (rows, taped) = pass.layer(index).forward(read.take(), comm, clock)?;
        pass.tape.push(taped);
        if model.logits_of().contains(&index) {
            let seeds = rows.detach().f_narrow(0, 0, pass.seeds().len() as i64)?;
            pass.leaves.push((index, seeds.set_requires_grad(true)));
        }
        if index + 1 < model.num_layers() {
            let (above, width) = (pass.layer(index + 1), model.width(index));
            let exchange = &above.sampled().exchange;
            let rows =
                clock.exchange(|| exchange.forward_at(place, comm.group, Some(rows), width))?;
            read = Some(rows.set_requires_grad(true));
        }
    }
    pass.logits = model.logits(&pass.leaves.iter().map(|(_, rows)| rows).collect::<Vec<_>>())?;
    Ok(pass)
}

/// Computes the parameters' gradients from that of the logits (`None` is zero), from the top layer
/// down. Collective.
pub fn backward(
    mut pass: Pass<'_>,
    of_logits: Option<Tensor>,
    comm: Ranks<'_>,
    clock: &mut Clock<'_>,
) -> Result<()> {
    if let Some(of_logits) = of_logits.filter(|_| pass.logits.requires_grad()) {
        autograd::backward(&pass.logits, &of_logits)?;
    }
    let (mut of_rows, mut of_pre_activation) = (Tensor::new(), Tensor::new());
    for index in (0..pass.model.num_layers()).rev() {
        // The values that the layer kept for backward are freed at the end of its iteration.
        let Some(taped) = pass.tape.pop() else { break };
        if let Some((_, seeds)) = pass.leaves.pop_if(|(layer, _)| *layer == index) {
            of_rows = with_first(of_rows, seeds.grad(), pass.layer(index).shape())?;
        }
        let below = pass.layer(index).backward(taped, of_rows, of_pre_activation, comm, clock)?;
        let Below { read: Some(read), of_residual } = below else { break };
        of_pre_activation = of_residual;
        if index == 0
            && let Some(encoded) = pass.encoded.take()
        {
            let of_encoded = clock.exchange(|| pass.layer(index).rows_backward(read, comm))?;
            if of_encoded.defined() && encoded.requires_grad() {
                autograd::backward(&encoded, &of_encoded)?;
            }
            break;
        }
        if index == 0 {
            let Some(push_pull) = pass.push_pull.take() else { break };
            return push_pull.backward(pass.model, pass.graph, &read.grad(), comm.group, clock);
        }
        of_rows = clock.exchange(|| pass.layer(index).rows_backward(read, comm))?;
    }
    Ok(())
}
