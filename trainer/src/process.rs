//! One rank of a run whose ranks are processes, perhaps on several hosts.
//!
//! Every process opens the dataset by itself and computes as a rank that is a thread does; the first alone writes
//! checkpoints and logs. The numbers are the same bits.

use gsplit_kernels::Communicator;

use crate::batch::Comms;
use crate::{Error, Result};

/// This process as a rank, for [`RunOptions::process`](crate::RunOptions::process).
pub struct Process(Comms);

impl Process {
    /// A rank with its ends of two groups of the same ranks, which do not disturb each other.
    pub fn new(sampling: Box<dyn Communicator>, computing: Box<dyn Communicator>) -> Self {
        Self(Comms { sampling, computing })
    }

    /// A rank of those that MPI connects. Collective.
    #[cfg(feature = "mpi")]
    pub fn of_mpi(world: &gsplit_kernels::MpiWorld) -> Self {
        Self::new(Box::new(world.group()), Box::new(world.group()))
    }

    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.0.computing.rank()
    }

    pub(crate) fn comms(&self) -> &Comms {
        &self.0
    }

    /// Refuses another number of ranks than there are processes.
    pub(crate) fn check(&self, ranks: usize) -> Result<()> {
        match self.0.computing.size() {
            size if size == ranks => Ok(()),
            size => Err(Error::Option(format!("--ranks {ranks}: {size} processes were started, one is a rank"))),
        }
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Process(rank {})", self.rank())
    }
}
