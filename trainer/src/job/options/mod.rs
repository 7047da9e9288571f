//! Options of a run that do not affect its results.

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

/// Mini-batches prepared ahead are all in memory: more than this is a mistake.
const MAX_PREFETCH: usize = 1024;

/// Options of a run that do not affect its results.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Folder for a checkpoint after every epoch.
    pub checkpoint: Option<PathBuf>,
    /// Continue after the newest checkpoint in that folder.
    pub resume: bool,
    /// Checkpoint, or folder of a run, with the initial parameters of a run that does not resume.
    pub init: Option<PathBuf>,
    /// JSONL file with one line per epoch, and the records of `log_every`.
    pub log: Option<PathBuf>,
    /// Folder for TensorBoard's event files.
    pub tensorboard: Option<PathBuf>,
    /// Mini-batches between two records in these logs, in addition to the records of epochs; 0 for none.
    pub log_every: u32,
    /// Threads of all ranks together; the number of cores when `None`. torch's number of threads is set from it,
    /// rayon's global pool is configured by the caller.
    pub threads: Option<usize>,
    /// Threads per rank, out of these, that sample and load ahead in a pool of their own; needs a `prefetch` above 0.
    /// The other threads compute, and rayon's global pool should have as many. Losses are the same with any number,
    /// except for the last bits of torch's own sums, which depend on the number of computing threads.
    pub sample_threads: Option<usize>,
    /// Engine of dense products on the host; chosen for this machine when `None`. Losses are the same up to rounding.
    pub products: Option<Products>,
    /// Storage that feature rows are read from.
    pub features: FeatureStorage,
    /// Bytes that this process may hold, its part of the mapped graph included; its part of 80 % of the free memory when `None`.
    pub memory: Option<u64>,
    /// Number of rows kept in memory when the others are read from disk; as many as fit when `None`.
    pub rows_kept: Option<usize>,
    /// With [`Device::Cuda`](crate::Device::Cuda), the number of each rank's GPU, where GPUs may repeat; one GPU per
    /// rank, in order, when `None`.
    pub gpus: Option<GpuList>,
    /// Feature rows that GPUs keep in their memory; chosen for the parallelism when `None`.
    pub placement: Option<RowPlacement>,
    /// Bytes per rank for feature rows in GPU memory; when `None`, as many as a dry run leaves free next to the graph.
    pub cache: Option<u64>,
    /// Presample that ranks the rows to keep in memory; when `None` the largest one drawn like the run.
    pub presample: Option<String>,
    /// Storage that GPUs sample the graph from.
    pub topology: TopologyStorage,
    /// Wait for the GPU at the end of each phase of a mini-batch, so that [`Timings`](crate::Timings) are exact per
    /// phase. Otherwise launched work counts in the phase that waits for it. For measurements.
    pub exact_phases: bool,
    /// The place of each rank, whatever the device and `gpus`; chosen by them when `None`.
    pub places: Option<Arc<dyn OwnPlaces>>,
    /// This process, if it is one of the ranks; all ranks are threads of this process when `None`.
    pub process: Option<Arc<Process>>,
    /// Time that a rank that is a thread waits for others before the run fails with
    /// [`CommError::Timeout`](gsplit_kernels::CommError::Timeout); unlimited when `None`. Ranks that are processes have
    /// their own. Evaluation and checkpoints, during which the others wait for rank 0, do not count.
    pub timeout: Option<Duration>,
    /// Number of mini-batches after which an epoch ends, to estimate the speed of a run; all when `None`.
    pub trial: Option<usize>,
    /// Function that ends the program when one rank has failed and another does not return within ten seconds: a thread
    /// that hangs cannot be ended, and the run cannot return before it. When `None` the run waits for it.
    pub abandon: Option<Abandon>,
    /// Number of mini-batches sampled and loaded ahead of the computation; the losses are the same for any number.
    pub prefetch: usize,
    /// Receives the baseline before the first epoch.
    pub baseline: Option<Arc<OnceLock<Baseline>>>,
    /// Becomes true when the run shall stop before its next mini-batch.
    pub stop: Option<&'static AtomicBool>,
    /// The program's own layers, which replace the layers of [`ModelKind`](crate::ModelKind); all other options of the
    /// model apply to them too. A checkpoint does not record which layers its parameters belong to.
    pub layer: Option<OwnLayer>,
}

impl RunOptions {
    /// The ranks, out of `ranks`, that run in this process.
    pub(crate) fn ranks_here(&self, ranks: usize) -> Range<usize> {
        match &self.process {
            Some(process) => process.rank()..process.rank() + 1,
            None => 0..ranks,
        }
    }

    /// True if the first rank is in this process.
    pub(crate) fn leads(&self) -> bool {
        self.process.as_ref().is_none_or(|process| process.rank() == 0)
    }

    /// Runs `work` on each rank of this process and returns the result of the first.
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

    /// Checks options that do not depend on the dataset; returns how many of `threads` compute on `ranks` ranks together.
    pub(crate) fn compute_threads(&self, threads: usize, ranks: usize) -> Result<usize> {
        let problem = if self.prefetch > MAX_PREFETCH {
            format!("--prefetch {}: expected at most {MAX_PREFETCH}", self.prefetch)
        } else if self.log_every > 0 && self.log.is_none() && self.tensorboard.is_none() {
            format!("--log-every {}: needs --log or --tensorboard", self.log_every)
        } else {
            match self.sample_threads {
                None => return Ok(threads),
                Some(0) => "--sample-threads 0: expected 1 or more: leave it out to share the threads".into(),
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
