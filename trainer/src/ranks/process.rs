//! One rank of a run whose ranks are processes, perhaps on several hosts.
//!
//! Every process opens the dataset by itself and computes as a rank that is a thread does; the first alone evaluates and writes
//! checkpoints and logs. The numbers are the same bits. On CPUs torch's c10d connects the ranks, or MPI; on GPUs sockets and NCCL do, or MPI with
//! the rows by way of the host. Processes of one host are ranks that follow each other under every launcher's usual order, so that
//! `--groups` of as many ranks as a host has keep rows within it.

use gsplit_kernels::{Communicator, Gpu, Links, Nccl, NcclId, Seat};

use crate::operator::GpuList;
use crate::ranks::c10d::Meeting;
use crate::ranks::comms::Comms;
use crate::ranks::rendezvous::Rendezvous;
use crate::{Error, Result, TrainConfig};

/// Groups that NCCL joins for a run: for rows, and, where there are several groups of ranks, for sums over all. One thread
/// computes, so both may be on one stream.
const COMPUTING: usize = 0;
const ALL: usize = 1;
/// The connections' channel for ids, beside one for what the host says in each of the groups.
const SAMPLING: u8 = 2;

/// This process as a rank, for [`RunOptions::process`](crate::RunOptions::process).
pub struct Process {
    comms: Comms,
    /// The GPU by its number, where it has one.
    gpu: Option<usize>,
    /// To the others, where no library connects them.
    links: Option<Links>,
    /// Place where they met, if torch connects them.
    meeting: Option<Meeting>,
}

impl Process {
    /// A rank with its ends of two groups of the same ranks, which do not disturb each other; `gpu` is what it computes on where
    /// that is what is asked for.
    pub fn new(sampling: Box<dyn Communicator>, computing: Box<dyn Communicator>, gpu: Option<usize>) -> Self {
        Self { comms: Comms::of_one_group(sampling, computing), gpu, links: None, meeting: None }
    }

    /// A rank of one of several groups ([`TrainConfig::groups`]), with its ends of `all` ranks and of two groups of those of its
    /// own, which name ranks by their numbers in the run ([`Communicator::name`]).
    pub fn in_group(
        all: Box<dyn Communicator>,
        [sampling, computing]: [Box<dyn Communicator>; 2],
        gpu: Option<usize>,
    ) -> Self {
        Self { comms: Comms::of_group(all, sampling, computing), gpu, links: None, meeting: None }
    }

    /// A rank of those that MPI connects, in one of `groups`, which waits in collectives for `timeout`. Collective.
    ///
    /// # Errors
    /// [`Error::Option`] unless all ranks were started with the same number of groups, and that divides theirs.
    #[cfg(feature = "mpi")]
    pub fn of_mpi(
        world: &gsplit_kernels::MpiWorld,
        groups: usize,
        timeout: Option<std::time::Duration>,
        gpu: Option<usize>,
    ) -> Result<Self> {
        check_groups(groups, world.size())?;
        let all = world.group(timeout);
        let said = gsplit_kernels::all_gather_v(&all, &[groups as u64])?.concat();
        if let Some(rank) = said.iter().position(|&other| other != groups as u64) {
            return Err(other_groups(world.rank(), groups, rank, said[rank]));
        }
        if groups == 1 {
            return Ok(Self::new(Box::new(world.group(timeout)), Box::new(all), gpu));
        }
        let own = || Ok::<_, Error>(Box::new(world.group_of(groups, timeout)?) as Box<dyn Communicator>);
        Ok(Self::in_group(Box::new(all), [own()?, own()?], gpu))
    }

    /// Rank of those that have met at `meeting`, in one of `groups`, which torch connects. Collective.
    ///
    /// # Errors
    /// [`Error::Option`] unless the number of groups divides that of the ranks; [`Error::Comm`] with what Gloo says.
    pub fn of_c10d(meeting: Meeting, groups: usize) -> Result<Self> {
        let Seat { rank, size, .. } = meeting.seat();
        check_groups(groups, size)?;
        let end = |name, seat| Ok::<_, Error>(Box::new(meeting.group(name, seat)?) as Box<dyn Communicator>);
        let (all, seat) = (end("all", Seat::among_all(rank, size))?, Seat::in_group(rank, size, groups));
        let sampling = end("sampling", seat)?;
        let comms = match groups {
            1 => Comms::of_one_group(sampling, all),
            _ => Comms::of_group(all, sampling, end("computing", seat)?),
        };
        Ok(Self { comms, gpu: None, links: None, meeting: Some(meeting) })
    }

    /// Rank `rank` of `size` that NCCL connects, in one of `groups`, each with a GPU of its own, by its number on this host. Collective.
    ///
    /// # Errors
    /// [`Error::Gpu`] without the GPU or NCCL; [`Error::Comm`] if the others do not come in time, and with what NCCL says;
    /// [`Error::Option`] as for MPI.
    pub fn of_nccl(rendezvous: &Rendezvous, (rank, size): (usize, usize), groups: usize, gpu: usize) -> Result<Self> {
        check_groups(groups, size)?;
        let device = Gpu::open(gpu)?;
        let (told, links) = rendezvous.meet(rank, size, || Invitation::for_all(size, groups, || Ok(NcclId::new()?)))?;
        let Invitation { groups: of_first, ids } = Invitation::from_bytes(&told)?;
        if of_first != groups as u64 {
            return Err(other_groups(rank, groups, 0, of_first));
        }
        let host = |channel: u8, seat: Seat| links.group(channel, seat, Some(rendezvous.timeout));
        let join = |group: usize, seat: Seat| {
            Ok::<_, Error>(Box::new(Nccl::join(&device, ids[group], host(group as u8, seat))?) as Box<dyn Communicator>)
        };
        let seat = Seat::in_group(rank, size, groups);
        // Ids are sampled while rows are computed: `Nccl` says why not by it.
        let (sampling, computing) = (Box::new(host(SAMPLING, seat)), join(COMPUTING, seat)?);
        let comms = match groups {
            1 => Comms::of_one_group(sampling, computing),
            _ => Comms::of_group(join(ALL, Seat::among_all(rank, size))?, sampling, computing),
        };
        Ok(Self { comms, gpu: Some(gpu), links: Some(links), meeting: None })
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
        self.comms.all().rank()
    }

