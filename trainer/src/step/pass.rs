//! Forward and backward of one mini-batch on one rank, between which the loss stands.
//!
//! torch's autograd works inside a layer; between layers stand the exchanges, and inside some the sums over all ranks of
//! batch norm. What a layer reads is a leaf tensor, and its backward is started on its own once the gradient of what it
//! returned is complete. No collective ever runs inside torch's backward pass, so ranks that share a device cannot wait
//! for each other there.
//!
//! A layer's rows are read by up to three others: by the layer above through the exchange, by its residual, and by the
//! logits. The latter two read the first rows alone, because a local frontier starts with the one above it: they
//! need no exchange, and their gradients are added to those rows. (Not so where ranks share the frontier above and a map holds the
//! one below: there the sums that the residual adds are exchanged as well.)
//!
//! With activation checkpointing (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016) forward keeps one
//! matrix a layer, and backward computes what layers have inside again: the same operations on the same values, so the same
//! bits. Kept are the rows that a layer reads; in pre-activation models, where these follow from the sums below, the sums.
//! Rows that came from other ranks and the statistics of batch norm are kept too, so nothing collective is repeated.

use std::time::Instant;

use gsplit_kernels::{DeviceOwners, Graph};
use tch::{Kind, Tensor};

use crate::batch::PushPull;
use crate::model::{DropoutKey, Frontier, LayerEdges, Model};
use crate::operator::Ids;
use crate::operator::Place;
use crate::operator::{Moments, Rows};
use crate::ranks::comms::Ranks;
use crate::report::StepReport;
use crate::residence::source::Loaded;
use crate::sample::SampledLayer;
use crate::{Exchange, Result, autograd};

/// What forward leaves for the loss and for backward.
pub struct Pass<'a> {
    model: &'a Model,
    graph: Graph<'a>,
    dropout: Option<DropoutKey>,
    batch: Loaded<'a>,
    /// The bottom layers of all ranks, where each is computed by columns: what the bottom layer then reads are sums.
    push_pull: Option<PushPull<'a>>,
    /// One entry for each layer from the features upwards.
    tape: Vec<Taped>,
    /// The layers whose rows of the seeds the logits are made of, and those rows: leaves.
    read: Vec<(usize, Tensor)>,
    logits: Tensor,
}

/// A layer that was computed.
struct Taped {
    /// The rows of the mixed frontier: a leaf, if these were not stored rows and are not to be computed again.
    mixed: Option<Tensor>,
    /// The frontier's rows of the sums of the layer below, where they were added: a leaf.
    below: Option<Tensor>,
    /// What was computed of them, unless it is to be computed again.
    body: Option<Tensor>,
    tail: Option<Tail>,
}

/// The part of a layer that stands apart.
struct Tail {
    /// The sums that it read: a leaf.
    sums: Tensor,
    moments: Option<Moments>,
    /// What was computed of them, unless it is to be computed again.
    rows: Option<Tensor>,
}

