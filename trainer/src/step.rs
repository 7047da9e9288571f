//! One mini-batch on one rank: forward, loss, backward, update.
//!
//! Forward and backward, with the exchanges between layers: `pass.rs`.

use std::time::Instant;

use gsplit_kernels::{CacheHits, DeviceHits, Graph};
use tch::Tensor;

use crate::Result;
use crate::autograd::device_values_of;
use crate::comms::Ranks;
use crate::model::{DropoutKey, Model};
use crate::operator::Place;
use crate::optimizer::{GradientNorm, Optimizer, Update};
use crate::pass::{backward, forward};
use crate::report::StepReport;
use crate::source::Loaded;
use crate::task::Targets;
use crate::traffic::Phase;

/// Runs the mini-batch and updates the parameters. Collective.
pub fn train_step(
    model: &Model,
    optimizer: &mut Optimizer,
    mut batch: Loaded<'_>,
    graph: Graph<'_>,
    targets: &Targets<'_>,
    dropout: DropoutKey,
    comm: Ranks<'_>,
) -> Result<StepReport> {
    let started = Instant::now();
    let mut report = StepReport::default();
    let (hits, waited) = (batch.hits.take(), comm.waited());
    let mut before = comm.sent();
    let mut sent_for = |phase, report: &mut StepReport| {
        let now = comm.sent();
        report.work.sent.add(phase, std::mem::replace(&mut before, now), now);
    };
    let pass = forward(model, batch, graph, Some(dropout), comm, &mut report)?;
    sent_for(Phase::Forward, &mut report);
    let scaled = (dropout, optimizer.loss_scale());
    let loss = targets.loss(model, pass.logits(), pass.seeds().on_host()?, scaled, comm.group)?;
    sent_for(Phase::Loss, &mut report);
    backward(pass, loss.gradient, comm, &mut report)?;
    sent_for(Phase::Backward, &mut report);
    let reducing = Instant::now();
    let update = optimizer.update(model.parameters(), comm.all)?;
    report.timings.exchange_s += reducing.elapsed().as_secs_f64();
    sent_for(Phase::Update, &mut report);
    (report.counted, report.learning_rate) = (loss.counted, update.learning_rate);
    read(model.place(), loss.numbers.as_ref(), &update, hits.as_ref(), &mut report)?;
    report.loss_scale = optimizer.scaling().map(|scaling| scaling.scale.into());
    if update.skipped {
        // A loss that is not finite either would spoil the mean.
        (report.loss, report.gradient_norm, report.skipped) = (0.0, 0.0, 1);
    }
    report.timings.wait_s = (comm.waited() - waited).as_secs_f64();
    report.timings.compute_s = started.elapsed().as_secs_f64() - report.timings.exchange_s;
    Ok(report)
}

/// Fills in the numbers of a step that a GPU has. Waits for them, once and at the end: until then the host only launches.
fn read(
    place: &Place,
    numbers: Option<&Tensor>,
    update: &Update,
    hits: Option<&DeviceHits>,
    report: &mut StepReport,
) -> Result<()> {
    let mut of_loss = [0.0; 2];
    match (place, &update.gradient_norm) {
        (Place::Device(gpu, device, _), GradientNorm::Squared(squared)) => {
            let nothing = gpu.alloc::<u8>(0)?;
            let numbers = numbers.map(|numbers| place.bring(numbers)).transpose()?;
            let numbers = numbers.as_ref().map(|numbers| device_values_of::<f64>(*device, numbers)).transpose()?;
            let parts = [
                numbers.map_or(nothing.slice(), |numbers| numbers.as_bytes()),
                squared.slice().as_bytes(),
                hits.map_or(nothing.slice(), DeviceHits::bytes),
            ];
            let [numbers, squared, hits] = gpu.read(parts)?;
            of_loss.iter_mut().zip(numbers.values::<f64>()).for_each(|(number, value)| *number = value);
            report.gradient_norm = squared.values::<f64>().iter().sum::<f64>().sqrt();
            let CacheHits { own, peer } = DeviceHits::of(&hits);
            (report.work.rows_cached, report.work.rows_from_peers) = (own as u64, peer as u64);
        }
        (_, norm) => {
            report.gradient_norm = norm.on_host()?;
            numbers.map_or(Ok(()), |numbers| numbers.f_copy_data(&mut of_loss, 2))?;
        }
    }
    (report.loss, report.correct) = (of_loss[0], of_loss[1] as u64);
    Ok(())
}
