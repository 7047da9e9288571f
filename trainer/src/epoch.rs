//! One pass over the training split on one rank.

use std::time::Instant;

use gsplit_kernels::schedule::epoch_seeds;
use gsplit_store::Stage;

use crate::batch::{Made, Preparation, Prepared, drawn, for_each};
use crate::job::Job;
use crate::model::Model;
use crate::optimizer::Optimizer;
use crate::ranks::comms::Comms;
use crate::report::StepReport;
use crate::report::log::{StepLog, Window};
use crate::residence::source::FeatureSource;
use crate::sample::BatchSampler;
use crate::step::{Launched, train_step};
use crate::{Error, Result};

/// Mini-batches of a rank, by their origin.
pub enum Batches<'a, 's> {
    /// Sampled anew in every epoch, with the number of mini-batches.
    Sampled(&'a mut BatchSampler<'s>, u64),
    /// Made once.
    Made(&'a Made),
}

/// Trains on the mini-batches of `epoch` (from 1) and returns this rank's totals. Collective.
pub fn train_epoch(
    job: &Job<'_>,
    features: &FeatureSource<'_>,
    batches: Batches<'_, '_>,
    epoch: u32,
    model: &Model,
    optimizer: &mut Optimizer,
    comms: &Comms,
    stage: &dyn Stage,
    log: StepLog<'_>,
) -> Result<StepReport> {
    let (config, comm) = (job.config, comms.all());
    let mut totals = StepReport::default();
    let mut window = Window::begin(log, epoch, optimizer.steps);
    let mut finish = |(items, step, launched): (usize, u32, Launched)| {
        let ending = Instant::now();
        let mut report = launched.finish()?;
        report.timings.compute_s += ending.elapsed().as_secs_f64();
        report.check(epoch, step)?;
        totals.add(&report);
        window.add(&report, comm)?;
        if comm.rank() == 0 {
            stage.advance(items as u64);
        }
        Ok::<_, Error>(())
    };
    // The last mini-batch, if the GPU has not delivered its numbers yet.
    let mut last = None;
    let train = |prepared: Prepared<'_>| {
        let (items, step) = (prepared.items, prepared.step.step + 1);
        let mut launched =
            train_step(model, optimizer, prepared, job.graph, config.model.dropout, comms.ranks())?;
        let ending = Instant::now();
        job.end_phase(model.place())?;
        launched.took(ending.elapsed().as_secs_f64());
        let this = (items, step, launched);
        let finished = if this.2.is_coming() { last.replace(this) } else { Some(this) };
        finished.map_or(Ok(()), &mut finish)
    };
    let with = Preparation { job, source: features, comm: comms.sampling() };
    match batches {
        Batches::Sampled(sampler, count) => {
            let (order, count) = (epoch_seeds(&job.train, config.run.seed, epoch)?, count as usize);
            let order = &order[..order.len().min(count.saturating_mul(config.data.batch_size))];
            for_each(job, drawn(with, sampler, epoch, order), count, comms, train)?;
        }
        Batches::Made(made) => {
            for_each(job, made.epoch(with, epoch)?, job.num_steps() as usize, comms, train)?
        }
    }
    last.take().map_or(Ok(()), &mut finish)?;
    optimizer.catch_up(model.parameters())?;
    Ok(totals)
}
