//! Numbers that training reports: per step internally, per epoch to the caller and to the logs.

use gsplit_kernels::Communicator;
use gsplit_store::{Baseline, ModelScores};
pub use gsplit_store::{LayerRows, Timings};
use serde::Serialize;

use crate::config::TopologyStorage;
use crate::ranks::traffic::Traffic;
use crate::residence::cache::CacheSummary;
use crate::residence::source::HostStorage;
use crate::{Error, Metric, Result};

/// Work with data sent by phase and route.
pub type Work = gsplit_store::Work<Traffic>;
/// Report of an epoch with data sent by phase and route.
pub type EpochReport = gsplit_store::EpochReport<Traffic>;

/// All counters of `work`, always in the same order.
fn each(work: &mut Work) -> impl Iterator<Item = &mut u64> {
    let rows = [
        &mut work.rows_loaded,
        &mut work.rows_cached,
        &mut work.rows_from_peers,
        &mut work.rows_exchanged,
    ];
    let reads = [&mut work.rows_from_disk, &mut work.bytes_from_disk, &mut work.rows_kept];
    let exchanged = work.exchanged.iter_mut().flat_map(|layer| [&mut layer.rows, &mut layer.bytes]);
    [&mut work.edges].into_iter().chain(rows).chain(reads).chain(work.sent.each()).chain(exchanged)
}

/// Adds `other` to `work`.
fn add(work: &mut Work, mut other: Work) {
    work.exchanged.resize(work.exchanged.len().max(other.exchanged.len()), LayerRows::default());
    each(work).zip(each(&mut other)).for_each(|(sum, more)| *sum += *more);
}

/// One mini-batch on one rank.
#[derive(Clone, Debug, Default)]
pub struct StepReport {
    /// This rank's part of the global mini-batch's mean loss: the parts add up to it. Over several
    /// steps, of the mean over all of their losses.
    pub loss: f64,
    /// Weight of the global mini-batch's loss: the weight of its labelled seeds, or the number of
    /// its pairs; over several steps, the sum. The same on all ranks.
    pub weight: f64,
    /// Norm of the gradient before clipping, over all ranks and parameters; over several steps, the
    /// sum.
    pub gradient_norm: f64,
    /// Learning rate of the update; over several steps, of the last.
    pub learning_rate: f64,
    /// Scale of the next loss if gradients are f16; over several steps, after the last.
    pub loss_scale: Option<f64>,
    /// 1 if the parameters were not updated because a gradient in f16 was not finite; over several
    /// steps, the number of such steps, which have neither loss nor norm.
    pub skipped: u64,
    /// Number of correct decisions about seeds.
    pub correct: u64,
    /// Number of decisions about labelled seeds.
    pub counted: u64,
    /// Work done.
    pub work: Work,
    /// Seconds by activity.
    pub timings: Timings,
}

impl StepReport {
    /// Fails if the loss or the gradient of mini-batch `step` of `epoch`, both from 1, is not
    /// finite.
    pub fn check(&self, epoch: u32, step: u32) -> Result<()> {
        let numbers = [("loss", self.loss), ("gradient's norm", self.gradient_norm)];
        match numbers.into_iter().find(|(_, value)| !value.is_finite()) {
            Some((what, value)) => Err(Error::Diverged { what, value, epoch, step }),
            None => Ok(()),
        }
    }

    /// Number of `steps` that were not skipped, at least 1.
    pub fn num_finite(&self, steps: u64) -> f64 {
        steps.saturating_sub(self.skipped).max(1) as f64
    }

    /// Adds another step of the same rank. A mini-batch counts in the mean loss by its weight: the
    /// last one of an epoch is often short, and with class weights each mini-batch weighs as much
    /// as its seeds.
    pub fn add(&mut self, other: &Self) {
        self.weight += other.weight;
        if self.weight > 0.0 {
            self.loss += (other.loss - self.loss) * (other.weight / self.weight);
        }
        self.gradient_norm += other.gradient_norm;
        self.learning_rate = other.learning_rate;
        self.loss_scale = other.loss_scale;
        self.skipped += other.skipped;
        self.correct += other.correct;
        self.counted += other.counted;
        add(&mut self.work, other.work.clone());
        let mut timings = other.timings;
        self.timings.each().into_iter().zip(timings.each()).for_each(|(sum, more)| *sum += *more);
    }

