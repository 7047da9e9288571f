//! Ranks in processes of their own, each with a GPU, which NCCL joins.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{ALONE, alone, start};
use crate::comm::tests::conformance;
use crate::comm::tests::gpus::moves_device_memory;
use crate::comm::{Communicator, Links, Nccl, Seat, Sockets, Transfer, Transport, device_all_to_all_v};
use crate::cuda::{Gpu, GpuError, NcclEnd, NcclId};
use crate::error::CommError;
use crate::scan::cuda::sum_before;

/// Long for what takes a moment, and short for a test.
const PATIENCE: Duration = Duration::from_secs(3);
/// `RANK SIZE ID FOLDER`, of a process that is a rank.
const RANK: &str = "GSPLIT_TEST_RANK";

/// The rank that a test does without.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    Nobody,
    Dies(usize),
    /// With these words of the fake's.
    Stopped(usize, &'static str),
}

/// A rank of a test: its number, how many there are, their id, and its connections to them.
pub(super) struct Place {
    pub rank: usize,
    pub size: usize,
    id: NcclId,
    links: Links,
}

impl Place {
    /// The place of this process, if it is a rank.
    fn here() -> Option<Self> {
        let place = std::env::var(RANK).ok()?;
        let mut words = place.split(' ');
        let mut number = || words.next().unwrap().parse().unwrap();
        let (rank, size) = (number(), number());
        let hex = words.next().unwrap();
        let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
        let links = linked(rank, size, Path::new(words.next().unwrap()));
        Some(Self { rank, size, id: NcclId::from_bytes(std::array::from_fn(byte)), links })
    }

    fn host(&self, channel: u8) -> Sockets {
        self.links.group(channel, Seat::among_all(self.rank, self.size), Some(PATIENCE))
    }

    pub fn join(&self) -> Result<(Gpu, Nccl), CommError> {
        self.join_with(self.rank)
    }

    /// With GPU `ordinal`.
    fn join_with(&self, ordinal: usize) -> Result<(Gpu, Nccl), CommError> {
        let gpu = Gpu::open(ordinal).unwrap().side_stream().unwrap();
        let comm = Nccl::join(&gpu, self.id, self.host(0))?;
        Ok((gpu, comm))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.links.finish();
        }
    }
}

