//! Ranks in processes of their own, each with a GPU, which NCCL joins.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{ALONE, alone, start};
use crate::comm::tests::conformance;
use crate::comm::tests::gpus::moves_device_memory;
use crate::comm::{Alarm, Communicator, Nccl, Seat, device_all_to_all_v};
use crate::cuda::{Gpu, NcclId};
use crate::error::CommError;
use crate::scan::cuda::sum_before;

/// Long for what takes a moment, and short for a test.
const PATIENCE: Duration = Duration::from_secs(3);
/// `RANK SIZE ID`, of a process that is a rank.
const RANK: &str = "GSPLIT_TEST_RANK";

/// The rank that a test does without.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    Nobody,
    Absent(usize),
    Dies(usize),
    /// With these words of the fake's.
    Stopped(usize, &'static str),
}

/// A rank of a test: its number, how many there are, and their id.
pub(super) struct Place {
    pub rank: usize,
    pub size: usize,
    id: NcclId,
}

impl Place {
    /// Where this process is a rank.
    fn here() -> Option<Self> {
        let place = std::env::var(RANK).ok()?;
        let mut words = place.split(' ');
        let mut number = || words.next().unwrap().parse().unwrap();
        let (rank, size) = (number(), number());
        let hex = words.next().unwrap();
        let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
        Some(Self { rank, size, id: NcclId::from_bytes(std::array::from_fn(byte)) })
    }

    pub fn join(&self, alarm: Option<Arc<dyn Alarm>>) -> Result<(Gpu, Nccl), CommError> {
        self.join_with(self.rank, alarm)
    }

    /// With GPU `ordinal`.
    fn join_with(&self, ordinal: usize, alarm: Option<Arc<dyn Alarm>>) -> Result<(Gpu, Nccl), CommError> {
        let gpu = Gpu::open(ordinal).unwrap().side_stream().unwrap();
        let comm = Nccl::join(&gpu, self.id, Seat::among_all(self.rank, self.size), Some(PATIENCE), alarm)?;
        Ok((gpu, comm))
    }
}

/// Starts `test` again for each of `ranks`, of `size`.
fn processes(test: &str, ranks: &[usize], size: usize) -> Vec<Child> {
    let id: String = NcclId::new().unwrap().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let process = |rank: &usize| {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", &format!("cuda::tests::fake::{test}"), "--nocapture"]);
        program.env(RANK, format!("{rank} {size} {id}")).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    ranks.iter().map(process).collect()
}

/// The rank that this process is in `test`. Otherwise processes of `size` ranks pass, but `lost`, which fails or is not started.
pub(super) fn rank(test: &str, size: usize, lost: Lost, variables: &[(&str, &str)]) -> Option<Place> {
    let devices = size.to_string();
    let variables: Vec<_> = variables.iter().copied().chain([("FAKE_CUDA_DEVICES", devices.as_str())]).collect();
    if !alone(test, &variables) {
        return None;
    }
    // A test of several sizes begins with its first here too.
    let size = std::env::var("FAKE_CUDA_DEVICES").unwrap().parse().unwrap();
    if let Some(place) = Place::here() {
        assert_eq!(place.size, size, "of as many as the test says");
        return Some(place);
    }
    let ranks: Vec<usize> = (0..size).filter(|&rank| lost != Lost::Absent(rank)).collect();
    for (process, rank) in processes(test, &ranks, size).into_iter().zip(ranks) {
        let output = process.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        let passed = output.status.success() && said.contains("1 passed");
        let fails = match lost {
            Lost::Dies(lost) => lost == rank,
            Lost::Stopped(lost, words) => lost == rank && said.contains(words),
            Lost::Nobody | Lost::Absent(_) => false,
        };
        assert_eq!(passed, !fails, "rank {rank}: {}\n{said}", output.status);
    }
    None
}

#[test]
fn ranks_that_are_processes_conform() {
    for size in [1, 2, 4] {
        if let Some(place) = rank("ranks::ranks_that_are_processes_conform", size, Lost::Nobody, &[]) {
            let (gpu, comm) = place.join(None).unwrap();
            conformance(&comm, 8);
            moves_device_memory(&comm, &gpu);
        }
        if std::env::var_os(ALONE).is_some() {
            return;
        }
    }
}

#[test]
fn ranks_that_are_threads_conform_on_fast_streams_too() {
    for (devices, haste) in [("2", "1"), ("4", "2")] {
        start(&["real_gpus_are_joined"], &[("FAKE_CUDA_DEVICES", devices), ("FAKE_CUDA_HASTE", haste)], 1);
    }
    start(&["real_gpus_are_joined"], &[("FAKE_CUDA_DEVICES", "4")], 1);
}

#[test]
fn a_rank_that_never_joins_ends_the_others_in_time() {
    let test = "ranks::a_rank_that_never_joins_ends_the_others_in_time";
    let Some(place) = rank(test, 3, Lost::Absent(1), &[]) else { return };
    let started = Instant::now();
    let error = place.join(None).unwrap_err();
    assert!(
        matches!(&error, CommError::Timeout { rank, called: "ncclCommInitRank", .. } if *rank == place.rank),
        "{error}"
    );
    assert!(started.elapsed() < 3 * PATIENCE);
}

#[test]
fn a_rank_that_dies_is_named_by_the_others() {
    let Some(place) = rank("ranks::a_rank_that_dies_is_named_by_the_others", 4, Lost::Dies(2), &[]) else { return };
    let (_gpu, comm) = place.join(None).unwrap();
    comm.barrier().unwrap();
    if place.rank == 2 {
        std::process::abort();
    }
    let error = comm.all_reduce_sum_f32(&mut [1.0; 10]).unwrap_err();
    let CommError::Timeout { called: "all_reduce_sum_f32", missing, .. } = &error else { panic!("{error}") };
    assert!(missing.contains(&2), "{error}");
    assert_eq!(comm.barrier().unwrap_err(), error);
}

/// An alarm by a file, which is there once a rank has failed.
#[derive(Debug)]
struct Bell(PathBuf);

impl Alarm for Bell {
    fn raise(&self, reason: &str) {
        // The first counts: who hears of it leaves, too, and raises it again.
        let file = std::fs::File::create_new(&self.0);
        let _ = file.and_then(|mut file| file.write_all(reason.as_bytes()));
    }

    fn raised(&self) -> Option<CommError> {
        let reason = std::fs::read_to_string(&self.0).ok().filter(|reason| !reason.is_empty())?;
        Some(CommError::PeerFailed { rank: 1, reason })
    }
}

#[test]
fn a_rank_that_fails_ends_the_others_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("alarm");
    let variables = [("GSPLIT_TEST_ALARM", path.to_str().unwrap())];
    let test = "ranks::a_rank_that_fails_ends_the_others_with_its_reason";
    let Some(place) = rank(test, 3, Lost::Nobody, &variables) else { return };
    let bell = Bell(std::env::var_os("GSPLIT_TEST_ALARM").unwrap().into());
    let (_gpu, comm) = place.join(Some(Arc::new(bell))).unwrap();
    comm.barrier().unwrap();
    if place.rank == 1 {
        return comm.fail("no more room");
    }
    let started = Instant::now();
    let failed = CommError::PeerFailed { rank: 1, reason: "no more room".to_string() };
    assert_eq!(comm.all_gather_bytes(&[1], &mut [0; 3]), Err(failed));
    assert!(started.elapsed() < PATIENCE, "long before the limit");
}

