//! One layer of a pass: forward and backward, and the values that the tape keeps in between.
//!
//! torch's autograd works inside a layer. The input of a layer is a leaf tensor, and its backward
//! is started separately once the gradient of its output is complete.
//!
//! ```text
//! forward    read ─▶ body ─▶ pre-activation ─▶ tail (norm, activation, residual ...) ─▶ rows
//! backward   the same way back: tail, body, then the rows that were read
//! ```
//!
//! Steps that a reader may skip: [`LayerTape::residual`] (rows that a residual adds),
//! [`LayerTape::read_again`] (activation checkpointing), `moments.rs` (batch norm over ranks), and
//! in `body` the bottom layer by columns (P3).

use std::sync::Arc;

use tch::Tensor;

use super::pass::Pass;
use crate::model::{Frontier, LayerEdges};
use crate::operator::{Moments, ReluAbove, Rows};
use crate::ranks::clock::Clock;
use crate::ranks::comms::Ranks;
use crate::residence::source::InputRows;
use crate::sample::SampledLayer;
use crate::{Result, autograd};

/// Record of a computed layer on the tape.
pub(super) struct Taped {
    /// Rows of the mixed frontier: a leaf; `None` if they are stored rows or are to be recomputed.
    read: Option<Tensor>,
    /// Pre-activation of the layer below, of the frontier's rows, if a residual added it: a leaf.
    residual: Option<Tensor>,
    /// Result of the body, unless it is to be recomputed.
    body: Option<Tensor>,
    tail: Option<Tail>,
    /// Lets the layer above compute the gradient before ReLU.
    above: Option<Arc<ReluAbove>>,
}

/// The part of a layer after its pre-activation, if it runs separately.
struct Tail {
    /// Its input: a leaf.
    pre_activation: Tensor,
    moments: Option<Moments>,
    /// Result, unless it is to be recomputed.
    rows: Option<Tensor>,
}

/// Gradients that a layer passes down. Undefined ones are zero.
pub(super) struct Below {
    /// Rows that the layer read, with their gradient; `None` if they were stored rows.
    pub read: Option<Tensor>,
    /// Gradient of the pre-activation below, from the residual.
    pub of_residual: Tensor,
}

/// Layer `index` of `pass`, from the features upwards.
pub(super) struct LayerTape<'p, 'a> {
    pub pass: &'p Pass<'a>,
    pub index: usize,
}

impl LayerTape<'_, '_> {
    /// The layer's sample.
    pub fn sampled(&self) -> &SampledLayer {
        let layers = &self.pass.batch.sampled.layers;
        &layers[layers.len() - 1 - self.index]
    }

    /// Shape of its rows.
    pub fn shape(&self) -> [usize; 2] {
        [self.sampled().frontier.len(), self.pass.model.width(self.index)]
    }

    /// Computes its rows from the rows that it reads, and its record for the tape. Collective with
    /// batch norm.
    pub fn forward(
        &self,
        read: Option<Tensor>,
        comm: Ranks<'_>,
        clock: &mut Clock<'_>,
    ) -> Result<(Tensor, Taped)> {
        let model = self.pass.model;
        let keep = !model.checkpoints_activations();
        let residual = self.residual(comm)?;
        let above = self.above().filter(|above| above.sampled().exchange.is_identity());
        let above = above.and_then(|_| model.relu_above(self.index, self.pass.dropout));
        let body = recorded(keep, || self.body(read.as_ref(), residual.as_ref(), above.clone()))?;
        let mut rows = body.detach();
        let mut tail = None;
        if model.has_tail(self.index) {
            let pre_activation = body.detach().set_requires_grad(true);
            let moments = clock.exchange(|| self.moments(&pre_activation, comm))?;
            let result = recorded(keep, || self.tail(&pre_activation, moments.as_ref()))?;
            rows = result.detach();
            tail = Some(Tail { pre_activation, moments, rows: keep.then_some(result) });
        }
        let read = read.filter(|_| keep || !self.follows_from_tape());
        Ok((rows, Taped { read, residual, body: keep.then_some(body), tail, above }))
    }

