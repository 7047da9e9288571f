//! One pass over the training split on one rank.

use std::time::Instant;

use gsplit_kernels::schedule::epoch_seeds;
use gsplit_store::Stage;

use crate::Result;
use crate::batch::BatchSampler;
use crate::comms::Comms;
use crate::job::Job;
use crate::log::{StepLog, Window};
use crate::model::Model;
use crate::optimizer::Optimizer;
use crate::pipeline::for_each_batch;
use crate::report::StepReport;
use crate::source::FeatureSource;
use crate::step::train_step;

/// Trains on every mini-batch of `epoch` (from 1) and returns this rank's sums. Collective.
pub fn train_epoch(
    (job, source): (&Job<'_>, &FeatureSource<'_>),
    sampler: &mut BatchSampler<'_>,
    epoch: u32,
    (model, optimizer): (&Model, &mut Optimizer),
    comms: &Comms,
    stage: &dyn Stage,
    log: StepLog<'_>,
) -> Result<StepReport> {
    let config = job.config;
    let order = epoch_seeds(&job.train, config.seed, epoch)?;
    let (mut sums, comm) = (StepReport::default(), comms.all());
    let mut window = Window::begin(log, epoch, optimizer.steps);
    for_each_batch((job, source), sampler, epoch, &order, comms, |prepared| {
        let (items, step) = (prepared.items, prepared.step.step + 1);
        let mut report = train_step((model, optimizer), prepared, (job.graph, config.model.dropout), comms.ranks())?;
        let ending = Instant::now();
        job.end_phase(model.place())?;
        report.timings.compute_s += ending.elapsed().as_secs_f64();
        report.check(epoch, step)?;
        sums.add(&report);
        window.add(&report, comm)?;
        if comm.rank() == 0 {
            stage.advance(items as u64);
        }
        Ok(())
    })?;
    optimizer.catch_up(model.parameters())?;
    Ok(sums)
}