    /// Tells the others that this rank has done all it had to. Without that they take its end for a failure.
    pub fn finish(&self) {
        if let Some(links) = &self.links {
            links.finish();
        }
        if self.meeting.is_some() {
            // Who ends while another's last message is on its way looks as if it had failed. One that has failed says so itself.
            let _ = self.comms.all().barrier();
        }
    }

    /// Tells the others that this rank has failed, where they can be told.
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
        let problem = "--device cuda: which GPU is this process's? Its launcher does not say (LOCAL_RANK)";
        self.gpu.ok_or_else(|| Error::Option(problem.into()))
    }

    /// Refuses another number of ranks than there are processes, and other groups than they form.
    pub(crate) fn check(&self, config: &TrainConfig) -> Result<()> {
        let (size, ranks) = (self.comms.all().size(), config.num_ranks());
        let problem = if size != ranks {
            format!("--ranks {ranks}: {size} processes were started, one is a rank")
        } else if self.comms.sampling().size() != config.ranks_of_group() {
            format!("--groups {}: the processes form groups of {}", config.groups, self.comms.sampling().size())
        } else {
            return Ok(());
        };
        Err(Error::Option(problem))
    }
}

/// Refuses groups that are not equal.
fn check_groups(groups: usize, size: usize) -> Result<()> {
    match groups > 0 && size.is_multiple_of(groups) {
        true => Ok(()),
        false => Err(Error::Option(format!(
            "--groups {groups}: {size} processes were started: give a number that divides it"
        ))),
    }
}

/// Error of `rank`, which has another number of groups than `other`.
fn other_groups(rank: usize, groups: usize, other: usize, of_other: u64) -> Error {
    Error::Option(format!(
        "--groups {groups} of rank {rank} is {of_other} on rank {other}: start all with the same options"
    ))
}

/// Message of rank 0 to another before NCCL joins them: 8 bytes for the number of groups, then the ids, of 128 bytes
/// each.
struct Invitation {
    groups: u64,
    /// Ids of this rank's group, and of all ranks.
    ids: [NcclId; 2],
}

impl Invitation {
    /// The invitations of all ranks, with ids of `new`.
    fn for_all(size: usize, groups: usize, new: impl Fn() -> Result<NcclId>) -> Result<Vec<Vec<u8>>> {
        let of_groups = (0..groups).map(|_| new()).collect::<Result<Vec<NcclId>>>()?;
        let all = if groups == 1 { of_groups[0] } else { new()? };
        let of_rank = |rank: usize| {
            let seat = Seat::in_group(rank, size, groups);
            Self { groups: groups as u64, ids: [of_groups[seat.first / seat.size], all] }.to_bytes()
        };
        Ok((0..size).map(of_rank).collect())
    }

    fn to_bytes(&self) -> Vec<u8> {
        let ids = self.ids.iter().flat_map(|id| *id.as_bytes());
        self.groups.to_le_bytes().into_iter().chain(ids).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let other = || Error::Option("--rendezvous: rank 0 is another version of gsplit".into());
        let (groups, ids) = bytes.split_first_chunk().ok_or_else(other)?;
        let ids: Vec<NcclId> = ids.as_chunks().0.iter().map(|&id| NcclId::from_bytes(id)).collect();
        Ok(Self { groups: u64::from_le_bytes(*groups), ids: ids.try_into().map_err(|_| other())? })
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
    fn each_rank_is_invited_to_its_own_groups() {
        for (size, groups) in [(1, 1), (4, 1), (4, 2), (6, 3), (4, 4)] {
            let made = std::cell::Cell::new(0u8);
            let new = || {
                made.set(made.get() + 1);
                Ok(NcclId::from_bytes([made.get(); NcclId::BYTES]))
            };
            let told = Invitation::for_all(size, groups, new).unwrap();
            let invitations: Vec<Invitation> =
                told.iter().map(|bytes| Invitation::from_bytes(bytes).unwrap()).collect();
            assert_eq!(usize::from(made.get()), if groups == 1 { 1 } else { 1 + groups }, "each has its ranks");
            for (rank, one) in invitations.iter().enumerate() {
                assert_eq!(one.groups, groups as u64);
                for (other_rank, other) in invitations.iter().enumerate() {
                    let together = rank * groups / size == other_rank * groups / size;
                    assert_eq!(one.ids[COMPUTING] == other.ids[COMPUTING], together);
                    assert_eq!(one.ids[ALL], other.ids[ALL]);
                    assert!(groups == 1 || other.ids[COMPUTING] != one.ids[ALL]);
                }
            }
            for bytes in [&told[0][1..], &told[0][..8], &told[0][..200], b""] {
                assert!(
                    Invitation::from_bytes(bytes).is_err_and(|error| error.to_string().contains("another version"))
                );
            }
        }
    }

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
