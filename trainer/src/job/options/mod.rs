//! Options around a run.

mod rows;
mod storage;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gsplit_store::Baseline;

use crate::model::OwnLayer;
use crate::operator::{GpuList, OwnPlaces, Products};
use crate::ranks::comms::Comms;
use crate::ranks::process::Process;
use crate::ranks::threads::{Abandon, as_rank, on_threads};
use crate::{Error, Result, TrainConfig};

pub use rows::RowPlacement;
pub use storage::{FeatureStorage, TopologyStorage};

/// Mini-batches ahead, which all lie in memory: more than this is a mistake.
const MAX_PREFETCH: usize = 1024;

/// Options around a run that do not change its result.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Folder for a checkpoint after every epoch.
    pub checkpoint: Option<PathBuf>,
    /// Continue after the newest checkpoint there.
    pub resume: bool,
    /// Checkpoint, or folder of a run's, whose parameters a run starts from that continues none.
    pub init: Option<PathBuf>,
    /// JSONL file with one line an epoch, and those of `log_every`.
    pub log: Option<PathBuf>,
    /// Folder for TensorBoard's event files.
    pub tensorboard: Option<PathBuf>,
    /// Mini-batches from one record of these logs to the next, beside those of the epochs; 0 for none.
    pub log_every: u32,
    /// Threads of all ranks together; the machine's cores when `None`. Those of torch's operators are set here, those of
    /// rayon's global pool are the caller's.
    pub threads: Option<usize>,
    /// Threads of each rank, of these, that sample and load ahead, in a pool of their own; for a `prefetch` above 0. The others
    /// compute, and rayon's global pool should have as many. Losses are the same with any number, but for the last
    /// bits of torch's own sums, which depend on how many threads compute.
    pub sample_threads: Option<usize>,
    /// Engine of dense products on the host; the one that suits this machine when `None`. Losses are the same up to rounding.
    pub products: Option<Products>,
    /// Storage that feature rows are read from.
    pub features: FeatureStorage,
    /// Bytes that this process may hold, its part of the mapped graph included; when `None` its part of what is free less a fifth.
    pub memory: Option<u64>,
    /// Rows that stay in memory where the others are read from disk, whatever there is room for; as many as fit when `None`.
    pub rows_kept: Option<usize>,
    /// With [`Device::Cuda`](crate::Device::Cuda), the GPU of each rank by its number, one perhaps more than once; one
    /// each, in order, when `None`.
    pub gpus: Option<GpuList>,
    /// Feature rows that GPUs keep in their memory; when `None` those that suit the parallelism.
    pub placement: Option<RowPlacement>,
    /// Bytes of its GPU's memory that each rank has for feature rows; when `None` what a dry run leaves beside the graph.
    pub cache: Option<u64>,
    /// Presample by which rows are ranked that are kept in memory; when `None` the one that was drawn most as the run draws.
    pub presample: Option<String>,
    /// Storage that GPUs sample the graph from.
    pub topology: TopologyStorage,
    /// Wait for the GPU where a phase of a mini-batch ends, so that each phase's time in [`Timings`](crate::Timings) is its own;
    /// without, what was launched and not awaited counts where something waits for it. For measurements.
    pub exact_phases: bool,
    /// The place of each rank, whatever the device and `gpus`; theirs when `None`.
    pub places: Option<Arc<dyn OwnPlaces>>,
    /// This process as one of the ranks; all ranks are threads of it when `None`.
    pub process: Option<Arc<Process>>,
    /// How long a rank that is a thread waits for others before the run fails with
    /// [`CommError::Timeout`](gsplit_kernels::CommError::Timeout); without limit when `None`. Those that are processes were given
    /// theirs. Evaluation and checkpoints, for which the others wait for rank 0, do not count.
    pub timeout: Option<Duration>,
    /// Mini-batches after which an epoch ends, to try how fast a run would be; all when `None`.
    pub trial: Option<usize>,
    /// Function that ends the program when one rank has failed and another does not return within ten seconds: a thread that hangs
    /// cannot be ended, and the run cannot return before it. The run waits for it when `None`.
    pub abandon: Option<Abandon>,
    /// Mini-batches that are sampled and loaded ahead of the one that is computed; the losses are the same for any number.
    pub prefetch: usize,
    /// Is told the baseline before the first epoch.
    pub baseline: Option<Arc<OnceLock<Baseline>>>,
    /// Becomes true when the run is to stop before its next mini-batch.
    pub stop: Option<&'static AtomicBool>,
    /// A program's own layers, which take the place of those that [`ModelKind`](crate::ModelKind) names; all other options of
    /// the model apply to them too. A checkpoint does not say whose layers its parameters are.
    pub layer: Option<OwnLayer>,
}

impl RunOptions {
    /// Ranks, of `ranks`, in this process.
    pub(crate) fn ranks_here(&self, ranks: usize) -> Range<usize> {
        match &self.process {
            Some(process) => process.rank()..process.rank() + 1,
            None => 0..ranks,
        }
    }

    /// Whether the first rank is in this process.
    pub(crate) fn leads(&self) -> bool {
        self.process.as_ref().is_none_or(|process| process.rank() == 0)
    }

    /// `work` of each rank, or of the one that this process is; what the first of them returned.
    pub(crate) fn on_all_ranks<R: Send>(
        &self,
        config: &TrainConfig,
        work: impl Fn(&Comms) -> Result<R> + Sync,
    ) -> Result<R> {
        match &self.process {
            Some(process) => as_rank(process.comms(), work),
            None => on_threads((config.num_ranks(), config.groups), self.timeout, self.abandon, work),
        }
    }

    /// Checks what does not depend on the dataset; returns the threads of `threads` that compute on `ranks` ranks together.
    pub(crate) fn compute_threads(&self, threads: usize, ranks: usize) -> Result<usize> {
        let problem = if self.prefetch > MAX_PREFETCH {
            format!("--prefetch {}: expected at most {MAX_PREFETCH}", self.prefetch)
        } else if self.log_every > 0 && self.log.is_none() && self.tensorboard.is_none() {
            format!("--log-every {}: needs --log or --tensorboard", self.log_every)
        } else {
            match self.sample_threads {
                None => return Ok(threads),
                Some(0) => {
                    "--sample-threads 0: expected 1 or more: leave it out for threads that all work shares".into()
                }
                Some(each) if self.prefetch == 0 => format!("--sample-threads {each}: needs --prefetch 1 or more"),
                Some(each) => match threads.checked_sub(each.saturating_mul(ranks)) {
                    Some(left) if left > 0 => return Ok(left),
                    _ => format!(
                        "--sample-threads {each}: for each of {ranks} ranks, that leaves none of {threads} threads to \
                         compute with: ask for fewer, or raise --threads"
                    ),
                },
            }
        };
        Err(Error::Option(problem))
    }
}