    /// Passes the gradient of its rows to the rows that it read, and to the parameters.
    /// `of_pre_activation` is the gradient from the residual of the layer above. Collective with
    /// batch norm.
    pub fn backward(
        &self,
        taped: Taped,
        of_rows: Tensor,
        of_pre_activation: Tensor,
        comm: Ranks<'_>,
        clock: &mut Clock<'_>,
    ) -> Result<Below> {
        let Taped { read, residual, body, tail, above } = taped;
        let of_body = match &tail {
            Some(tail) => {
                let of_tail = self.tail_backward(tail, of_rows, comm, clock)?;
                with_first(of_tail, of_pre_activation, self.shape())?
            }
            None => of_rows,
        };
        let read = match read {
            None => self.read_again()?,
            read => read,
        };
        if of_body.defined() && self.shape()[0] > 0 {
            let body = match body {
                Some(body) => body,
                None => self.body(read.as_ref(), residual.as_ref(), above)?,
            };
            if body.requires_grad() {
                autograd::backward(&body, &of_body)?;
            }
        }
        let of_residual = match residual {
            Some(residual) if self.sampled().exchange.is_in_order() => {
                self.rows_backward(residual, comm)?
            }
            residual => residual.map_or_else(Tensor::new, |residual| residual.grad()),
        };
        Ok(Below { read, of_residual })
    }

    /// Gradient of the rows below, from that of `read`, the rows that the layer read or the first
    /// of them. Collective if rows are exchanged.
    pub fn rows_backward(&self, read: Tensor, comm: Ranks<'_>) -> Result<Tensor> {
        let (layer, dim, kind) = (self.sampled(), read.size()[1] as usize, read.kind());
        let gradient = read.grad();
        drop(read);
        if layer.exchange.is_identity() {
            return Ok(gradient);
        }
        let (place, rows) = (self.pass.model.place(), layer.read.len());
        let gradient = match gradient.defined() {
            true => with_first(Tensor::new(), gradient, [rows, dim])?,
            false => Tensor::f_zeros([rows as i64, dim as i64], (kind, place.device()))?,
        };
        layer.exchange.backward_at(place, comm.group, gradient, dim)
    }

    fn body(
        &self,
        read: Option<&Tensor>,
        residual: Option<&Tensor>,
        above: Option<Arc<ReluAbove>>,
    ) -> Result<Tensor> {
        let (pass, layer) = (self.pass, self.sampled());
        let on_gpu = pass.batch.sampled.on_gpu.as_ref().map(|on_gpu| on_gpu.graph);
        let edges = LayerEdges::made(pass.graph, on_gpu, layer.edges.clone(), layer.read.clone())
            .into_rows_of(layer.frontier.len());
        let frontier = Frontier { above, ..self.frontier() };
        let rows = match read {
            // P3 only: the bottom layer starts from sums over the columns of all ranks.
            Some(sums) if self.index == 0 && pass.push_pull.is_some() => {
                return pass.model.complete(&edges, sums, frontier, pass.dropout);
            }
            Some(rows) => match self
                .pass
                .tape
                .get(self.index.wrapping_sub(1))
                .and_then(|below| below.above.as_deref())
            {
                Some(relu) => Rows::AfterRelu(rows, relu),
                None => Rows::Hidden(rows),
            },
            None => match &pass.batch.input_rows {
                InputRows::Kept(rows) => Rows::Kept(rows.as_ref()),
                _ => {
                    Rows::Stored { features: pass.batch.features, vertices: layer.read.on_host()? }
                }
            },
        };
        pass.model.body(self.index, &edges, rows, residual, frontier, pass.dropout)
    }

    fn tail(&self, pre_activation: &Tensor, moments: Option<&Moments>) -> Result<Tensor> {
        self.pass.model.tail(
            self.index,
            pre_activation,
            moments,
            self.frontier(),
            self.pass.dropout,
        )
    }

