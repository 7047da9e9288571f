//! Ranks with a GPU each, joined by NCCL: threads of a process of their own.

use std::thread;
use std::time::{Duration, Instant};

use super::{alone, start};
use crate::comm::messages::Messages;
use crate::comm::{
    Communicator, Nccl, Threads, Transfer, Transport, device_all_to_all_v, in_phase,
};
use crate::cuda::{Gpu, GpuError, NCCL_ID_BYTES, NcclEnd, new_nccl_id};
use crate::error::CommError;
use crate::scan::cuda::sum_before;

/// Long compared with work that takes a moment, and short for a test.
const PATIENCE: Duration = Duration::from_secs(3);

/// GPU `ordinal`, and a rank's end of the group of `host`.
fn join(ordinal: usize, host: Threads) -> Result<(Gpu, Nccl), CommError> {
    let gpu = Gpu::open(ordinal).unwrap().side_stream().unwrap();
    let comm = Nccl::join(&gpu, Box::new(host))?;
    Ok((gpu, comm))
}

/// Runs `rank` on each of `size` ranks, with ends of `groups` groups of them, in a process where
/// CUDA has `size` GPUs.
fn on_ranks(test: &str, size: usize, groups: usize, rank: impl Fn(usize, Vec<Threads>) + Sync) {
    let devices = size.to_string();
    if !alone(test, &[("FAKE_CUDA_DEVICES", &devices)]) {
        return;
    }
    let mut ends: Vec<Vec<Threads>> = (0..size).map(|_| Vec::new()).collect();
    for _ in 0..groups {
        Threads::groups_within(1, size, Some(PATIENCE))
            .into_iter()
            .zip(&mut ends)
            .for_each(|(end, ends)| ends.push(end));
    }
    thread::scope(|scope| {
        let rank = &rank;
        let start = |(of, ends)| scope.spawn(move || rank(of, ends));
        let started: Vec<_> = ends.into_iter().enumerate().map(start).collect();
        started.into_iter().for_each(|rank| rank.join().unwrap());
    });
}

#[test]
fn ranks_conform_on_fast_streams_too() {
    for (devices, haste) in [("2", "1"), ("4", "2")] {
        start(
            &["real_gpus_are_joined"],
            &[("FAKE_CUDA_DEVICES", devices), ("FAKE_CUDA_HASTE", haste)],
            1,
        );
    }
    start(&["real_gpus_are_joined"], &[("FAKE_CUDA_DEVICES", "4")], 1);
}

#[test]
fn a_rank_that_never_joins_ends_the_others_in_time() {
    start(&["real_gpus_wait_for_no_rank_that_never_joins"], &[("FAKE_CUDA_DEVICES", "1")], 1);
}

#[test]
fn a_rank_that_fails_ends_the_others_with_its_reason() {
    on_ranks("ranks::a_rank_that_fails_ends_the_others_with_its_reason", 3, 1, |rank, mut ends| {
        let started = Instant::now();
        let joined = join(rank, ends.remove(0));
        if rank == 1 {
            return joined.unwrap().1.fail("no more room");
        }
        let failed = CommError::PeerFailed { rank: 1, reason: "no more room".to_string() };
        // It may fail while others still meet.
        assert_eq!(
            joined.and_then(|(_gpu, comm)| comm.all_gather_bytes(&[1], &mut [0; 3])),
            Err(failed)
        );
        assert!(started.elapsed() < PATIENCE, "long before the limit");
    });
}

/// The other rank waits for its own GPU: only the watching thread can end that.
#[test]
fn a_rank_that_announces_and_sends_nothing_is_not_waited_for() {
    on_ranks(
        "ranks::a_rank_that_announces_and_sends_nothing_is_not_waited_for",
        2,
        1,
        |rank, mut ends| {
            let (gpu, comm) = join(rank, ends.remove(0)).unwrap();
            let started = Instant::now();
            if rank == 0 {
                let (send, mut recv) = (gpu.zeros::<u8>(2).unwrap(), gpu.zeros::<u8>(2).unwrap());
                let moved = || {
                    device_all_to_all_v(
                        &comm,
                        &gpu,
                        send.slice(),
                        &[1, 1],
                        &mut recv.slice_mut(),
                        &[1, 1],
                    )
                };
                in_phase("forward", moved).unwrap();
                assert!(started.elapsed() < PATIENCE, "it goes on");
                gpu.synchronise().unwrap();
                let line = comm.barrier().unwrap_err().to_string();
                assert!(
                    line.contains(
                        "rank 0 waited 3 s in device_all_to_all (forward) for another rank"
                    ),
                    "{line}"
                );
            } else {
                let one = 1u64.to_le_bytes();
                comm.exchange("device_all_to_all", &|_| &one, &|_| one.len(), &mut |_, _| {})
                    .unwrap();
                // The other rank times out first.
                thread::sleep(PATIENCE / 2);
                let line = comm.barrier().unwrap_err().to_string();
                assert!(line.contains("waited 3 s in "), "{line}");
            }
            assert!(started.elapsed() < 3 * PATIENCE);
        },
    );
}

