//! One mini-batch on one rank: forward, loss, backward, update.
//!
//! ```text
//! pass.rs      layer after layer, with the exchanges between them
//! layer.rs     one layer: forward, backward, and the values kept in between
//! moments.rs   batch norm over ranks
//! numbers.rs   the reported numbers of a mini-batch
//! ```

mod layer;
mod moments;
mod numbers;
pub mod pass;

use gsplit_kernels::Graph;

use crate::Result;
use crate::batch::Prepared;
use crate::model::{DropoutKey, Model};
use crate::optimizer::Optimizer;
use crate::ranks::clock::Clock;
use crate::ranks::comms::Ranks;
use crate::ranks::traffic::Phase;

use pass::{backward, forward};

pub use numbers::Launched;

/// Launches the mini-batch and the update of the parameters. Collective.
pub fn train_step(
    model: &Model,
    optimizer: &mut Optimizer,
    prepared: Prepared<'_>,
    graph: Graph<'_>,
    dropout: f64,
    comm: Ranks<'_>,
) -> Result<Launched> {
    let Prepared { step, targets, mut batch, push_pull, preparing, .. } = prepared;
    let mut clock = Clock::start(comm, preparing.sent);
    let mut report = numbers::counted(&batch, model);
    let (hits, dropout) = (batch.hits.take(), DropoutKey { probability: dropout, step });
    let scale = optimizer.loss_scale();

    let pass = clock.phase(Phase::Forward, |clock| {
        forward(model, batch, push_pull, graph, Some(dropout), comm, clock)
    })?;
    let loss = clock.phase(Phase::Loss, |_| {
        targets.loss(model, pass.logits(), pass.seeds().on_host()?, dropout, scale, comm.group)
    })?;
    clock.phase(Phase::Backward, |clock| backward(pass, loss.gradient, comm, clock))?;
    let update = clock.phase(Phase::Update, |clock| {
        clock.exchange(|| optimizer.update(model.parameters(), comm.all))
    })?;

    (report.weight, report.counted, report.learning_rate) =
        (targets.weight(), loss.counted, update.learning_rate);
    report.loss_scale = optimizer.scaling().map(|scaling| scaling.scale.into());
    report.skipped = update.skipped.into();
    (report.timings.sample_s, report.timings.load_s) =
        (preparing.seconds(Phase::Sample), preparing.seconds(Phase::Load));
    Launched::new(model.place(), loss.numbers.as_ref(), &update, hits.as_ref(), report, clock)
}
