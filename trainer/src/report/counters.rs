//! Numbers that training returns: per step inside, per epoch to the caller and to the logs.

use gsplit_kernels::Communicator;
use serde::{Deserialize, Serialize};

use crate::job::options::TopologyStorage;
use crate::ranks::traffic::Traffic;
use crate::residence::cache::CacheSummary;
use crate::{Error, Metric, Result};

/// Seconds of a rank by activity. Sampling and loading that went on while another mini-batch was computed count too, so that the
/// parts may add up to more than the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Drawing, relabelling, splitting, and the exchange of ids that belongs to it.
    pub sample_s: f64,
    /// Gathering feature rows, and on the host exchanging them.
    pub load_s: f64,
    /// Forward, backward and update.
    pub compute_s: f64,
    /// Exchanging other rows and gradients, waiting for other ranks included.
    pub exchange_s: f64,
    /// Seconds waiting for other ranks while a mini-batch was computed, mostly within `exchange_s`. A rank that is a
    /// thread waits until the others come, a process until their messages do.
    #[serde(default)]
    pub wait_s: f64,
}

impl Timings {
    /// Every number, in the same order always.
    fn each(&mut self) -> [&mut f64; 5] {
        [&mut self.sample_s, &mut self.load_s, &mut self.compute_s, &mut self.exchange_s, &mut self.wait_s]
    }
}

/// Rows that crossed between ranks for a layer in forward passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerRows {
    /// Number of rows.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl LayerRows {
    fn each(&mut self) -> [&mut u64; 2] {
        [&mut self.rows, &mut self.bytes]
    }
}

/// Work on one rank or on all together: counts of what was computed, loaded and sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Sampled edges computed.
    pub edges: u64,
    /// Feature rows loaded.
    pub rows_loaded: u64,
    /// Loaded rows that were in the loading GPU's own memory, or would have been, where ranks on the host count that.
    #[serde(default)]
    pub rows_cached: u64,
    /// Loaded rows that were, or would have been, in the memory of other ranks' GPUs; the rest was in the host's.
    #[serde(default)]
    pub rows_from_peers: u64,
    /// Rows that crossed from one rank to another in forward passes.
    pub rows_exchanged: u64,
    /// The same by layer, from the seeds down; the last are feature rows. Empty where nothing crosses by a partition map.
    #[serde(default)]
    pub exchanged: Vec<LayerRows>,
    /// Bytes that crossed from one rank to another, over all ranks together.
    #[serde(default)]
    pub bytes_sent: u64,
    /// The same by phase and route, with messages.
    #[serde(default)]
    pub sent: Traffic,
}

impl Work {
    /// Every number that is counted, in the same order always.
    fn each(&mut self) -> impl Iterator<Item = &mut u64> {
        let rows = [&mut self.rows_loaded, &mut self.rows_cached, &mut self.rows_from_peers, &mut self.rows_exchanged];
        let exchanged = self.exchanged.iter_mut().flat_map(LayerRows::each);
        [&mut self.edges].into_iter().chain(rows).chain(self.sent.each()).chain(exchanged)
    }

    /// Adds what was done besides.
    pub fn add(&mut self, mut other: Self) {
        self.exchanged.resize(self.exchanged.len().max(other.exchanged.len()), LayerRows::default());
        self.each().zip(other.each()).for_each(|(sum, more)| *sum += *more);
    }
}

/// One mini-batch on one rank.
#[derive(Clone, Debug, Default)]
pub struct StepReport {
    /// This rank's part of the global mini-batch's mean loss: the parts add up to it. Over several steps, of the mean over all of
    /// their losses.
    pub loss: f64,
    /// Number of losses of the global mini-batch, those of its labelled seeds or of its pairs; over several steps, the sum. The same on
    /// all ranks.
    pub num_losses: u64,
    /// Norm of the gradient before clipping, over all ranks and parameters; over several steps, the sum.
    pub gradient_norm: f64,
    /// Learning rate of the update; over several steps, of the last.
    pub learning_rate: f64,
    /// Scale of the next loss, where gradients are f16; over several steps, after the last.
    pub loss_scale: Option<f64>,
    /// Whether the parameters stayed as they were, because a gradient in f16 was not finite; over several steps, how often. Such a step
    /// has neither loss nor norm.
    pub skipped: u64,
    /// Right decisions about seeds.
    pub correct: u64,
    /// Decisions about labelled seeds.
    pub counted: u64,
    /// Work done.
    pub work: Work,
    /// Seconds by activity.
    pub timings: Timings,
}

impl StepReport {
    /// Fails when the loss or the gradient of mini-batch `step` of `epoch`, both from 1, is no number.
    pub fn check(&self, epoch: u32, step: u32) -> Result<()> {
        if !self.loss.is_finite() {
            return Err(Error::Diverged { loss: self.loss, epoch, step });
        }
        match self.gradient_norm.is_finite() {
            true => Ok(()),
            false => Err(Error::Spoilt { norm: self.gradient_norm, epoch, step }),
        }
    }

    /// Number of `steps` that were not skipped, at least 1.
    pub fn num_finite(&self, steps: u64) -> f64 {
        steps.saturating_sub(self.skipped).max(1) as f64
    }

    /// Adds another step of the same rank. A mini-batch has weight in the mean loss by its number of losses: the last one of an epoch
    /// is often short.
    pub fn add(&mut self, other: &Self) {
        self.num_losses += other.num_losses;
        self.loss += (other.loss - self.loss) * (other.num_losses as f64 / self.num_losses.max(1) as f64);
        self.gradient_norm += other.gradient_norm;
        self.learning_rate = other.learning_rate;
        self.loss_scale = other.loss_scale;
        self.skipped += other.skipped;
        self.correct += other.correct;
        self.counted += other.counted;
        self.work.add(other.work.clone());
        let mut timings = other.timings;
        self.timings.each().into_iter().zip(timings.each()).for_each(|(sum, more)| *sum += *more);
    }