/// Exchanges bytes of each rank with all, by `comm`.
fn exchange(comm: &dyn Communicator, gpu: &Gpu) {
    let (rank, size) = (comm.rank() as u8, comm.size());
    let (send, mut recv) = (gpu.upload(&vec![rank; size]).unwrap(), gpu.zeros::<u8>(size).unwrap());
    device_all_to_all_v(
        comm,
        gpu,
        send.slice(),
        &vec![1; size],
        &mut recv.slice_mut(),
        &vec![1; size],
    )
    .unwrap();
    assert!(recv.to_vec().unwrap().into_iter().eq(0..size as u8));
}

/// While mini-batches are prepared ahead, each rank may exchange their ids before or after the rows
/// of the one that is computed, and launch a kernel for the first time in between.
#[test]
fn ids_and_rows_cross_in_any_order() {
    on_ranks("ranks::ids_and_rows_cross_in_any_order", 2, 2, |rank, mut ends| {
        let sampling = ends.pop().unwrap();
        let (gpu, computing) = join(rank, ends.remove(0)).unwrap();
        let ids = || sampling.all_gather_bytes(&[rank as u8], &mut [0; 2]).unwrap();
        let rows = || exchange(&computing, &gpu);
        thread::scope(|scope| {
            let ahead = if rank == 0 { scope.spawn(ids) } else { scope.spawn(rows) };
            thread::sleep(Duration::from_millis(300));
            let stream = gpu.side_stream().unwrap();
            let mut values = stream.upload(&[1u32; 40]).unwrap();
            sum_before(&stream, &mut values.slice_mut(), None).unwrap();
            if rank == 0 {
                rows()
            } else {
                ids()
            }
            ahead.join().unwrap();
            assert_eq!(values.to_vec().unwrap(), Vec::from_iter(0..40));
        });
    });
}

/// The fake shows why ids do not go over NCCL.
#[test]
fn two_communicators_in_different_orders_wait_for_each_other_for_ever() {
    let test = "ranks::two_communicators_in_different_orders_wait_for_each_other_for_ever";
    on_ranks(test, 2, 1, |rank, mut ends| {
        let (gpu, host) = (Gpu::open(rank).unwrap(), ends.remove(0));
        let mut made = [[0; NCCL_ID_BYTES]; 2];
        made.fill_with(|| new_nccl_id().unwrap());
        let mut ids = [0; 4 * NCCL_ID_BYTES];
        host.all_gather_bytes(made.as_flattened(), &mut ids).unwrap();
        let join = |at: usize| {
            let id = *ids[at * NCCL_ID_BYTES..].first_chunk().unwrap();
            let end = NcclEnd::join(&gpu, id, rank, 2, || Ok::<(), GpuError>(())).unwrap().unwrap();
            let stream = gpu.side_stream().unwrap();
            let (sent, received) = (stream.zeros::<u8>(1).unwrap(), stream.zeros::<u8>(1).unwrap());
            (end, stream, sent, received)
        };
        let (mut ends, peer) = ([join(0), join(1)], 1 - rank);
        // Number of both groups, begun in this order, that are done in time.
        let mut done_of = |order: [usize; 2], time: Duration| {
            let is_done = |(end, ..): &(NcclEnd, Gpu, _, _)| end.is_done().unwrap();
            for at in order {
                let (end, stream, sent, received) = &mut ends[at];
                let send = Transfer::Send { to: peer, bytes: sent.slice() };
                let mut transfers =
                    [send, Transfer::Receive { from: peer, bytes: received.slice_mut() }];
                end.start(stream, &mut transfers).unwrap();
                while !end.is_launched(&mut transfers).unwrap() {}
                // It may end before the next begins.
                let begun = Instant::now();
                while !is_done(&ends[at]) && begun.elapsed() < time / 4 {}
            }
            let begun = Instant::now();
            let count = || ends.iter().filter(|end| is_done(end)).count();
            while count() < 2 && begun.elapsed() < time {}
            count()
        };
        assert_eq!(done_of([0, 1], PATIENCE), 2);
        let different = if rank == 0 { [0, 1] } else { [1, 0] };
        assert_eq!(done_of(different, PATIENCE / 2), 0);
        host.barrier().unwrap();
        ends.iter().for_each(|(end, ..)| end.abort());
    });
}

#[test]
fn ranks_that_share_a_gpu_are_refused_by_nccl() {
    on_ranks("ranks::ranks_that_share_a_gpu_are_refused_by_nccl", 2, 1, |rank, mut ends| {
        let error = join(0, ends.remove(0)).unwrap_err().to_string();
        // Its own, or that of the other, which was first.
        let own = error.starts_with(&format!("rank {rank}: "));
        let is_told = error.starts_with(&format!("rank {} left the group: ", 1 - rank));
        assert!(error.contains("Duplicate GPU detected") && (own || is_told), "{error}");
    });
}

#[test]
fn ranks_that_are_threads_copy_from_gpu_to_gpu() {
    for (devices, link, haste) in [("2", "none", ""), ("3", "nvlink", ""), ("3", "pcie", "5")] {
        let mut variables = vec![("FAKE_CUDA_DEVICES", devices), ("FAKE_CUDA_LINK", link)];
        variables.extend((!haste.is_empty()).then_some(("FAKE_CUDA_HASTE", haste)));
        start(&["real_gpus_copy"], &variables, 1);
    }
}
