//! Hooks: a program's own additions to the configuration of a run.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use gsplit_store::Baseline;

use crate::model::OwnLayer;
use crate::operator::OwnPlaces;
use crate::ranks::comms::Comms;
use crate::ranks::process::Process;
use crate::ranks::threads::{Abandon, as_rank, on_threads};
use crate::{Config, Result};

/// A program's own additions to the [`Config`] of a run.
#[derive(Clone, Debug, Default)]
pub struct Hooks {
    /// This process, if it is one of the ranks; all ranks are threads of this process when `None`.
    pub process: Option<Arc<Process>>,
    /// The place of each rank, whatever the device and GPUs of the configuration; chosen by them
    /// when `None`.
    pub places: Option<Arc<dyn OwnPlaces>>,
    /// The program's own layers, which replace the layers of [`ModelKind`](crate::ModelKind); all
    /// other options of the model apply to them too. A checkpoint does not record which layers its
    /// parameters belong to.
    pub layer: Option<OwnLayer>,
    /// Wait for the GPU at the end of each phase of a mini-batch, so that
    /// [`Timings`](crate::Timings) are exact per phase. Otherwise launched work counts in the phase
    /// that waits for it. For measurements.
    pub exact_phases: bool,
    /// Number of rows kept in memory when the others are read from disk; as many as fit when
    /// `None`.
    pub rows_kept: Option<usize>,
    /// Receives the baseline before the first epoch.
    pub baseline: Option<Arc<OnceLock<Baseline>>>,
    /// Becomes true when the run shall stop before its next mini-batch.
    pub stop: Option<&'static AtomicBool>,
    /// Function that ends the program when one rank has failed and another does not return within
    /// ten seconds: a thread that hangs cannot be ended, and the run cannot return before it. When
    /// `None` the run waits for it.
    pub abandon: Option<Abandon>,
}

impl Hooks {
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
        config: &Config,
        work: impl Fn(&Comms) -> Result<R> + Sync,
    ) -> Result<R> {
        match &self.process {
            Some(process) => as_rank(process.comms(), work),
            None => on_threads(
                config.num_ranks(),
                config.system.groups,
                Some(config.run.timeout()),
                self.abandon,
                work,
            ),
        }
    }
}
