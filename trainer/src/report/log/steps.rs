//! Records of mini-batches: one per [`StepLog::every`] mini-batches, over the mini-batches since
//! the last record.
//!
//! Mini-batches are counted over the whole run, from 1, so that a resumed run has its records at
//! the same numbers as an uninterrupted one. The mini-batches after the last record of an epoch
//! have none: the epoch's own record covers them. Cost: one sum over all ranks per record.

use std::time::Instant;

use gsplit_kernels::Communicator;
use gsplit_store::GpuMemory;
use serde::Serialize;

use crate::Result;
use crate::report::{StepReport, Timings, Work};

/// The mini-batches since the last record of their epoch, over all ranks; a line of the log file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StepRecord {
    /// Mini-batches of the run so far.
    pub step: u64,
    /// From 1.
    pub epoch: u32,
    /// Number of mini-batches in this record.
    pub steps: u32,
    /// Mean loss of their labelled seeds (or pairs, for links), with dropout, before each update.
    pub loss: f64,
    /// Mean of their gradients' norms, before clipping.
    pub gradient_norm: f64,
    /// Learning rate of the last update.
    pub learning_rate: f64,
    /// Scale of the next loss, where gradients are f16.
    pub loss_scale: Option<f64>,
    /// Mini-batches without an update, because a gradient in f16 was not finite.
    pub skipped: u64,
    /// Seconds of the mean rank by activity.
    #[serde(flatten)]
    pub timings: Timings,
    /// Wall time.
    pub seconds: f64,
    /// Work of all ranks.
    #[serde(flatten)]
    pub work: Work,
    /// Memory after the last of them, on a GPU.
    #[serde(flatten)]
    pub memory: Option<GpuMemory>,
    /// Edges per second of wall time.
    pub edges_per_s: f64,
    /// Feature rows loaded per second of wall time.
    pub rows_per_s: f64,
}

/// Interval and destination of the records of mini-batches.
#[derive(Clone, Copy)]
pub struct StepLog<'a> {
    /// Mini-batches between records; 0 for no records.
    pub every: u32,
    /// Takes a record, on rank 0.
    pub write: &'a (dyn Fn(&StepRecord) -> Result<()> + Sync),
}

/// The mini-batches since the last record of an epoch, on one rank.
pub struct Window<'a> {
    log: StepLog<'a>,
    epoch: u32,
    /// Mini-batches of the run before the next one.
    done: u64,
    totals: StepReport,
    steps: u32,
    since: Instant,
}

impl<'a> Window<'a> {
    /// Starts at the beginning of `epoch`, after `done` mini-batches of the run.
    pub fn begin(log: StepLog<'a>, epoch: u32, done: u64) -> Self {
        Self { log, epoch, done, totals: StepReport::default(), steps: 0, since: Instant::now() }
    }

    /// Adds the next mini-batch, and writes a record if one is due. Collective.
    pub fn add(&mut self, report: &StepReport, comm: &dyn Communicator) -> Result<()> {
        if self.log.every == 0 {
            return Ok(());
        }
        self.done += 1;
        self.steps += 1;
        self.totals.add(report);
        if !self.done.is_multiple_of(u64::from(self.log.every)) {
            return Ok(());
        }
        let totals = std::mem::take(&mut self.totals).reduce(comm)?;
        if comm.rank() == 0 {
            (self.log.write)(&self.record(&totals))?;
        }
        (self.steps, self.since) = (0, Instant::now());
        Ok(())
    }

    fn record(&self, totals: &StepReport) -> StepRecord {
        let (seconds, steps) =
            (self.since.elapsed().as_secs_f64(), totals.num_finite(self.steps.into()));
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        StepRecord {
            step: self.done,
            epoch: self.epoch,
            steps: self.steps,
            loss: totals.loss,
            gradient_norm: totals.gradient_norm / steps,
            learning_rate: totals.learning_rate,
            loss_scale: totals.loss_scale,
            skipped: totals.skipped,
            timings: totals.timings,
            seconds,
            work: totals.work.clone(),
            memory: None,
            edges_per_s: per_second(totals.work.edges),
            rows_per_s: per_second(totals.work.rows_loaded),
        }
    }
}
