//! Bytes from GPU to GPU: between threads, and through the host. (Transfers by NCCL are tested on
//! the fake driver.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::super::messages::Messages;
use super::super::nccl::{Transfer, Transport};
use super::super::*;
use super::conformance::{addends, message};
use super::{conformance, run};
use crate::CudaSurvey;
use crate::cuda::{Gpu, GpuError, NCCL_ID_BYTES};

/// A transport whose transfers are complete at once, or never.
#[derive(Debug)]
struct Still {
    has_arrived: bool,
    gone: Arc<AtomicBool>,
}

impl Still {
    fn new(has_arrived: bool) -> Self {
        Self { has_arrived, gone: Arc::default() }
    }
}

impl Transport for Still {
    fn start(&self, _gpu: &Gpu, _transfers: &mut [Transfer<'_>]) -> Result<(), GpuError> {
        Ok(())
    }

    fn is_launched(&self, _transfers: &mut [Transfer<'_>]) -> Result<bool, GpuError> {
        Ok(true)
    }

    fn is_done(&self) -> Result<bool, GpuError> {
        assert!(!self.gone.load(Ordering::Relaxed), "nobody asks after the end");
        Ok(self.has_arrived)
    }

    fn abort(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

fn on_each<C: Send, R: Send>(group: Vec<C>, body: impl Fn(C) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let body = &body;
        let ranks: Vec<_> = group.into_iter().map(|comm| scope.spawn(move || body(comm))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Sends random messages, often empty, to and from a GPU's memory and compares them with the
/// expected values.
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
        // Byte counts that are not whole words.
        let bytes = |round: u32, from: usize, to: usize| {
            vec![(from * 16 + to) as u8; (round as usize + from) % 4]
        };
        let outgoing: Vec<Vec<u8>> = (0..size).map(|to| bytes(round, me, to)).collect();
        let incoming: Vec<Vec<u8>> = (0..size).map(|from| bytes(round, from, me)).collect();
        let counts = |parts: &[Vec<u8>]| parts.iter().map(Vec::len).collect::<Vec<_>>();
        let (send, mut recv) = (
            gpu.upload(&outgoing.concat()).unwrap(),
            gpu.zeros::<u8>(incoming.concat().len()).unwrap(),
        );
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
        run(size, |comm| moves_device_memory(comm, &Gpu::under_test(comm.rank() as u32 % 4)));
        on_each(Threads::group(size), |comm| {
            moves_device_memory(&ByHost::new(&comm), &Gpu::under_test(0))
        });
    }
    moves_device_memory(&Solo, &Gpu::under_test(0));
}

/// Rank 1 sends rank 2 four bytes; rank 2 expects three.
fn mismatched(comm: &dyn Communicator) -> CommError {
    let gpu = Gpu::under_test(0);
    let to: &[usize] = if comm.rank() == 1 { &[0, 0, 4] } else { &[0, 0, 0] };
    let from: &[usize] = if comm.rank() == 2 { &[0, 3, 0] } else { &[0, 0, 0] };
    let (send, mut recv) = (
        gpu.upload(&vec![9u8; to.iter().sum()]).unwrap(),
        gpu.zeros::<u8>(from.iter().sum()).unwrap(),
    );
    let first = device_all_to_all_v(comm, &gpu, send.slice(), to, &mut recv.slice_mut(), from);
    first.and_then(|()| comm.barrier()).unwrap_err()
}

#[test]
fn mismatched_counts_of_gpus_name_both_ranks() {
    // NCCL would wait for ever: the announcement finds the mismatch before anything is sent.
    let by_nccl = |host| mismatched(&Nccl::over(Box::new(Still::new(true)), Box::new(host)));
    let by_nccl = std::iter::once_with(|| on_each(Threads::group(3), by_nccl));
    for results in by_nccl.chain((0..20).map(|_| run(3, |comm| mismatched(comm)))) {
        assert_eq!(results[2], CommError::Mismatch { from: 1, to: 2, sent: 4, expected: 3 });
        assert!(
            results[..2].iter().all(|error| matches!(error, CommError::PeerFailed { rank: 2, .. })),
            "{results:?}"
        );
    }
}

/// The counts that ranks tell each other before an exchange do not go through their GPUs: it would
/// take a fill and two waits, or one.
#[test]
fn an_exchange_over_nccl_costs_the_host_a_copy_of_its_own_part() {
    on_each(Threads::group(2), |host| {
        let comm = Nccl::over(Box::new(Still::new(true)), Box::new(host));
        let gpu = Gpu::emulated(0);
        let (send, mut recv) = (gpu.zeros::<u32>(8).unwrap(), gpu.zeros::<u32>(8).unwrap());
        let host = || [gpu.counts().launches, gpu.counts().waits];
        let [launches, waits] = host();
        assert_eq!(all_to_all_counts(&comm, &[4, 4]).unwrap(), [4, 4]);
        assert_eq!(host(), [launches, waits]);
        device_all_to_all_v(&comm, &gpu, send.slice(), &[4, 4], &mut recv.slice_mut(), &[4, 4])
            .unwrap();
        assert_eq!(host(), [launches + 1, waits]);
    });
}

#[test]
fn what_never_arrives_ends_the_group_in_time() {
    let patience = Duration::from_millis(300);
    let all_gone = on_each(Threads::groups_within(1, 2, Some(patience)), |host| {
        let still = Still::new(false);
        let gone = Arc::clone(&still.gone);
        let comm = Nccl::over(Box::new(still), Box::new(host));
        let gpu = Gpu::under_test(0);
        let (send, mut recv) = (gpu.zeros::<u8>(2).unwrap(), gpu.zeros::<u8>(2).unwrap());
        let mut moved = || {
            device_all_to_all_v(&comm, &gpu, send.slice(), &[1, 1], &mut recv.slice_mut(), &[1, 1])
        };
        // It goes on behind the first, and waits for it before the second.
        moved().unwrap();
        match moved().unwrap_err() {
            CommError::Timeout { called: "device_all_to_all", timeout, .. } => {
                assert_eq!(timeout, patience)
            }
            CommError::PeerFailed { reason, .. } => {
                assert!(reason.contains("0.3 s in device_all_to_all"), "{reason}")
            }
            error => panic!("{error}"),
        }
        assert!(comm.barrier().is_err(), "the group has ended");
        gone.load(Ordering::Relaxed)
    });
    assert_eq!(all_gone, [true, true]);
}

#[test]
fn memory_is_its_owners_again_when_a_rank_fails_between_the_gates() {
    // Rank 0 never comes to the second gate: the others must neither hang nor read what its owner
    // took back.
    for round in 0..50 {
        let results = run(3, |comm| {
            let gpu = Gpu::under_test(comm.rank() as u32);
            let (send, mut recv) =
                (gpu.upload(&[round as u8; 6]).unwrap(), gpu.zeros::<u8>(6).unwrap());
            let from: &[usize] = if comm.rank() == 0 { &[2, 1, 3] } else { &[2, 2, 2] };
            device_all_to_all_v(comm, &gpu, send.slice(), &[2, 2, 2], &mut recv.slice_mut(), from)
                .unwrap_err()
        });
        assert_eq!(results[0], CommError::Mismatch { from: 1, to: 0, sent: 2, expected: 1 });
        assert!(
            results[1..].iter().all(|error| matches!(error, CommError::PeerFailed { .. })),
            "{results:?}"
        );
    }
}

#[test]
fn real_gpus_copy_to_each_other() {
    if std::env::var_os("GSPLIT_TEST_GPU").is_none() {
        return;
    }
    let size = CudaSurvey::look().gpus.unwrap().len();
    run(size, |comm| {
        moves_device_memory(comm, &Gpu::open(comm.rank()).unwrap().side_stream().unwrap())
    });
}

#[test]
fn real_gpus_are_joined_by_nccl() {
    if std::env::var_os("GSPLIT_TEST_GPU").is_none() {
        return;
    }
    let size = CudaSurvey::look().gpus.unwrap().len();
    on_each(Threads::groups_within(1, size, Some(Duration::from_secs(60))), |host| {
        let gpu = Gpu::open(host.rank()).unwrap().side_stream().unwrap();
        let comm = Nccl::join(&gpu, Box::new(host)).unwrap();
        conformance(&comm, 8);
        moves_device_memory(&comm, &gpu);
    });
}

#[test]
fn real_gpus_wait_for_no_rank_that_never_joins() {
    if std::env::var_os("GSPLIT_TEST_GPU").is_none() {
        return;
    }
    let (patience, started) = (Duration::from_secs(3), Instant::now());
    on_each(Threads::groups_within(1, 2, Some(patience)), |host| {
        if host.rank() == 1 {
            // It hears the id, and does something else.
            let mut id = [0; NCCL_ID_BYTES];
            host.all_to_all_bytes(&[], &[0; 2], &mut id, &[NCCL_ID_BYTES, 0]).unwrap();
            while host.failed().is_none() {
                std::thread::sleep(Duration::from_millis(10));
            }
        } else {
            let gpu = Gpu::open(0).unwrap().side_stream().unwrap();
            let error = Nccl::join(&gpu, Box::new(host)).unwrap_err().to_string();
            assert!(error.contains("waited 3 s in ncclCommInitRank"), "{error}");
        }
    });
    assert!(started.elapsed() < 3 * patience);
}
