//! Cost of an epoch that reads feature rows from disk, reported before it starts.
//!
//! Returns: rows and bytes that the epoch is expected to read, its seconds, and its bottleneck. Input: a run that is ready.
//! Idea: the first mini-batches of the epoch are trained on a model that is thrown away. The reads themselves are counted, without rows
//! kept in memory, in GPUs and on other ranks, and the disk is timed with the real access pattern. Draws are keyed by epoch, mini-batch
//! and vertex, so they do not affect the run that follows. The first of several mini-batches is not timed, as it allocates memory and
//! threads for all.
//! Cost: at most an eighth of the epoch, or one mini-batch; at most [`TRIED`].
//!
//! A profile of the machine would show how fast the disk can be, but not the load from other programs.

use std::sync::{Mutex, PoisonError};

use super::locality;
use super::setup::Run;
use crate::Result;
use crate::epoch::{Batches, train_epoch};
use crate::optimizer::Optimizer;
use crate::ranks::comms::Comms;
use crate::report::log::{StepLog, StepRecord};
use crate::report::{DiskForecast, EpochReport, Timings};
use crate::sample::BatchSampler;

/// Mini-batches that are tried at most.
const TRIED: u64 = 4;

/// Forecast of `epoch`, after `history`, on rank 0. `None` if it reads nothing from disk, in a trial, and if
/// mini-batches are made once, which are as large as their servers' graphs. Collective.
///
/// # Errors
/// Errors of training.
pub fn of_epoch(
    run: &Run<'_>,
    sampler: &mut BatchSampler<'_>,
    epoch: u32,
    history: &[EpochReport],
    comms: &Comms,
) -> Result<Option<DiskForecast>> {
    let (job, config, comm) = (run.job, run.job.config, comms.all());
    if !run.reads_disk || config.parallelism.cooperates() || job.options.trial.is_some() {
        return Ok(None);
    }
    let (steps, place) = (job.num_steps(), &run.places[comm.rank()]);
    let tried = steps.div_ceil(8).min(TRIED);
    let items = (tried * config.batch_size as u64).min(job.train.len() as u64);
    locality::factor(config, history).iter().for_each(|&factor| sampler.set_factor(factor));
    let model = run.model(place);
    let mut optimizer = Optimizer::new(model.parameters(), config, steps)?;
    let records: Mutex<Vec<StepRecord>> = Mutex::default();
    let write = |record: &StepRecord| {
        records.lock().unwrap_or_else(PoisonError::into_inner).push(record.clone());
        Ok(())
    };
    let stage = run.stage(comm, "mini-batches on trial", (items, "seeds"));
    let (batches, log) = (Batches::Sampled(sampler, tried), StepLog { every: 1, write: &write });
    train_epoch(
        (job, run.trained_on(comm.rank())),
        batches,
        epoch,
        (&model, &mut optimizer),
        comms,
        stage.as_ref(),
        log,
    )?;
    let records = records.into_inner().unwrap_or_else(PoisonError::into_inner);
    let times = job.train.len() as f64 / items as f64;
    let rows = |of: fn(&StepRecord) -> u64| (records.iter().map(of).sum::<u64>() as f64 * times).round() as u64;
    let timed = &records[usize::from(records.len() > 1)..];
    let mean = |of: fn(&Timings) -> f64| {
        timed.iter().map(|record| of(&record.timings)).sum::<f64>() / timed.len().max(1) as f64 * times * tried as f64
    };
    let [sample_s, load_s] = [mean(|timings| timings.sample_s), mean(|timings| timings.load_s)];
    let compute_s = mean(|timings| timings.compute_s + timings.exchange_s);
    let bound = match sample_s + load_s > compute_s {
        true if load_s > sample_s => "disk",
        true => "sampling",
        false => "computing",
    };
    Ok((comm.rank() == 0).then(|| DiskForecast {
        tried,
        rows_from_disk: rows(|record| record.work.rows_from_disk),
        bytes_from_disk: rows(|record| record.work.bytes_from_disk),
        sample_s,
        load_s,
        compute_s,
        seconds: match job.options.prefetch {
            0 => sample_s + load_s + compute_s,
            _ => compute_s.max(sample_s + load_s),
        },
        bound,
    }))
}
