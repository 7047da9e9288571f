//! One rank of a run whose ranks are processes, perhaps on several hosts.
//!
//! Every process opens the dataset by itself and computes as a rank that is a thread does; the first alone writes
//! checkpoints and logs. The numbers are the same bits. On CPUs MPI connects the ranks; on GPUs NCCL does, or MPI with the
//! rows by way of the host.

use gsplit_kernels::{Communicator, Gpu, Nccl, NcclId};

use crate::batch::Comms;
use crate::place::GpuList;
use crate::rendezvous::{Line, Rendezvous};
use crate::{Error, Result};

/// This process as a rank, for [`RunOptions::process`](crate::RunOptions::process).
pub struct Process {
    comms: Comms,
    /// The GPU by its number, where it has one.
    gpu: Option<usize>,
    /// By which the others learn of its failure.
    line: Option<Line>,
}

impl Process {
    /// A rank with its ends of two groups of the same ranks, which do not disturb each other; `gpu` is what it computes on where
    /// that is what is asked for.
    pub fn new(sampling: Box<dyn Communicator>, computing: Box<dyn Communicator>, gpu: Option<usize>) -> Self {
        Self { comms: Comms { sampling, computing }, gpu, line: None }
    }

    /// A rank of those that MPI connects, which waits in collectives for `timeout`. Collective.
    #[cfg(feature = "mpi")]
    pub fn of_mpi(world: &gsplit_kernels::MpiWorld, timeout: Option<std::time::Duration>, gpu: Option<usize>) -> Self {
        Self::new(Box::new(world.group(timeout)), Box::new(world.group(timeout)), gpu)
    }

    /// Rank `rank` of `size` that NCCL connects, each with a GPU of its own, by its number on this host. Collective.
    ///
    /// # Errors
    /// [`Error::Gpu`] without the GPU or NCCL; [`Error::Comm`] if the others do not come in time, and with what NCCL says.
    pub fn of_nccl(rendezvous: &Rendezvous, (rank, size): (usize, usize), gpu: usize) -> Result<Self> {
        let device = Gpu::open(gpu)?;
        // What one group waits for must not stand behind what the other waits for.
        let sampling = device.side_stream()?;
        let ids = || {
            let ids = [NcclId::new()?, NcclId::new()?];
            Ok(ids.iter().flat_map(|id| *id.as_bytes()).collect())
        };
        let (ids, line) = rendezvous.meet(rank, size, ids)?;
        let mut ids = ids.chunks_exact(NcclId::BYTES).map(|id| id.try_into().map(NcclId::from_bytes));
        let mut join = |gpu: &Gpu| {
            let Some(Ok(id)) = ids.next() else {
                return Err(Error::Option("--rendezvous: rank 0 is another version of gsplit".into()));
            };
            let comm = Nccl::join(gpu, id, (rank, size), Some(rendezvous.timeout), Some(line.alarm()))?;
            Ok(Box::new(comm) as Box<dyn Communicator>)
        };
        let comms = Comms { sampling: join(&sampling)?, computing: join(&device)? };
        Ok(Self { comms, gpu: Some(gpu), line: Some(line) })
    }

    /// The number of the GPU for the process that is `local` among those of its host, from 0: that of `named`, if any are,
    /// else its own number. A process that sees but one of `visible` GPUs has been given it by its launcher.
    ///
    /// # Errors
    /// [`Error::Option`] if fewer GPUs are named.
    pub fn gpu_of(local: usize, named: Option<&GpuList>, visible: usize) -> Result<usize> {
        let Some(GpuList(named)) = named else { return Ok(if visible == 1 { 0 } else { local }) };
        named.get(local).copied().ok_or_else(|| {
            Error::Option(format!(
                "--gpus names {} GPUs, but this is process {local} of its host, counted from 0: name one for each",
                named.len()
            ))
        })
    }

    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.comms.computing.rank()
    }

    /// Tells the others that this rank has done all it had to. Without that they take its end for a failure.
    pub fn finish(&self) {
        if let Some(line) = &self.line {
            line.finish();
        }
    }

    /// Tells the others that this rank has failed, where they can be told.
    pub fn fail(&self, reason: &str) {
        self.comms.fail(reason);
    }

    pub(crate) fn comms(&self) -> &Comms {
        &self.comms
    }

    /// The GPU that it computes on.
    pub(crate) fn gpu(&self) -> Result<usize> {
        let problem = "--device cuda: which GPU is this process's? Its launcher does not say (LOCAL_RANK)";
        self.gpu.ok_or_else(|| Error::Option(problem.into()))
    }

    /// Refuses another number of ranks than there are processes.
    pub(crate) fn check(&self, ranks: usize) -> Result<()> {
        match self.comms.computing.size() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_of_a_host_has_its_gpu() {
        let named: GpuList = "3,5".parse().unwrap();
        let cases = [
            (2, None, 4, Some(2)),
            // srun --gpus-per-task=1
            (2, None, 1, Some(0)),
            (0, Some(&named), 8, Some(3)),
            (1, Some(&named), 8, Some(5)),
            (2, Some(&named), 8, None),
        ];
        for (local, named, visible, expected) in cases {
            match (Process::gpu_of(local, named, visible), expected) {
                (found, Some(gpu)) => assert_eq!(found.unwrap(), gpu),
                (found, None) => assert!(found.unwrap_err().to_string().contains("--gpus names 2 GPUs"), "{local}"),
            }
        }
    }
}