    /// Gradient of the pre-activation, from that of the rows. Collective with batch norm.
    fn tail_backward(
        &self,
        tail: &Tail,
        of_rows: Tensor,
        comm: Ranks<'_>,
        clock: &mut Clock<'_>,
    ) -> Result<Tensor> {
        if of_rows.defined() && of_rows.size()[0] > 0 {
            let rows = match &tail.rows {
                Some(rows) => rows.shallow_clone(),
                None => self.tail(&tail.pre_activation, tail.moments.as_ref())?,
            };
            autograd::backward(&rows, &of_rows)?;
        }
        let gradient = tail.pre_activation.grad();
        let Some(moments) = &tail.moments else { return Ok(gradient) };
        let gradient = if gradient.defined() {
            gradient
        } else {
            tail.pre_activation.detach().f_zeros_like()?
        };
        clock.exchange(|| moments.correct(&tail.pre_activation, &gradient, comm.all))
    }

    /// Vertices of its rows, with room for the rows that the exchange above brings.
    fn frontier(&self) -> Frontier {
        let room = self.above().map_or(0, |above| above.sampled().exchange.rows_received());
        Frontier { vertices: self.sampled().frontier.clone(), room, above: None }
    }

    /// The layer above.
    fn above(&self) -> Option<Self> {
        let above = Self { pass: self.pass, index: self.index + 1 };
        (above.index < self.pass.model.num_layers()).then_some(above)
    }

    /// Pre-activation of the layer below, of the rows that this one computes, if a residual adds
    /// it: a leaf. Collective if ranks share these rows.
    fn residual(&self, comm: Ranks<'_>) -> Result<Option<Tensor>> {
        let (layer, model) = (self.sampled(), self.pass.model);
        let Some(Taped { tail: Some(tail), .. }) =
            self.pass.tape.last().filter(|_| model.adds_sums(self.index))
        else {
            return Ok(None);
        };
        let mut rows = tail.pre_activation.detach();
        if layer.exchange.is_in_order() {
            rows = layer.exchange.forward_at(
                model.place(),
                comm.group,
                Some(rows),
                model.width(self.index - 1),
            )?;
        }
        Ok(Some(rows.f_narrow(0, 0, layer.frontier.len() as i64)?.set_requires_grad(true)))
    }

    /// Whether its input can be recomputed by the tail below, from a pre-activation on the tape.
    fn follows_from_tape(&self) -> bool {
        self.index > 0
            && self.pass.model.has_tail(self.index - 1)
            && self.sampled().exchange.is_identity()
    }

    /// Recomputes the rows that it read: a leaf. `None` if they were stored rows. The layer is off
    /// the tape already.
    fn read_again(&self) -> Result<Option<Tensor>> {
        let Some(Taped { tail: Some(tail), .. }) =
            self.pass.tape.last().filter(|_| self.follows_from_tape())
        else {
            return Ok(None);
        };
        let below = LayerTape { pass: self.pass, index: self.index - 1 };
        let rows = recorded(false, || below.tail(&tail.pre_activation, tail.moments.as_ref()))?;
        Ok(Some(rows.set_requires_grad(true)))
    }
}

/// Runs `body`, recording torch's graph only with `keep`.
fn recorded(keep: bool, body: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
    if keep { body() } else { tch::no_grad(body) }
}

/// Adds `part` to the first rows of `total`; an undefined one counts as zero. `shape` is the shape
/// of the result.
pub(super) fn with_first(total: Tensor, part: Tensor, shape: [usize; 2]) -> Result<Tensor> {
    if !part.defined() {
        return Ok(total);
    }
    let [rows, width] = shape.map(|dim| dim as i64);
    if !total.defined() && part.size()[0] == rows {
        return Ok(part);
    }
    let total = match total.defined() {
        true => total,
        false => Tensor::f_zeros([rows, width], (part.kind(), part.device()))?,
    };
    let _ = total.f_narrow(0, 0, part.size()[0])?.f_add_(&part)?;
    Ok(total)
}
