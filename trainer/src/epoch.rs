//! One pass over the training split on one rank.

use std::time::Instant;

use gsplit_kernels::schedule::epoch_seeds;
use gsplit_kernels::{Communicator, Sampler};
use gsplit_store::Stage;

use crate::batch::{load, sample};
use crate::job::Job;
use crate::model::{DropoutKey, Model};
use crate::optimizer::Adam;
use crate::report::StepReport;
use crate::step::train_step;
use crate::{Error, Result};

/// Trains on every mini-batch of `epoch` (from 1) and returns this rank's sums. Collective.
pub fn train_epoch(
    job: &Job<'_>,
    epoch: u32,
    model: &Model,
    adam: &mut Adam,
    comm: &dyn Communicator,
    stage: &dyn Stage,
) -> Result<StepReport> {
    let config = job.config;
    let order = epoch_seeds(&job.train, config.seed, epoch)?;
    let mut sums = StepReport::default();
    let mut sampler = Sampler::default();
    for (step, global) in order.chunks(config.batch_size).enumerate() {
        job.check_stop()?;
        let step = step as u32;
        let at = (config.seed, epoch, step);
        let started = Instant::now();
        let (seeds, targets) = job.batch(global, at, comm)?;
        let sampled = sample(&mut sampler, &job.graph, seeds, &config.fanouts, at, job.ownership, comm)?;
        let sample_s = started.elapsed().as_secs_f64();
        let loading = Instant::now();
        let batch = load(&job.features, sampled)?;
        let load_s = loading.elapsed().as_secs_f64();

        let (edges, rows) = (batch.sampled.num_edges(), batch.sampled.input.len());
        let rows_exchanged = batch.sampled.rows_exchanged() as u64;
        let dropout = DropoutKey { probability: config.model.dropout, at };
        let mut report = train_step(model, adam, batch, &targets, dropout, comm)?;
        if !report.loss.is_finite() {
            return Err(Error::Diverged { loss: report.loss, epoch, step: step + 1 });
        }
        report.timings.sample_s = sample_s;
        report.timings.load_s = load_s;
        (report.edges, report.rows_loaded, report.rows_exchanged) = (edges as u64, rows as u64, rows_exchanged);
        sums.add(&report);
        if comm.rank() == 0 {
            stage.advance(1);
        }
    }
    Ok(sums)
}