impl Pass<'_> {
    /// f32 `[my seeds, classes]`, or empty. Their gradients flow to the layers' in [`backward`].
    pub fn logits(&self) -> &Tensor {
        &self.logits
    }

    /// The seeds that the rows of [`Pass::logits`] belong to.
    pub fn seeds(&self) -> &Ids {
        &self.batch.sampled.layers[0].frontier
    }

    /// Layer `index` from the features upwards, as it was sampled.
    fn layer(&self, index: usize) -> &SampledLayer {
        &self.batch.sampled.layers[self.batch.sampled.layers.len() - 1 - index]
    }

    fn body(&self, index: usize, mixed: Option<&Tensor>, below: Option<&Tensor>) -> Result<Tensor> {
        let layer = self.layer(index);
        let there = self.batch.sampled.there.as_ref().map(|there| there.graph);
        let edges = LayerEdges::made(self.graph, there, layer.edges.clone(), layer.read.clone())
            .with_drawn(layer.drawn.clone());
        let rows = match mixed {
            Some(sums) if index == 0 && self.push_pull.is_some() => {
                return self.model.complete(&edges, sums, self.frontier(0), self.dropout);
            }
            Some(rows) => Rows::Hidden(rows),
            None => Rows::Stored { features: self.batch.features, vertices: layer.read.on_host()? },
        };
        self.model.body(index, &edges, rows, below, self.frontier(index), self.dropout)
    }

    fn tail(&self, index: usize, sums: &Tensor, moments: Option<&Moments>) -> Result<Tensor> {
        self.model.tail(index, sums, moments, self.frontier(index), self.dropout)
    }

    /// Whose rows layer `index` computes, with room for what the exchange above brings.
    fn frontier(&self, index: usize) -> Frontier {
        let room = if index + 1 < self.model.num_layers() { self.layer(index + 1).exchange.rows_received() } else { 0 };
        Frontier { vertices: self.layer(index).frontier.clone(), room }
    }

    /// Whether the rows that layer `index` reads are what a tail makes of sums that the tape holds.
    fn follows_from_sums(&self, index: usize) -> bool {
        index > 0 && self.model.has_tail(index - 1) && self.layer(index).exchange.is_identity()
    }

    /// The rows that layer `index` read, a leaf, where they were not stored rows. Layer `index` is off the tape already.
    fn mixed_again(&self, index: usize) -> Result<Option<Tensor>> {
        let Some(Taped { tail: Some(tail), .. }) = self.tape.last().filter(|_| self.follows_from_sums(index)) else {
            return Ok(None);
        };
        let rows = recorded(false, || self.tail(index - 1, &tail.sums, tail.moments.as_ref()))?;
        Ok(Some(rows.set_requires_grad(true)))
    }

    /// The sums of the layer below, `tail`, of the rows that layer `index` computes: a leaf. Collective where ranks share these rows.
    fn own_sums(&self, index: usize, tail: &Tail, comm: Ranks<'_>) -> Result<Tensor> {
        let (layer, width, mut sums) = (self.layer(index), self.model.width(index - 1), tail.sums.detach());
        if layer.exchange.is_in_order() {
            sums = layer.exchange.forward_at(self.model.place(), comm.group, Some(sums), width)?;
        }
        Ok(sums.f_narrow(0, 0, layer.frontier.len() as i64)?.set_requires_grad(true))
    }

    /// Computes layer `index`, puts it on the tape and returns its rows. Collective where batch norm is.
    fn compute(
        &mut self,
        index: usize,
        mixed: Option<Tensor>,
        comm: Ranks<'_>,
        report: &mut StepReport,
    ) -> Result<Tensor> {
        let keep = !self.model.checkpoints_activations();
        let below = match self.tape.last() {
            Some(Taped { tail: Some(tail), .. }) if self.model.adds_sums(index) => {
                Some(self.own_sums(index, tail, comm)?)
            }
            _ => None,
        };
        let body = recorded(keep, || self.body(index, mixed.as_ref(), below.as_ref()))?;
        let mut rows = body.detach();
        let tail = match self.model.has_tail(index) {
            true => {
                let sums = body.detach().set_requires_grad(true);
                let measuring = Instant::now();
                let moments = match self.dropout.is_some() && self.model.needs_moments(index) {
                    true => {
                        let place = self.model.place();
                        Some(Moments::of(place, &sums, shares(place, self.layer(index), comm)?, comm.all)?)
                    }
                    false => None,
                };
                report.timings.exchange_s += measuring.elapsed().as_secs_f64();
                if let Some(moments) = &moments {
                    self.model.observe(index, moments)?;
                }
                let out = recorded(keep, || self.tail(index, &sums, moments.as_ref()))?;
                rows = out.detach();
                Some(Tail { sums, moments, rows: keep.then_some(out) })
            }
            false => None,
        };
        let mixed = mixed.filter(|_| keep || !self.follows_from_sums(index));
        self.tape.push(Taped { mixed, below, body: keep.then_some(body), tail });
        Ok(rows)
    }
}