/// A message of one group waits for a rank that computes, whose message of another group waits for this one: a kernel that is new to
/// the GPU must not wait for either.
#[test]
fn a_kernel_that_was_not_launched_before_waits_for_no_other_rank() {
    let test = "ranks::a_kernel_that_was_not_launched_before_waits_for_no_other_rank";
    let Some(place) = rank(test, 2, Lost::Nobody, &[("FAKE_CUDA_PATIENCE_MS", "2000")]) else { return };
    let (gpu, sampling) = place.join(None).unwrap();
    let mut ids = [0; 2 * NcclId::BYTES];
    sampling.all_gather_bytes(NcclId::new().unwrap().as_bytes(), &mut ids).unwrap();
    let id = NcclId::from_bytes(*ids.first_chunk().unwrap());
    let (own, seat) = (gpu.side_stream().unwrap(), Seat::among_all(place.rank, place.size));
    let computing = Nccl::join(&own, id, seat, Some(PATIENCE), None).unwrap();
    computing.barrier().unwrap();
    let (first, second) = if place.rank == 0 { (&sampling, &computing) } else { (&computing, &sampling) };
    std::thread::scope(|scope| {
        let ahead = scope.spawn(|| first.barrier());
        std::thread::sleep(Duration::from_millis(300));
        let stream = gpu.side_stream().unwrap();
        let mut values = stream.upload(&[1u32; 40]).unwrap();
        sum_before(&stream, &mut values.slice_mut(), None).unwrap();
        second.barrier().unwrap();
        ahead.join().unwrap().unwrap();
        assert_eq!(values.to_vec().unwrap(), Vec::from_iter(0..40));
    });
}

#[test]
fn ranks_that_share_a_gpu_are_refused_by_nccl() {
    let Some(place) = rank("ranks::ranks_that_share_a_gpu_are_refused_by_nccl", 2, Lost::Nobody, &[]) else { return };
    let error = place.join_with(0, None).unwrap_err().to_string();
    assert!(
        error.contains("Duplicate GPU detected") && error.starts_with(&format!("rank {}: ", place.rank)),
        "{error}"
    );
}

#[test]
fn messages_of_another_length_are_noticed_and_both_ranks_named() {
    let test = "ranks::messages_of_another_length_are_noticed_and_both_ranks_named";
    let Some(place) = rank(test, 2, Lost::Nobody, &[]) else { return };
    let (gpu, comm) = place.join(None).unwrap();
    let (to, from) = if place.rank == 0 { (4, 6) } else { (6, 3) };
    let counts = |other: usize| if place.rank == 0 { [0, other] } else { [other, 0] };
    let (send, mut recv) = (gpu.zeros::<u8>(to).unwrap(), gpu.zeros::<u8>(from).unwrap());
    let moved = device_all_to_all_v(&comm, &gpu, send.slice(), &counts(to), &mut recv.slice_mut(), &counts(from));
    match place.rank {
        // What it has sent is on its way, perhaps.
        0 => assert!(moved.and_then(|()| comm.barrier()).is_err()),
        _ => assert_eq!(moved, Err(CommError::Mismatch { from: 0, to: 1, sent: 4, expected: 3 })),
    }
}

/// A GPU that has yet to come to a collective shows, to who looks, what the others have announced of this one and not of the last.
#[test]
fn announcements_are_those_of_this_collective_while_a_gpu_is_busy() {
    let test = "ranks::announcements_are_those_of_this_collective_while_a_gpu_is_busy";
    let Some(place) = rank(test, 2, Lost::Nobody, &[("FAKE_CUDA_ASKS", "2500")]) else { return };
    let (_gpu, comm) = place.join(None).unwrap();
    comm.barrier().unwrap();
    let mut all = [0; 2];
    comm.all_gather_bytes(&[place.rank as u8 + 5], &mut all).unwrap();
    assert_eq!(all, [5, 6]);
}
