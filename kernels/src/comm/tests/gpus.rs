//! Bytes from GPU to GPU: between threads, over NCCL's logic with wires of its own, and by way of the host.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::super::nccl::{Message, Transport};
use super::super::*;
use super::{addends, conformance, message, run};
use crate::cuda::{Gpu, GpuError};
use crate::{CudaSurvey, NcclId};

/// Messages by sender and receiver.
type Queues = HashMap<(usize, usize), VecDeque<Vec<u8>>>;

/// Messages between the ranks of a group.
#[derive(Debug)]
struct Wires(Mutex<Queues>);

/// One end of them. As with NCCL, a message of another length than its receiver's never arrives.
#[derive(Debug)]
struct Wire {
    rank: usize,
    size: usize,
    wires: Arc<Wires>,
    arrived: Mutex<Vec<bool>>,
    gone: AtomicBool,
}

impl Transport for Wire {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn start(&self, gpu: &Gpu, messages: &mut [Message<'_>]) -> Result<(), GpuError> {
        assert!(!self.gone.load(Ordering::Relaxed), "nothing is started after the end");
        *self.arrived.lock().unwrap() = vec![false; messages.len()];
        for message in messages {
            if let Message::Send { to, bytes } = message {
                assert!(*to != self.rank && !bytes.is_empty(), "what stays here is not sent");
                let bytes = bytes.to_vec(gpu)?;
                self.wires.0.lock().unwrap().entry((self.rank, *to)).or_default().push_back(bytes);
            }
        }
        Ok(())
    }

    fn is_done(&self, gpu: &Gpu, messages: &mut [Message<'_>]) -> Result<bool, GpuError> {
        let mut arrived = self.arrived.lock().unwrap();
        let mut stuck = Vec::new();
        for (message, arrived) in messages.iter_mut().zip(arrived.iter_mut()).filter(|(_, arrived)| !**arrived) {
            let Message::Receive { from, bytes } = message else { continue };
            let mut wires = self.wires.0.lock().unwrap();
            let queue = wires.entry((*from, self.rank)).or_default();
            match queue.front().is_some_and(|next| next.len() == bytes.len()) && !stuck.contains(from) {
                true => bytes.upload(gpu, &queue.pop_front().unwrap())?,
                false => stuck.push(*from),
            }
            *arrived = !stuck.contains(from);
        }
        // What has arrived was waited for, as NCCL has it.
        Ok(gpu.is_done()? && stuck.is_empty())
    }

    fn abort(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

/// A wire of which the first half of each announcement arrives, and the rest some time after the start, or never.
#[derive(Debug)]
struct Halved {
    wire: Wire,
    started: Mutex<Instant>,
    rest_after: Option<Duration>,
}

impl Transport for Halved {
    fn rank(&self) -> usize {
        self.wire.rank
    }

    fn size(&self) -> usize {
        self.wire.size
    }

    fn start(&self, gpu: &Gpu, messages: &mut [Message<'_>]) -> Result<(), GpuError> {
        *self.started.lock().unwrap() = Instant::now();
        self.wire.start(gpu, messages)
    }

    fn is_done(&self, gpu: &Gpu, messages: &mut [Message<'_>]) -> Result<bool, GpuError> {
        if self.rest_after.is_some_and(|rest_after| self.started.lock().unwrap().elapsed() >= rest_after) {
            return self.wire.is_done(gpu, messages);
        }
        let wires = self.wire.wires.0.lock().unwrap();
        for message in messages {
            let Message::Receive { from, bytes } = message else { continue };
            let Some(sent) = wires.get(&(*from, self.wire.rank)).and_then(VecDeque::front) else { return Ok(false) };
            if bytes.len() == sent.len() {
                let half = sent.len() / 2;
                bytes.reborrow().part(0, half)?.upload(gpu, &sent[..half])?;
            }
        }
        Ok(self.rest_after.is_none())
    }

    fn abort(&self) {
        self.wire.abort();
    }
}

/// Ranks over wires, each with a GPU's memory of its own.
fn wired(size: usize, timeout: Option<Duration>) -> Vec<Nccl> {
    joined(size, timeout, |wire| Box::new(wire))
}

/// Ranks over what is made of wires.
fn joined(size: usize, timeout: Option<Duration>, transport: impl Fn(Wire) -> Box<dyn Transport>) -> Vec<Nccl> {
    let wires = Arc::new(Wires(Mutex::default()));
    let end = |rank| {
        let wires = Arc::clone(&wires);
        let wire = Wire { rank, size, wires, arrived: Mutex::default(), gone: AtomicBool::new(false) };
        Nccl::over(transport(wire), 0, &Gpu::under_test(rank as u32 % 4), timeout, None).unwrap()
    };
    (0..size).map(end).collect()
}

/// Ranks of whose announcements half arrives at first.
fn halved(size: usize, rest_after: Option<Duration>) -> Vec<Nccl> {
    let halved = |wire| Halved { wire, started: Instant::now().into(), rest_after };
    joined(size, Some(Duration::from_secs(30)), |wire| Box::new(halved(wire)))
}

fn on_each<C: Send, R: Send>(group: Vec<C>, body: impl Fn(C) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let body = &body;
        let ranks: Vec<_> = group.into_iter().map(|comm| scope.spawn(move || body(comm))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn ranks_with_a_gpu_each_conform() {
    for size in [1, 2, 3, 4] {
        on_each(wired(size, None), |comm| conformance(&comm, 8));
    }
}

/// Sends random messages, often empty, to and from a GPU's memory and compares with what every rank can work out.
pub(crate) fn moves_device_memory(comm: &dyn Communicator, gpu: &Gpu) {
    let (me, size) = (comm.rank(), comm.size());
    for round in 0..20 {
        let outgoing: Vec<Vec<u32>> = (0..size).map(|to| message(round, me, to)).collect();
        let incoming: Vec<Vec<u32>> = (0..size).map(|from| message(round, from, me)).collect();
        let counts = |parts: &[Vec<u32>]| parts.iter().map(Vec::len).collect::<Vec<_>>();
        let mut send = gpu.upload(&outgoing.concat()).unwrap();
        let mut recv = gpu.zeros::<u32>(incoming.concat().len()).unwrap();
        let (to, from) = (counts(&outgoing), counts(&incoming));
        device_all_to_all_v(comm, gpu, send.slice(), &to, &mut recv.slice_mut(), &from).unwrap();
        // The next use of the memory comes after the others' copies.
        send.slice_mut().zero(gpu).unwrap();
        assert_eq!(recv.to_vec().unwrap(), incoming.concat(), "round {round}");
        // Bytes that are no whole words.
        let bytes = |round: u32, from: usize, to: usize| vec![(from * 16 + to) as u8; (round as usize + from) % 4];
        let outgoing: Vec<Vec<u8>> = (0..size).map(|to| bytes(round, me, to)).collect();
        let incoming: Vec<Vec<u8>> = (0..size).map(|from| bytes(round, from, me)).collect();
        let counts = |parts: &[Vec<u8>]| parts.iter().map(Vec::len).collect::<Vec<_>>();
        let (send, mut recv) =
            (gpu.upload(&outgoing.concat()).unwrap(), gpu.zeros::<u8>(incoming.concat().len()).unwrap());
        let (to, from) = (counts(&outgoing), counts(&incoming));
        device_all_to_all_v(comm, gpu, send.slice(), &to, &mut recv.slice_mut(), &from).unwrap();
        assert_eq!(recv.to_vec().unwrap(), incoming.concat(), "round {round}");
        // Collectives of the host in between.
        let mut sum = addends(round, me, 3);
        comm.all_reduce_sum_f32(&mut sum).unwrap();
    }
}

#[test]
fn differential_device_memory_moves_alike_in_every_group_of_gpus() {
    for size in [1, 2, 3, 4] {
        run(size, |comm| moves_device_memory(comm, &Gpu::under_test(comm.rank as u32 % 4)));
        on_each(wired(size, None), |comm| moves_device_memory(&comm, &Gpu::under_test(0)));
        on_each(Threads::group(size), |comm| moves_device_memory(&ByHost::new(&comm), &Gpu::under_test(0)));
    }
    moves_device_memory(&Solo, &Gpu::under_test(0));
}

/// Rank 1 sends rank 2 four bytes, which expects three.
fn mismatched(comm: &dyn Communicator) -> CommError {
    let gpu = Gpu::under_test(0);
    let to: &[usize] = if comm.rank() == 1 { &[0, 0, 4] } else { &[0, 0, 0] };
    let from: &[usize] = if comm.rank() == 2 { &[0, 3, 0] } else { &[0, 0, 0] };
    let (send, mut recv) =
        (gpu.upload(&vec![9u8; to.iter().sum()]).unwrap(), gpu.zeros::<u8>(from.iter().sum()).unwrap());
    let first = device_all_to_all_v(comm, &gpu, send.slice(), to, &mut recv.slice_mut(), from);
    first.and_then(|()| comm.barrier()).unwrap_err()
}

#[test]
fn mismatched_counts_of_gpus_name_both_ranks() {
    let mismatch = CommError::Mismatch { from: 1, to: 2, sent: 4, expected: 3 };
    for _ in 0..20 {
        let results = run(3, |comm| mismatched(comm));
        assert_eq!(results[2], mismatch);
        assert!(results[..2].iter().all(|error| matches!(error, CommError::PeerFailed { rank: 2, .. })), "{results:?}");
    }
    // NCCL would wait for ever: the announcement tells.
    let results = on_each(wired(3, Some(Duration::from_secs(3))), |comm| mismatched(&comm));
    assert_eq!(results[2], mismatch);
    for error in &results[..2] {
        assert!(matches!(error, CommError::Timeout { missing, .. } if missing.contains(&2)), "{results:?}");
    }
}

#[test]
fn ranks_with_gpus_in_different_collectives_are_noticed() {
    let group = wired(2, Some(Duration::from_secs(30)));
    let started = Instant::now();
    let results = on_each(group, |comm| match Communicator::rank(&comm) {
        0 => comm.barrier().unwrap_err(),
        _ => comm.all_reduce_sum_u64(&mut [1, 2]).unwrap_err(),
    });
    assert!(results.iter().any(|error| matches!(error, CommError::Order { .. })), "{results:?}");
    assert!(started.elapsed() < Duration::from_secs(20), "long before the limit");
}

#[test]
fn who_looks_while_an_announcement_arrives_waits_for_the_rest() {
    // Longer than from one look to the next.
    let gathered = on_each(halved(3, Some(Duration::from_millis(1500))), |comm| {
        let mut gathered = [0; 12];
        comm.all_gather_bytes(&[Communicator::rank(&comm) as u8; 4], &mut gathered).map(|()| gathered)
    });
    assert_eq!(gathered, [const { Ok([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]) }; 3]);
}

#[test]
fn an_announcement_of_which_half_has_arrived_at_the_end_is_an_error() {
    for error in on_each(halved(2, None), |comm| comm.barrier().unwrap_err()) {
        let CommError::Gpu { rank, reason } = &error else { panic!("{error}") };
        assert!(reason.contains(&format!("rank {} announced for barrier arrived garbled", 1 - rank)), "{error}");
    }
}

#[test]
fn a_gpu_that_never_comes_is_named_and_the_group_has_ended() {
    let patience = Duration::from_millis(500);
    let mut group = wired(4, Some(patience));
    let absent = group.remove(3);
    let results = on_each(group, |comm| {
        let first = comm.all_gather_bytes(&[7], &mut [0; 4]).unwrap_err();
        assert_eq!(comm.barrier().unwrap_err(), first, "nothing is started after the end");
        first
    });
    for (at, error) in results.into_iter().enumerate() {
        let CommError::Timeout { rank, called: "all_gather", missing, timeout } = &error else { panic!("{error}") };
        assert!((*rank, *timeout) == (at, patience) && missing.contains(&3), "{error}");
    }
    drop(absent);
}

#[test]
fn a_rank_that_fails_stops_waiting_for_the_other_gpus() {
    let comm = wired(2, None).remove(0);
    let results = thread::scope(|scope| {
        let waits = scope.spawn(|| comm.barrier());
        thread::sleep(Duration::from_millis(50));
        comm.fail("out of memory");
        waits.join().unwrap()
    });
    assert_eq!(results, Err(CommError::PeerFailed { rank: 0, reason: "out of memory".to_string() }));
}

#[test]
fn memory_is_its_owners_again_when_a_rank_fails_between_the_gates() {
    // Rank 0 never comes to the second gate: the others must neither hang nor read what its owner took back.
    for round in 0..50 {
        let results = run(3, |comm| {
            let gpu = Gpu::under_test(comm.rank as u32);
            let (send, mut recv) = (gpu.upload(&[round as u8; 6]).unwrap(), gpu.zeros::<u8>(6).unwrap());
            let from: &[usize] = if comm.rank == 0 { &[2, 1, 3] } else { &[2, 2, 2] };
            device_all_to_all_v(comm, &gpu, send.slice(), &[2, 2, 2], &mut recv.slice_mut(), from).unwrap_err()
        });
        assert_eq!(results[0], CommError::Mismatch { from: 1, to: 0, sent: 2, expected: 1 });
        assert!(results[1..].iter().all(|error| matches!(error, CommError::PeerFailed { .. })), "{results:?}");
    }
}

#[test]
fn real_gpus_copy_to_each_other() {
    if std::env::var_os("GSPLIT_TEST_GPU").is_none() {
        return;
    }
    let size = CudaSurvey::new().gpus.unwrap().len();
    run(size, |comm| moves_device_memory(comm, &Gpu::open(comm.rank).unwrap().side_stream().unwrap()));
}

#[test]
fn real_gpus_are_joined_by_nccl() {
    if std::env::var_os("GSPLIT_TEST_GPU").is_none() {
        return;
    }
    let size = CudaSurvey::new().gpus.unwrap().len();
    let id = NcclId::new().unwrap();
    on_each((0..size).collect(), |rank| {
        let gpu = Gpu::open(rank).unwrap().side_stream().unwrap();
        let comm = Nccl::join(&gpu, id, Seat::among_all(rank, size), Some(Duration::from_secs(60)), None).unwrap();
        conformance(&comm, 8);
        moves_device_memory(&comm, &gpu);
    });
}
