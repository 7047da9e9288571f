//! Report of an epoch: a line of the log of `gsplit train`, and an entry of a checkpoint's history.

use serde::{Deserialize, Serialize};

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
    /// Waiting while a mini-batch was computed, nearly all of it in `exchange_s`: for ranks that are threads until they came, for
    /// processes until their messages had.
    pub wait_s: f64,
}

impl Timings {
    /// Every number, in the same order always.
    pub fn each(&mut self) -> [&mut f64; 5] {
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

/// Bytes and messages that ranks sent to others for a phase of the mini-batches by a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentRecord {
    /// Name of the phase, as `sample`.
    pub phase: String,
    /// Name of the route, as `memory`.
    pub route: String,
    /// Number of bytes.
    pub bytes: u64,
    /// Number of messages.
    pub messages: u64,
}

/// Work on one rank or on all together: counts of what was computed, loaded and sent. `S` is read from a list of [`SentRecord`] and
/// written as one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work<S = Vec<SentRecord>> {
    /// Sampled edges computed.
    pub edges: u64,
    /// Feature rows loaded.
    pub rows_loaded: u64,
    /// Loaded rows that were in the loading GPU's own memory, or would have been, where ranks on the host count that.
    pub rows_cached: u64,
    /// Loaded rows that were, or would have been, in the memory of other ranks' GPUs; the rest was in the host's.
    pub rows_from_peers: u64,
    /// Loaded rows that were read from the dataset's file, where rows are read so.
    pub rows_from_disk: u64,
    /// Bytes that were read for them: whole blocks, each as often as it was read.
    pub bytes_from_disk: u64,
    /// Loaded rows that the host keeps in memory, where the others are read from the file.
    pub rows_kept: u64,
    /// Rows that crossed from one rank to another in forward passes.
    pub rows_exchanged: u64,
    /// The same by layer, from the seeds down; the last are feature rows. Empty where nothing crosses by a partition map.
    pub exchanged: Vec<LayerRows>,
    /// Bytes that crossed from one rank to another, over all ranks together.
    pub bytes_sent: u64,
    /// The same by phase and route, with messages.
    pub sent: S,
}

/// Bytes of the memory of the first rank's GPU that a run holds, whether it uses them or keeps them for later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuMemory {
    /// In the driver's pool, from which kernels take theirs.
    pub gpu_pool_bytes: u64,
    /// In torch's allocator.
    pub gpu_torch_bytes: u64,
}

/// One epoch over all ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochReport<S = Vec<SentRecord>> {
    /// From 1.
    pub epoch: u32,
    /// Mean loss of the labelled training seeds (of the pairs, where links are learnt), each as it was in its mini-batch: with dropout,
    /// before the update. With weights of classes the weighted mean: the sum of weights times losses over the sum of weights.
    pub loss: f64,
    /// Mean of the mini-batches' gradients' norms, before clipping.
    pub gradient_norm: f64,
    /// Learning rate of the last update.
    pub learning_rate: f64,
    /// Scale of the next loss, where gradients are f16.
    pub loss_scale: Option<f64>,
    /// Mini-batches that changed nothing, because a gradient in f16 was not finite: neither loss nor norm counts them.
    pub skipped: u64,
    /// How many times more often ranks drew what they keep, where they did.
    pub draw_factor: Option<f64>,
    /// Share of right decisions on the training seeds, as they were when trained on: one a seed, one a seed and class
    /// where seeds can have several, one a pair where links are learnt. `None` for numbers.
    pub train: Option<f64>,
    /// Score of the valid split with full neighbourhoods, when evaluated.
    pub valid: Option<f64>,
    /// Mean loss of the valid split, weighted as the training's, when evaluated; `None` where links are learnt.
    pub valid_loss: Option<f64>,
    /// Score of the test split with full neighbourhoods, when evaluated.
    pub test: Option<f64>,
    /// Whether the scores are errors, of which less is better.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scores_are_errors: bool,
    /// Seconds of the mean rank by activity.
    #[serde(flatten)]
    pub timings: Timings,
    /// Wall time of the epoch without evaluation.
    pub seconds: f64,
    /// Wall time of the evaluation.
    pub evaluate_s: f64,
    /// Work of all ranks.
    #[serde(flatten)]
    pub work: Work<S>,
    /// Memory at the end of the epoch, on a GPU.
    #[serde(flatten)]
    pub memory: Option<GpuMemory>,
}

impl<S> EpochReport<S> {
    /// Score of the valid split, negated where it is an error: more is better. `None` when it was not evaluated.
    pub fn merit(&self) -> Option<f64> {
        self.valid.map(|score| if self.scores_are_errors { -score } else { score })
    }

    /// The best epoch of `history` by the valid split: of equal scores the one with the lowest valid loss, of equal losses the first.
    /// `None` when no score is a number.
    pub fn best(history: &[Self]) -> Option<&Self> {
        history
            .iter()
            .reduce(|best, other| if other.is_better(best) { other } else { best })
            .filter(|best| best.has_merit())
    }

    fn has_merit(&self) -> bool {
        self.merit().is_some_and(|merit| !merit.is_nan())
    }

    /// Whether this epoch is better than `other`: it has the better valid score, or the same and a lower valid loss. An epoch without
    /// a score is never better.
    pub fn is_better(&self, other: &Self) -> bool {
        let loss = |report: &Self| report.valid_loss.filter(|loss| !loss.is_nan()).unwrap_or(f64::INFINITY);
        match (self.merit(), other.merit()) {
            (Some(own), Some(others)) if others == own => loss(self) < loss(other),
            (Some(own), Some(others)) if !others.is_nan() => own > others,
            (own, _) => own.is_some_and(|own| !own.is_nan()),
        }
    }
}