/// Computes the logits of this rank's seeds; for training if there is a key for `dropout`. Collective.
pub fn forward<'a>(
    model: &'a Model,
    mut batch: Loaded<'a>,
    push_pull: Option<PushPull<'a>>,
    graph: Graph<'a>,
    dropout: Option<DropoutKey>,
    comm: Ranks<'_>,
    report: &mut StepReport,
) -> Result<Pass<'a>> {
    let place = model.place();
    let input_rows = std::mem::take(&mut batch.input_rows);
    let nothing = Tensor::zeros([0, 0], (Kind::Float, place.device()));
    let (tape, read) = (Vec::new(), Vec::new());
    let mut pass = Pass { model, graph, dropout, batch, push_pull, tape, read, logits: nothing };
    let exchanging = Instant::now();
    let mut mixed = match &mut pass.push_pull {
        Some(push_pull) => {
            let keep = !model.checkpoints_activations();
            let sums = push_pull.forward((model, graph), keep, comm.group, &mut report.timings.exchange_s)?;
            Some(sums.set_requires_grad(true))
        }
        None => {
            let rows = input_rows.into_tensor(place, pass.layer(0), pass.batch.features.dim(), comm.group)?;
            report.timings.exchange_s += exchanging.elapsed().as_secs_f64();
            rows
        }
    };
    for index in 0..model.num_layers() {
        let computed = pass.compute(index, mixed, comm, report)?;
        if model.logits_of().contains(&index) {
            let seeds = computed.detach().f_narrow(0, 0, pass.seeds().len() as i64)?;
            pass.read.push((index, seeds.set_requires_grad(true)));
        }
        let exchanging = Instant::now();
        mixed = match index + 1 < model.num_layers() {
            true => {
                let rows =
                    pass.layer(index + 1).exchange.forward_at(place, comm.group, Some(computed), model.width(index))?;
                Some(rows.set_requires_grad(true))
            }
            false => None,
        };
        report.timings.exchange_s += exchanging.elapsed().as_secs_f64();
    }
    pass.logits = model.logits(&pass.read.iter().map(|(_, rows)| rows).collect::<Vec<_>>())?;
    Ok(pass)
}

/// Gradients of the parameters from that of the logits, zero where there is none; from the top layer down. Collective.
pub fn backward(mut pass: Pass<'_>, of_logits: Option<Tensor>, comm: Ranks<'_>, report: &mut StepReport) -> Result<()> {
    if let Some(of_logits) = of_logits.filter(|_| pass.logits.requires_grad()) {
        autograd::backward(&pass.logits, &of_logits)?;
    }
    let (mut of_rows, mut of_sums) = (Tensor::new(), Tensor::new());
    for index in (0..pass.model.num_layers()).rev() {
        // What the layer kept for backward is free when it has gone through it.
        let Some(taped) = pass.tape.pop() else { break };
        let shape = [pass.layer(index).frontier.len(), pass.model.width(index)];
        if let Some((_, seeds)) = pass.read.pop_if(|(layer, _)| *layer == index) {
            of_rows = with_first(of_rows, seeds.grad(), shape);
        }
        if let Some(tail) = &taped.tail {
            of_rows = tail_backward(&pass, index, tail, of_rows, comm, report)?;
            of_rows = with_first(of_rows, of_sums, shape);
        }
        let mixed = match taped.mixed {
            None => pass.mixed_again(index)?,
            mixed => mixed,
        };
        if of_rows.defined() && shape[0] > 0 {
            let body = match &taped.body {
                Some(body) => body.shallow_clone(),
                None => pass.body(index, mixed.as_ref(), taped.below.as_ref())?,
            };
            if body.requires_grad() {
                autograd::backward(&body, &of_rows)?;
            }
        }
        let layer = pass.layer(index);
        of_sums = match taped.below {
            Some(below) if layer.exchange.is_in_order() => rows_backward(&pass, index, below, comm)?,
            below => below.map_or_else(Tensor::new, |below| below.grad()),
        };
        let Some(mixed) = mixed else { break };
        if index == 0 {
            let Some(push_pull) = pass.push_pull.take() else { break };
            let through = (pass.model, pass.graph);
            push_pull.backward(through, &mixed.grad(), comm.group, &mut report.timings.exchange_s)?;
            break;
        }
        let exchanging = Instant::now();
        of_rows = rows_backward(&pass, index, mixed, comm)?;
        report.timings.exchange_s += exchanging.elapsed().as_secs_f64();
    }
    Ok(())
}