    /// The sums over all ranks; times are averaged, so that they add up to the epoch's length.
    /// Collective.
    pub fn reduce(&self, comm: &dyn Communicator) -> Result<Self> {
        let (mut timings, mut work) = (self.timings, self.work.clone());
        let mut reals: Vec<f64> =
            [self.loss].into_iter().chain(timings.each().map(|seconds| *seconds)).collect();
        let mut counts: Vec<u64> = [self.correct, self.counted]
            .into_iter()
            .chain(each(&mut work).map(|count| *count))
            .collect();
        comm.all_reduce_sum_f64(&mut reals)?;
        comm.all_reduce_sum_u64(&mut counts)?;
        let ranks = comm.size() as f64;
        timings.each().into_iter().zip(&reals[1..]).for_each(|(mean, sum)| *mean = sum / ranks);
        each(&mut work).zip(&counts[2..]).for_each(|(sum, count)| *sum = *count);
        work.bytes_sent = work.sent.bytes();
        // Weight, gradient norm, learning rate, scale and skipped steps are the same on every rank.
        Ok(Self {
            loss: reals[0],
            correct: counts[0],
            counted: counts[1],
            work,
            timings,
            ..self.clone()
        })
    }

    /// The report of `epoch` with `steps` mini-batches that took `seconds`, scored by `metric`;
    /// `self` is summed over all ranks.
    pub(crate) fn of_epoch(
        &self,
        epoch: u32,
        steps: u64,
        seconds: f64,
        metric: Metric,
    ) -> EpochReport {
        EpochReport {
            epoch,
            loss: self.loss,
            gradient_norm: self.gradient_norm / self.num_finite(steps),
            learning_rate: self.learning_rate,
            loss_scale: self.loss_scale,
            skipped: self.skipped,
            draw_factor: None,
            train: (self.counted > 0).then(|| self.correct as f64 / self.counted as f64),
            valid: None,
            valid_loss: None,
            test: None,
            scores_are_errors: metric.is_error(),
            timings: self.timings,
            seconds,
            evaluate_s: 0.0,
            work: self.work.clone(),
            memory: None,
        }
    }
}

/// Gives every rank the metrics of `report` from rank 0, so that all decide alike. Collective.
pub(crate) fn share_metrics(report: &mut EpochReport, comm: &dyn Communicator) -> Result<()> {
    let mut values = [0.0; 7];
    if comm.rank() == 0 {
        let of = |metric: Option<f64>| {
            [if metric.is_some() { 1.0 } else { 0.0 }, metric.unwrap_or_default()]
        };
        let [valid, loss, test] = [report.valid, report.valid_loss, report.test].map(of);
        values = [valid[0], valid[1], loss[0], loss[1], test[0], test[1], report.evaluate_s];
    }
    comm.all_reduce_sum_f64(&mut values)?;
    let known = |at: usize| (values[at] > 0.0).then_some(values[at + 1]);
    (report.valid, report.valid_loss, report.test) = (known(0), known(2), known(4));
    report.evaluate_s = values[6];
    Ok(())
}

/// A finished run.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// One entry per epoch, without the epochs before a resume.
    pub epochs: Vec<EpochReport>,
    /// Number of values in the model.
    pub num_parameters: usize,
    /// Key of the partition map used.
    pub partition: Option<String>,
    /// Feature rows that GPUs kept, if they kept any, or the rows that they would have found were
    /// counted.
    pub cache: Option<CacheSummary>,
    /// Storage of the host that feature rows were read from, unless a GPU kept them.
    pub features: HostStorage,
    /// Number of epochs done before a resume.
    pub resumed_after: u32,
    /// The epoch with the best valid metric, including epochs before a resume.
    pub best: Option<EpochReport>,
    /// Scores of a model that reads no features and no edges, to compare `valid` and `test` with.
    pub baseline: Option<Baseline>,
    /// Notes on the run: a metric without a value in a split, a loss that diverged, a score that is
    /// not above the baseline's.
    pub notes: Vec<String>,
    /// Scores of the classes after the best epoch; if no epoch is the best, after the last one
    /// evaluated.
    pub scores: Option<ModelScores>,
    /// True if patience ended the run before its last epoch.
    pub stopped_early: bool,
    /// Metric of `valid` and `test`.
    pub metric: Metric,
    /// Memory that mini-batches were sampled from: by GPUs, or by the host.
    pub topology: TopologyStorage,
}