/// The connections of `rank`, which tells the ranks after it by a file in `folder` where it listens.
fn linked(rank: usize, size: usize, folder: &Path) -> Links {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = |rank: usize| folder.join(format!("port {rank}"));
    std::fs::write(folder.join(format!("new {rank}")), listener.local_addr().unwrap().port().to_string()).unwrap();
    std::fs::rename(folder.join(format!("new {rank}")), name(rank)).unwrap();
    let mut streams: Vec<Option<TcpStream>> = (0..size).map(|_| None).collect();
    for (other, place) in streams.iter_mut().enumerate().take(rank) {
        let port = loop {
            match std::fs::read_to_string(name(other)) {
                Ok(port) => break port,
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        };
        let stream = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
        std::io::Write::write_all(&mut &stream, &[rank as u8]).unwrap();
        *place = Some(stream);
    }
    for _ in rank + 1..size {
        let (stream, mut from) = (listener.accept().unwrap().0, [0]);
        std::io::Read::read_exact(&mut &stream, &mut from).unwrap();
        streams[usize::from(from[0])] = Some(stream);
    }
    Links::new(rank, streams).unwrap()
}

/// Starts `test` again for each of `size` ranks, which meet in `folder`.
fn processes(test: &str, size: usize, folder: &Path) -> Vec<Child> {
    let id: String = NcclId::new().unwrap().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let process = |rank: usize| {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", &format!("cuda::tests::fake::{test}"), "--nocapture"]);
        program.env(RANK, format!("{rank} {size} {id} {}", folder.display()));
        program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    (0..size).map(process).collect()
}

/// The rank that this process is in `test`. Otherwise processes of `size` ranks pass, but `lost`, which fails.
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
    let folder = tempfile::tempdir().unwrap();
    for (rank, process) in processes(test, size, folder.path()).into_iter().enumerate() {
        let output = process.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        let passed = output.status.success() && said.contains("1 passed");
        let fails = match lost {
            Lost::Dies(lost) => lost == rank,
            Lost::Stopped(lost, words) => lost == rank && said.contains(words),
            Lost::Nobody => false,
        };
        assert_eq!(passed, !fails, "rank {rank}: {}\n{said}", output.status);
    }
    None
}

#[test]
fn ranks_that_are_processes_conform() {
    for size in [1, 2, 4] {
        if let Some(place) = rank("ranks::ranks_that_are_processes_conform", size, Lost::Nobody, &[]) {
            let (gpu, comm) = place.join().unwrap();
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
    let Some(place) = rank(test, 3, Lost::Nobody, &[]) else { return };
    let started = Instant::now();
    if place.rank == 1 {
        while place.links.failed().is_none() {
            thread::sleep(Duration::from_millis(10));
        }
    } else {
        let error = place.join().unwrap_err();
        let own = matches!(&error, CommError::Timeout { rank, called: "ncclCommInitRank", .. } if *rank == place.rank);
        assert!(own || error.to_string().contains("waited 3 s in ncclCommInitRank"), "{error}");
    }
    assert!(started.elapsed() < 3 * PATIENCE);
}

#[test]
fn a_rank_that_dies_is_named_by_the_others() {
    let Some(place) = rank("ranks::a_rank_that_dies_is_named_by_the_others", 4, Lost::Dies(2), &[]) else { return };
    let (gpu, comm) = place.join().unwrap();
    if place.rank == 2 {
        std::process::abort();
    }
    let died = Err(CommError::PeerFailed { rank: 2, reason: "its process has ended".to_string() });
    let (send, mut recv) = (gpu.zeros::<u8>(4).unwrap(), gpu.zeros::<u8>(4).unwrap());
    let moved = device_all_to_all_v(&comm, &gpu, send.slice(), &[1; 4], &mut recv.slice_mut(), &[1; 4]);
    assert_eq!((moved, comm.barrier()), (died.clone(), died));
}

#[test]
fn a_rank_that_fails_ends_the_others_with_its_reason() {
    let test = "ranks::a_rank_that_fails_ends_the_others_with_its_reason";
    let Some(place) = rank(test, 3, Lost::Nobody, &[]) else { return };
    if place.rank == 1 {
        let (_gpu, comm) = place.join().unwrap();
        return comm.fail("no more room");
    }
    let started = Instant::now();
    let failed = CommError::PeerFailed { rank: 1, reason: "no more room".to_string() };
    // It may fail while others still meet.
    let ended = place.join().and_then(|(_gpu, comm)| comm.all_gather_bytes(&[1], &mut [0; 3]));
    assert_eq!(ended, Err(failed));
    assert!(started.elapsed() < PATIENCE, "long before the limit");
}

/// Bytes of one rank for each rank, by `comm`.
fn exchange(comm: &dyn Communicator, gpu: &Gpu) {
    let (rank, size) = (comm.rank() as u8, comm.size());
    let (send, mut recv) = (gpu.upload(&vec![rank; size]).unwrap(), gpu.zeros::<u8>(size).unwrap());
    device_all_to_all_v(comm, gpu, send.slice(), &vec![1; size], &mut recv.slice_mut(), &vec![1; size]).unwrap();
    assert!(recv.to_vec().unwrap().into_iter().eq(0..size as u8));
}

/// While mini-batches are made ahead, each rank may come to their ids before or after the rows of the one that is computed, and
/// launch a kernel for the first time in between.
#[test]
fn ids_and_rows_cross_in_any_order() {
    let test = "ranks::ids_and_rows_cross_in_any_order";
    let Some(place) = rank(test, 2, Lost::Nobody, &[("FAKE_CUDA_PATIENCE_MS", "2000")]) else { return };
    let (gpu, computing) = place.join().unwrap();
    let (sampling, side) = (place.host(1), gpu.side_stream().unwrap());
    let ids = || exchange(&sampling, &side);
    let rows = || exchange(&computing, &gpu);
    thread::scope(|scope| {
        let ahead = if place.rank == 0 { scope.spawn(ids) } else { scope.spawn(rows) };
        thread::sleep(Duration::from_millis(300));
        let stream = gpu.side_stream().unwrap();
        let mut values = stream.upload(&[1u32; 40]).unwrap();
        sum_before(&stream, &mut values.slice_mut(), None).unwrap();
        if place.rank == 0 {
            rows()
        } else {
            ids()
        }
        ahead.join().unwrap();
        assert_eq!(values.to_vec().unwrap(), Vec::from_iter(0..40));
    });
}

/// The fake shows why ids do not go over NCCL.
#[test]
fn two_communicators_in_different_orders_wait_for_each_other_for_ever() {
    let test = "ranks::two_communicators_in_different_orders_wait_for_each_other_for_ever";
    let Some(place) = rank(test, 2, Lost::Nobody, &[]) else { return };
    let (gpu, host) = (Gpu::open(place.rank).unwrap(), place.host(0));
    let mut ids = [0; 2 * NcclId::BYTES];
    host.all_gather_bytes(NcclId::new().unwrap().as_bytes(), &mut ids).unwrap();
    let join = |id: NcclId| {
        let end = NcclEnd::join(&gpu, id, place.rank, place.size, || Ok::<(), GpuError>(())).unwrap();
        let stream = gpu.side_stream().unwrap();
        let (sent, received) = (stream.zeros::<u8>(1).unwrap(), stream.zeros::<u8>(1).unwrap());
        (end, stream, sent, received)
    };
    let mut ends = [join(place.id), join(NcclId::from_bytes(*ids.first_chunk().unwrap()))];
    let peer = 1 - place.rank;
    // How many of both, begun in this order, are done in time.
    let mut done_of = |order: [usize; 2], time: Duration| {
        let is_done = |(end, stream, ..): &(NcclEnd, Gpu, _, _)| end.is_done(stream, &mut []).unwrap();
        for at in order {
            let (end, stream, sent, received) = &mut ends[at];
            let send = Transfer::Send { to: peer, bytes: sent.slice() };
            let mut transfers = [send, Transfer::Receive { from: peer, bytes: received.slice_mut() }];
            end.start(stream, &mut transfers).unwrap();
            // It is launched before the next.
            let begun = Instant::now();
            while !is_done(&ends[at]) && begun.elapsed() < time / 4 {}
        }
        let begun = Instant::now();
        let count = || ends.iter().filter(|end| is_done(end)).count();
        while count() < 2 && begun.elapsed() < time {}
        count()
    };
    assert_eq!(done_of([0, 1], PATIENCE), 2);
    let different = if place.rank == 0 { [0, 1] } else { [1, 0] };
    assert_eq!(done_of(different, PATIENCE / 2), 0);
    host.barrier().unwrap();
    ends.iter().for_each(|(end, ..)| end.abort());
}

#[test]
fn ranks_that_share_a_gpu_are_refused_by_nccl() {
    let Some(place) = rank("ranks::ranks_that_share_a_gpu_are_refused_by_nccl", 2, Lost::Nobody, &[]) else { return };
    let error = place.join_with(0).unwrap_err().to_string();
    // Its own, or that of the other, which was first.
    let own = error.starts_with(&format!("rank {}: ", place.rank));
    let is_told = error.starts_with(&format!("rank {} left the group: ", 1 - place.rank));
    assert!(error.contains("Duplicate GPU detected") && (own || is_told), "{error}");
}

#[test]
fn messages_of_another_length_are_noticed_and_both_ranks_named() {
    let test = "ranks::messages_of_another_length_are_noticed_and_both_ranks_named";
    let Some(place) = rank(test, 2, Lost::Nobody, &[]) else { return };
    let (gpu, comm) = place.join().unwrap();
    let (to, from) = if place.rank == 0 { (4, 6) } else { (6, 3) };
    let counts = |other: usize| if place.rank == 0 { [0, other] } else { [other, 0] };
    let (send, mut recv) = (gpu.zeros::<u8>(to).unwrap(), gpu.zeros::<u8>(from).unwrap());
    let moved = device_all_to_all_v(&comm, &gpu, send.slice(), &counts(to), &mut recv.slice_mut(), &counts(from));
    match place.rank {
        0 => assert!(moved.and_then(|()| comm.barrier()).is_err()),
        _ => assert_eq!(moved, Err(CommError::Mismatch { from: 0, to: 1, sent: 4, expected: 3 })),
    }
}
