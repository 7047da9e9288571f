//! One mini-batch on one rank: forward, loss, backward, update.
//!
//! Forward and backward, with the exchanges between layers: `pass.rs`.

mod numbers;
pub mod pass;

use std::time::Instant;

use gsplit_kernels::{Graph, SentByRoute};

use crate::Result;
use crate::batch::Prepared;
use crate::model::{DropoutKey, Model};
use crate::optimizer::Optimizer;
use crate::ranks::comms::Ranks;
use crate::ranks::traffic::Phase;
use crate::report::StepReport;

use pass::{backward, forward};

pub use numbers::Launched;

/// Launches the mini-batch and the update of the parameters. Collective.
pub fn train_step(
    (model, optimizer): (&Model, &mut Optimizer),
    prepared: Prepared<'_>,
    (graph, dropout): (Graph<'_>, f64),
    comm: Ranks<'_>,
) -> Result<Launched> {
    let (started, waited) = (Instant::now(), comm.waited());
    let Prepared { step, targets, mut batch, push_pull, sent, sample_s, load_s, .. } = prepared;
    let mut report =
        StepReport { work: numbers::counted(&batch.sampled, model, batch.features.dim()), ..StepReport::default() };
    report.work.sent = sent;
    (report.work.rows_cached, report.work.rows_from_peers) = (batch.counted.own as u64, batch.counted.peer as u64);
    let mut meter = Meter { comm, before: comm.sent() };
    let (hits, dropout) = (batch.hits.take(), DropoutKey { probability: dropout, step });

    let pass = forward(model, batch, push_pull, graph, Some(dropout), comm, &mut report)?;
    meter.end(Phase::Forward, &mut report);
    let scaled = (dropout, optimizer.loss_scale());
    let loss = targets.loss(model, pass.logits(), pass.seeds().on_host()?, scaled, comm.group)?;
    meter.end(Phase::Loss, &mut report);
    backward(pass, loss.gradient, comm, &mut report)?;
    meter.end(Phase::Backward, &mut report);
    let reducing = Instant::now();
    let update = optimizer.update(model.parameters(), comm.all)?;
    report.timings.exchange_s += reducing.elapsed().as_secs_f64();
    meter.end(Phase::Update, &mut report);

    (report.num_losses, report.counted, report.learning_rate) =
        (targets.num_losses(), loss.counted, update.learning_rate);
    report.loss_scale = optimizer.scaling().map(|scaling| scaling.scale.into());
    report.skipped = update.skipped.into();
    (report.timings.sample_s, report.timings.load_s) = (sample_s, load_s);
    report.timings.wait_s = (comm.waited() - waited).as_secs_f64();
    let exchange_s = report.timings.exchange_s;
    let mut launched = Launched::new(model.place(), loss.numbers.as_ref(), &update, hits.as_ref(), report)?;
    launched.took(started.elapsed().as_secs_f64() - exchange_s);
    Ok(launched)
}

/// Counts what is sent by phase.
struct Meter<'a> {
    comm: Ranks<'a>,
    before: SentByRoute,
}

impl Meter<'_> {
    /// What was sent since the last phase was for `phase`.
    fn end(&mut self, phase: Phase, report: &mut StepReport) {
        let now = self.comm.sent();
        report.work.sent.add(phase, std::mem::replace(&mut self.before, now), now);
    }
}
