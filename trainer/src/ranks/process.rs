//! One rank of a run whose ranks are processes, perhaps on several hosts.
//!
//! Every process opens the dataset and computes like a rank that is a thread; only the first
//! evaluates and writes checkpoints and logs. The numbers are the same bits. Torch's c10d connects
//! the ranks; between GPUs NCCL moves the rows. Launchers usually give consecutive ranks to the
//! processes of one host, so `--groups` of as many ranks as a host has keep rows within it.

use gsplit_kernels::{Communicator, Gpu, Nccl, Seat};

use crate::config::GpuList;
use crate::ranks::c10d::{C10d, Meeting};
use crate::ranks::comms::Comms;
use crate::{Config, Error, Result};

/// This process as a rank, for [`Hooks::process`](crate::Hooks::process).
pub struct Process {
    comms: Comms,
    /// The number of its GPU, if it has one.
    gpu: Option<usize>,
    /// The meeting of the processes, if torch connects them.
    meeting: Option<Meeting>,
}

impl Process {
    /// A rank with its ends of the communicators; `gpu` is the one it computes on if GPUs are asked
    /// for.
    #[cfg(test)]
    pub(crate) fn over(comms: Comms, gpu: Option<usize>) -> Self {
        Self { comms, gpu, meeting: None }
    }

    /// Joins the ranks at `meeting` as one of `groups` equal groups; `gpu` is the number of this
    /// rank's GPU on its host, if it has one. Ids are sampled on the host while rows are computed.
    /// Collective.
    ///
    /// # Errors
    /// [`Error::Gpu`] without the GPU or NCCL; [`Error::Comm`] with the message of Gloo or NCCL.
    pub fn joined(meeting: Meeting, groups: usize, gpu: Option<usize>) -> Result<Self> {
        let Seat { rank, size, .. } = meeting.seat();
        let (of_all, seat) = (Seat::among_all(rank, size), Seat::in_group(rank, size, groups));
        let (all, sampling) =
            (meeting.group("all", of_all)?, Box::new(meeting.group("sampling", seat)?));
        // Failures here are reported to the other ranks.
        let device = gpu
            .map(Gpu::open)
            .transpose()
            .inspect_err(|error| Communicator::fail(&all, &error.to_string()))?;
        let over = |host: C10d| -> Result<Box<dyn Communicator>> {
            Ok(match &device {
                Some(device) => Box::new(Nccl::join(device, Box::new(host))?),
                None => Box::new(host),
            })
        };
        let all = over(all)?;
        let group = match groups {
            1 => None,
            _ => Some(over(meeting.group("computing", seat)?)?),
        };
        Ok(Self { comms: Comms::new(all, sampling, group), gpu, meeting: Some(meeting) })
    }

    /// Refuses groups that are not equal.
    ///
    /// # Errors
    /// [`Error::Option`] unless the number of groups divides the number of processes.
    pub fn check_groups(groups: usize, size: usize) -> Result<()> {
        match groups > 0 && size.is_multiple_of(groups) {
            true => Ok(()),
            false => Err(Error::Option(format!(
                "--groups {groups}: {size} processes were started: give a number that divides it"
            ))),
        }
    }

    /// The number of the GPU for process `local` of its host, from 0: the one `named` for it, if
    /// any are, else its own number. A process that sees only one of `visible` GPUs was given it by
    /// its launcher.
    ///
    /// # Errors
    /// [`Error::Option`] if fewer GPUs are named.
    pub fn gpu_of(local: usize, named: Option<&GpuList>, visible: usize) -> Result<usize> {
        let Some(GpuList(named)) = named else { return Ok(if visible == 1 { 0 } else { local }) };
        named.get(local).copied().ok_or_else(|| {
            Error::Option(format!(
                "--gpus names {} GPUs, but this is process {local} of its host, counted from 0: \
                 name one for each",
                named.len()
            ))
        })
    }

    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.comms.all().rank()
    }

    /// Tells the others that this rank has finished. Otherwise they take its end for a failure.
    pub fn finish(&self) {
        if self.meeting.is_some() {
            // A rank that ends while a last message is in transit looks as if it had failed. A
            // failed one reports that itself.
            let _ = self.comms.all().barrier();
        }
    }

    /// Tells the others that this rank has failed, if they can be reached.
    pub fn fail(&self, reason: &str) {
        self.comms.fail(reason);
        if let Some(meeting) = &self.meeting {
            meeting.linger();
        }
    }

    pub(crate) fn comms(&self) -> &Comms {
        &self.comms
    }

    /// The GPU that it computes on.
    pub(crate) fn gpu(&self) -> Result<usize> {
        let problem =
            "--device cuda: which GPU is this process's? Its launcher does not say (LOCAL_RANK)";
        self.gpu.ok_or_else(|| Error::Option(problem.into()))
    }

    /// Refuses a number of ranks other than the number of processes.
    pub(crate) fn check(&self, config: &Config) -> Result<()> {
        let (size, ranks) = (self.comms.all().size(), config.num_ranks());
        match size == ranks {
            true => Ok(()),
            false => Err(Error::Option(format!(
                "--ranks {ranks}: {size} processes were started, one is a rank"
            ))),
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
                (found, None) => assert!(
                    found.unwrap_err().to_string().contains("--gpus names 2 GPUs"),
                    "{local}"
                ),
            }
        }
    }
}