/// From the gradient of `read`, the rows that layer `index` read or the first of them, to that of the rows below. Collective where
/// rows are exchanged.
fn rows_backward(pass: &Pass<'_>, index: usize, read: Tensor, comm: Ranks<'_>) -> Result<Tensor> {
    let (layer, dim, kind) = (pass.layer(index), read.size()[1] as usize, read.kind());
    let gradient = read.grad();
    drop(read);
    if layer.exchange.is_identity() {
        return Ok(gradient);
    }
    let (place, rows) = (pass.model.place(), layer.read.len());
    let gradient = match gradient.defined() {
        true => with_first(Tensor::new(), gradient, [rows, dim]),
        false => Tensor::zeros([rows as i64, dim as i64], (kind, place.device())),
    };
    layer.exchange.backward_at(place, comm.group, gradient, dim)
}

/// From the gradient of a layer's rows to that of its sums, without what the layer above adds of them. Collective where
/// batch norm is.
fn tail_backward(
    pass: &Pass<'_>,
    index: usize,
    tail: &Tail,
    of_rows: Tensor,
    comm: Ranks<'_>,
    report: &mut StepReport,
) -> Result<Tensor> {
    if of_rows.defined() && of_rows.size()[0] > 0 {
        let rows = match &tail.rows {
            Some(rows) => rows.shallow_clone(),
            None => pass.tail(index, &tail.sums, tail.moments.as_ref())?,
        };
        autograd::backward(&rows, &of_rows)?;
    }
    let gradient = tail.sums.grad();
    let Some(moments) = &tail.moments else { return Ok(gradient) };
    let gradient = if gradient.defined() { gradient } else { tail.sums.detach().zeros_like() };
    let measuring = Instant::now();
    let gradient = moments.correct(pass.model.place(), &tail.sums, &gradient, comm.all)?;
    report.timings.exchange_s += measuring.elapsed().as_secs_f64();
    Ok(gradient)
}

/// Runs `body` with or without torch's graph.
fn recorded(keep: bool, body: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
    if keep { body() } else { tch::no_grad(body) }
}

/// How much each row of a layer counts where ranks share rows, f32 `[rows]` at `place`: 1 over the number of ranks that hold it.
/// `None` where each is on one rank. Collective.
fn shares(place: &Place, layer: &SampledLayer, comm: Ranks<'_>) -> Result<Option<Tensor>> {
    // Under a partition map each is on one rank of every group.
    if !(comm.are_grouped() || layer.replicated && comm.all.size() > 1) {
        return Ok(None);
    }
    // Somebody counts each vertex: its number decides who.
    let (comm, ranks) = (comm.all, comm.all.size());
    let shuffled = match place.gpu() {
        Some(gpu) => Exchange::shuffle_on_device(gpu, comm, layer.frontier.on_gpu(gpu)?, DeviceOwners::InTurn)?,
        None => Exchange::shuffle(comm, layer.frontier.on_host()?, |v| v as usize % ranks)?,
    };
    let exchange = shuffled.in_order(layer.frontier.clone()).exchange;
    let ones = Tensor::f_ones([layer.frontier.len() as i64, 1], (Kind::Float, place.device()))?;
    let holders = exchange.backward_at(place, comm, ones, 1)?;
    let holders = exchange.forward_at(place, comm, Some(holders), 1)?;
    Ok(Some(holders.f_reciprocal()?.f_view(-1)?))
}

/// `total` with `part` added to its first rows; either may be undefined, which is zero. `shape` is that of the result.
fn with_first(total: Tensor, part: Tensor, shape: [usize; 2]) -> Tensor {
    if !part.defined() {
        return total;
    }
    let [rows, width] = shape.map(|dim| dim as i64);
    if !total.defined() && part.size()[0] == rows {
        return part;
    }
    let total = match total.defined() {
        true => total,
        false => Tensor::zeros([rows, width], (part.kind(), part.device())),
    };
    let _ = total.narrow(0, 0, part.size()[0]).g_add_(&part);
    total
}