    /// The sums over all ranks; times are averaged, so that they add up to the epoch's length. Collective.
    pub fn reduce(&self, comm: &dyn Communicator) -> Result<Self> {
        let (mut timings, mut work) = (self.timings, self.work.clone());
        let mut reals: Vec<f64> = [self.loss].into_iter().chain(timings.each().map(|seconds| *seconds)).collect();
        let mut counts: Vec<u64> =
            [self.correct, self.counted].into_iter().chain(work.each().map(|count| *count)).collect();
        comm.all_reduce_sum_f64(&mut reals)?;
        comm.all_reduce_sum_u64(&mut counts)?;
        let ranks = comm.size() as f64;
        timings.each().into_iter().zip(&reals[1..]).for_each(|(mean, sum)| *mean = sum / ranks);
        work.each().zip(&counts[2..]).for_each(|(sum, count)| *sum = *count);
        work.bytes_sent = work.sent.bytes();
        // Every rank has the same number of losses, gradient norm, learning rate and scale, and has left out the same steps.
        Ok(Self { loss: reals[0], correct: counts[0], counted: counts[1], work, timings, ..self.clone() })
    }
}

/// One epoch over all ranks; a line of the log file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// From 1.
    pub epoch: u32,
    /// Mean loss of the labelled training seeds (of the pairs, where links are learnt), each as it was in its mini-batch: with dropout,
    /// before the update.
    pub loss: f64,
    /// Mean of the mini-batches' gradients' norms, before clipping.
    #[serde(default)]
    pub gradient_norm: f64,
    /// Learning rate of the last update.
    #[serde(default)]
    pub learning_rate: f64,
    /// Scale of the next loss, where gradients are f16.
    #[serde(default)]
    pub loss_scale: Option<f64>,
    /// Mini-batches that changed nothing, because a gradient in f16 was not finite: neither loss nor norm counts them.
    #[serde(default)]
    pub skipped: u64,
    /// How many times more often ranks drew what they keep, where they did.
    #[serde(default)]
    pub draw_factor: Option<f64>,
    /// Share of right decisions on the training seeds, as they were when trained on: one a seed, one a seed and class
    /// where seeds can have several, one a pair where links are learnt.
    pub train: f64,
    /// Score of the valid split with full neighbourhoods, when evaluated.
    pub valid: Option<f64>,
    /// Score of the test split with full neighbourhoods, when evaluated.
    pub test: Option<f64>,
    /// Seconds of the mean rank by activity.
    #[serde(flatten)]
    pub timings: Timings,
    /// Wall time of the epoch without evaluation.
    pub seconds: f64,
    /// Wall time of the evaluation.
    pub evaluate_s: f64,
    /// Work of all ranks.
    #[serde(flatten)]
    pub work: Work,
}

impl EpochReport {
    /// The report of an epoch of `steps` mini-batches that took `seconds`, not evaluated yet; `totals` are over all
    /// ranks.
    pub(crate) fn new(epoch: u32, totals: &StepReport, steps: u64, seconds: f64) -> Self {
        Self {
            epoch,
            loss: totals.loss,
            gradient_norm: totals.gradient_norm / totals.num_finite(steps),
            learning_rate: totals.learning_rate,
            loss_scale: totals.loss_scale,
            skipped: totals.skipped,
            draw_factor: None,
            train: totals.correct as f64 / totals.counted.max(1) as f64,
            valid: None,
            test: None,
            timings: totals.timings,
            seconds,
            evaluate_s: 0.0,
            work: totals.work.clone(),
        }
    }

    /// Gives every rank the metrics that rank 0 found: all decide by them alike. Collective.
    ///
    /// # Errors
    /// Errors of the communicator.
    pub(crate) fn share_metrics(&mut self, comm: &dyn Communicator) -> Result<()> {
        let mut values = [0.0; 5];
        if comm.rank() == 0 {
            let known = |metric: Option<f64>| if metric.is_some() { 1.0 } else { 0.0 };
            let (valid, test) = (self.valid, self.test);
            values = [known(valid), valid.unwrap_or_default(), known(test), test.unwrap_or_default(), self.evaluate_s];
        }
        comm.all_reduce_sum_f64(&mut values)?;
        let [has_valid, valid, has_test, test, evaluate_s] = values;
        self.valid = (has_valid > 0.0).then_some(valid);
        self.test = (has_test > 0.0).then_some(test);
        self.evaluate_s = evaluate_s;
        Ok(())
    }
}

/// A finished run.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// One entry an epoch, those before a resume not included.
    pub epochs: Vec<EpochReport>,
    /// Values in the model.
    pub num_parameters: usize,
    /// Key of the partition map used.
    pub partition: Option<String>,
    /// Feature rows that GPUs kept, where they kept any or it was counted what they would have found.
    pub cache: Option<CacheSummary>,
    /// Epochs that were found done.
    pub resumed_after: u32,
    /// The epoch with the highest valid metric, those before a resume included.
    pub best: Option<EpochReport>,
    /// Whether patience ended the run before its last epoch.
    pub stopped_early: bool,
    /// Metric of `valid` and `test`.
    pub metric: Metric,
    /// Memory that mini-batches were sampled from: by GPUs, or by the host.
    pub topology: TopologyStorage,
}
