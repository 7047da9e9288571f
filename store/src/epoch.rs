//! Report of an epoch: a line in the log of `gsplit train`, and an entry of a checkpoint's history.

use serde::{Deserialize, Serialize};

/// Seconds that a rank spent on each activity. Sampling and loading count even while another
/// mini-batch is computed, so the parts may add up to more than the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Drawing, relabelling and splitting, and the exchange of ids that this needs.
    pub sample_s: f64,
    /// Gathering feature rows, and exchanging them on the host.
    pub load_s: f64,
    /// Forward, backward and update.
    pub compute_s: f64,
    /// Exchanging other rows and gradients, including waiting for other ranks.
    pub exchange_s: f64,
    /// Waiting while a mini-batch was computed, nearly all of it included in `exchange_s`: for
    /// other ranks to arrive if ranks are threads, for their messages if ranks are processes.
    pub wait_s: f64,
}

impl Timings {
    /// All numbers, always in the same order.
    pub fn each(&mut self) -> [&mut f64; 5] {
        [
            &mut self.sample_s,
            &mut self.load_s,
            &mut self.compute_s,
            &mut self.exchange_s,
            &mut self.wait_s,
        ]
    }
}

/// Rows sent between ranks for one layer in forward passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerRows {
    /// Number of rows.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Bytes and messages that ranks sent to others for one phase of the mini-batches over one route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentRecord {
    /// Name of the phase, e.g. `sample`.
    pub phase: String,
    /// Name of the route, e.g. `memory`.
    pub route: String,
    /// Number of bytes.
    pub bytes: u64,
    /// Number of messages.
    pub messages: u64,
}

/// Work of one rank or of all: counts of what was computed, loaded and sent. `S` is serialized as a
/// list of [`SentRecord`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work<S = Vec<SentRecord>> {
    /// Sampled edges computed.
    pub edges: u64,
    /// Feature rows loaded.
    pub rows_loaded: u64,
    /// Loaded rows that were in the loading GPU's own memory, or would have been, if ranks on the
    /// host count them.
    pub rows_cached: u64,
    /// Loaded rows that were, or would have been, in the memory of other ranks' GPUs; the remaining
    /// rows were in the host's.
    pub rows_from_peers: u64,
    /// Loaded rows that were read from the dataset's file, if rows are read from disk.
    pub rows_from_disk: u64,
    /// Bytes read for these rows: whole blocks, each counted as often as it was read.
    pub bytes_from_disk: u64,
    /// Loaded rows that the host keeps in memory, if the others are read from the file.
    pub rows_kept: u64,
    /// Rows sent from one rank to another in forward passes.
    pub rows_exchanged: u64,
    /// `rows_exchanged` by layer, from the seeds down; feature rows come last. Empty if no rows
    /// move by a partition map.
    pub exchanged: Vec<LayerRows>,
    /// Bytes sent from one rank to another, in total over all ranks.
    pub bytes_sent: u64,
    /// `bytes_sent` by phase and route, with messages.
    pub sent: S,
}

/// Bytes of the first rank's GPU memory that a run holds, whether in use or kept for later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuMemory {
    /// Bytes in the driver's pool, from which kernels allocate.
    pub gpu_pool_bytes: u64,
    /// Bytes in torch's allocator.
    pub gpu_torch_bytes: u64,
}

/// One epoch over all ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochReport<S = Vec<SentRecord>> {
    /// Number of the epoch, from 1.
    pub epoch: u32,
    /// Mean loss of the labelled training seeds (of the pairs, if links are learned), as computed
    /// in each mini-batch: with dropout, before the update. With class weights, the weighted mean:
    /// the sum of weights times losses divided by the sum of weights.
    pub loss: f64,
    /// Mean over the mini-batches of the gradient's norm, before clipping.
    pub gradient_norm: f64,
    /// Learning rate of the last update.
    pub learning_rate: f64,
    /// Loss scale of the next mini-batch, if gradients are f16.
    pub loss_scale: Option<f64>,
    /// Mini-batches that changed nothing because a gradient in f16 was not finite: they count in
    /// neither loss nor norm.
    pub skipped: u64,
    /// Factor by which ranks drew the vertices that they keep more often, if they did.
    pub draw_factor: Option<f64>,
    /// Share of correct decisions on the training seeds, as computed when they were trained on: one
    /// decision per seed; one per seed and class if seeds can have several classes; one per pair if
    /// links are learned. `None` for numbers.
    pub train: Option<f64>,
    /// Score of the valid split with full neighbourhoods, if evaluated.
    pub valid: Option<f64>,
    /// Mean loss of the valid split, weighted like the training loss, if evaluated; `None` if links
    /// are learned.
    pub valid_loss: Option<f64>,
    /// Score of the test split with full neighbourhoods, if evaluated.
    pub test: Option<f64>,
    /// Whether the scores are errors, so that lower is better.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scores_are_errors: bool,
    /// Mean over the ranks of the seconds spent on each activity.
    #[serde(flatten)]
    pub timings: Timings,
    /// Wall time of the epoch, excluding evaluation.
    pub seconds: f64,
    /// Wall time of the evaluation.
    pub evaluate_s: f64,
    /// Total work of all ranks.
    #[serde(flatten)]
    pub work: Work<S>,
    /// Memory at the end of the epoch, on a GPU.
    #[serde(flatten)]
    pub memory: Option<GpuMemory>,
}

impl<S> EpochReport<S> {
    /// Score of the valid split, negated if it is an error, so that higher is better. `None` if it
    /// was not evaluated.
    pub fn merit(&self) -> Option<f64> {
        self.valid.map(|score| if self.scores_are_errors { -score } else { score })
    }

    /// The best epoch of `history` on the valid split: among equal scores the one with the lowest
    /// valid loss, among equal losses the first. `None` if no score is a number.
    pub fn best(history: &[Self]) -> Option<&Self> {
        history
            .iter()
            .reduce(|best, other| if other.is_better(best) { other } else { best })
            .filter(|best| best.has_merit())
    }

    fn has_merit(&self) -> bool {
        self.merit().is_some_and(|merit| !merit.is_nan())
    }

    /// Whether this epoch is better than `other`: it has a better valid score, or the same score
    /// and a lower valid loss. An epoch without a score is never better.
    pub fn is_better(&self, other: &Self) -> bool {
        let loss = |report: &Self| {
            report.valid_loss.filter(|loss| !loss.is_nan()).unwrap_or(f64::INFINITY)
        };
        match (self.merit(), other.merit()) {
            (Some(own), Some(others)) if others == own => loss(self) < loss(other),
            (Some(own), Some(others)) if !others.is_nan() => own > others,
            (own, _) => own.is_some_and(|own| !own.is_nan()),
        }
    }
}
