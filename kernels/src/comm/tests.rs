//! One suite for every implementation, and what happens when a rank goes wrong.

pub(crate) mod conformance;
pub(crate) mod gpus;
mod timeouts;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::*;
pub(crate) use conformance::conformance;

const SIZES: [usize; 5] = [1, 2, 3, 4, 8];

/// Runs `body` on every rank of a group of threads; returns the results by rank.
fn run<R: Send>(size: usize, body: impl Fn(&Threads) -> R + Sync) -> Vec<R> {
    run_owned(size, |comm| body(&comm))
}

/// Like [`run`], for a `body` that consumes its end of the group.
fn run_owned<R: Send>(size: usize, body: impl Fn(Threads) -> R + Sync) -> Vec<R> {
    let body = &body;
    std::thread::scope(|scope| {
        let handles: Vec<_> =
            Threads::group(size).into_iter().map(|comm| scope.spawn(move || body(comm))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    })
}

#[test]
fn who_comes_first_waits() {
    let waited =
        |size| run(size, |comm| comm.barrier().map(|()| Communicator::waited(comm)).unwrap());
    assert_eq!(waited(1), [Duration::ZERO]);
    for size in [2, 5] {
        let waited = waited(size);
        let last = waited.iter().filter(|waited| waited.is_zero()).count();
        assert_eq!(last, 1, "{waited:?}");
    }
}

#[test]
fn threads_conform() {
    for size in SIZES {
        run(size, |comm| conformance(comm, 50));
    }
}

#[test]
fn solo_conforms() {
    conformance(&Solo, 8);
}

#[test]
fn differential_solo_and_a_group_of_one_refuse_alike() {
    type Call = fn(&dyn Communicator) -> Result<(), CommError>;
    let calls: [Call; 5] = [
        |comm| comm.all_to_all_bytes(&[1, 2], &[1], &mut [0; 2], &[2]),
        |comm| comm.all_to_all_bytes(&[1, 2], &[2], &mut [0; 2], &[1, 1]),
        |comm| comm.all_to_all_bytes(&[1, 2], &[2], &mut [0; 3], &[3]),
        |comm| comm.all_gather_bytes(&[1, 2], &mut [0; 3]),
        |comm| comm.all_to_all_bytes(&[], &[usize::MAX], &mut [], &[0]),
    ];
    for (i, call) in calls.iter().enumerate() {
        let error = call(&Solo).unwrap_err();
        // A fresh group each time: an error ends it.
        assert_eq!(call(&Threads::group(1).remove(0)).unwrap_err(), error, "call {i}");
    }
    let mut received = [0; 2];
    Solo.all_to_all_bytes(&[1, 2], &[2], &mut received, &[2]).unwrap();
    assert_eq!(received, [1, 2]);
}

#[test]
fn mismatched_counts_name_both_ranks() {
    // Rank 1 sends rank 2 four bytes; rank 2 expects three.
    let results = run(3, |comm| {
        let send: &[usize] = if comm.rank() == 1 { &[0, 0, 4] } else { &[0, 0, 0] };
        let recv: &[usize] = if comm.rank() == 2 { &[0, 3, 0] } else { &[0, 0, 0] };
        let (send_total, mut buffer) = (vec![9; send.iter().sum()], vec![0; recv.iter().sum()]);
        let first = comm.all_to_all_bytes(&send_total, send, &mut buffer, recv);
        first.and_then(|()| comm.barrier()).unwrap_err()
    });
    let mismatch = CommError::Mismatch { from: 1, to: 2, sent: 4, expected: 3 };
    assert_eq!(results[2], mismatch);
    let told = CommError::PeerFailed { rank: 2, reason: mismatch.to_string() };
    assert_eq!(results[..2], [told.clone(), told]);
}

#[test]
fn sums_of_different_lengths_fail_everywhere() {
    for size in [2, 3, 4, 8] {
        for odd in 0..size {
            let results = run(size, |comm| {
                comm.all_reduce_sum_f32(&mut vec![1.0; 10 + usize::from(comm.rank() == odd)])
            });
            assert!(results.iter().all(Result::is_err), "{results:?}");
            assert!(
                results.iter().any(|r| matches!(r, Err(CommError::Mismatch { .. }))),
                "{results:?}"
            );
        }
    }
}

#[test]
fn different_collectives_are_noticed() {
    let results = run(4, |comm| {
        let mut values = [1];
        let result =
            if comm.rank() == 3 { comm.barrier() } else { comm.all_reduce_sum_u64(&mut values) };
        result.unwrap_err()
    });
    assert!(results.iter().any(|error| matches!(error, CommError::Order { .. })), "{results:?}");
}

#[test]
fn wrong_arguments_of_one_rank_release_the_others() {
    let results = run(3, |comm| {
        let buffer: &[u8] = if comm.rank() == 0 { &[1] } else { &[] };
        comm.all_to_all_bytes(buffer, &[0; 3], &mut [], &[0; 3]).unwrap_err()
    });
    let argument = CommError::Mismatch { from: 0, to: 0, sent: 0, expected: 1 };
    assert_eq!(results[0], argument);
    let told = CommError::PeerFailed { rank: 0, reason: argument.to_string() };
    assert_eq!(results[1..], [told.clone(), told]);
}

#[test]
fn a_rank_that_fails_releases_the_others() {
    for size in [2, 3, 8] {
        let results = run(size, |comm| {
            (0..5).for_each(|_| comm.barrier().unwrap());
            if comm.rank() == 1 {
                comm.fail("disk full");
                comm.fail("a later reason is not reported");
            }
            let pending = comm.all_reduce_sum_f32(&mut [1.0; 9]).unwrap_err();
            assert_eq!(comm.barrier().unwrap_err(), pending);
            pending
        });
        let told = CommError::PeerFailed { rank: 1, reason: "disk full".to_owned() };
        assert_eq!(results, vec![told; size]);
    }
}

#[test]
fn a_rank_that_panics_releases_the_others() {
    let results = run_owned(4, |comm| {
        let rank = comm.rank();
        catch_unwind(AssertUnwindSafe(move || {
            comm.barrier().unwrap();
            // Not `panic!`: no message in the test's output.
            if rank == 2 {
                std::panic::resume_unwind(Box::new("a bug"));
            }
            comm.all_reduce_sum_f64(&mut [1.0]).unwrap_err()
        }))
    });
    let told = CommError::PeerFailed { rank: 2, reason: "its thread panicked".to_owned() };
    for (rank, result) in results.into_iter().enumerate() {
        assert_eq!(result.ok(), (rank != 2).then(|| told.clone()));
    }
}

#[test]
fn a_rank_that_returns_early_releases_the_others() {
    let results = run_owned(3, |comm| {
        comm.barrier().unwrap();
        if comm.rank() == 0 { Ok(()) } else { comm.barrier() }
    });
    let told = Err(CommError::PeerFailed { rank: 0, reason: "its thread has finished".to_owned() });
    assert_eq!(results, [Ok(()), told.clone(), told]);
}

#[test]
fn leaving_after_the_last_collective_disturbs_nobody() {
    for _ in 0..200 {
        let results = run_owned(4, |comm| comm.all_gather_bytes(&[comm.rank() as u8], &mut [0; 4]));
        assert!(results.iter().all(Result::is_ok));
    }
}

#[test]
fn groups_of_a_run_do_not_meet_and_errors_name_ranks_by_their_numbers_in_the_run() {
    for (groups, size) in [(1, 3), (2, 1), (2, 2), (3, 4)] {
        let ends = Threads::groups_within(groups, size, None);
        let seats: Vec<Seat> =
            (0..ends.len()).map(|rank| Seat::in_group(rank, groups * size, groups)).collect();
        std::thread::scope(|scope| {
            for (comm, seat) in ends.into_iter().zip(seats) {
                scope.spawn(move || {
                    assert_eq!(
                        (comm.rank(), comm.size(), comm.name(0)),
                        (seat.rank, seat.size, seat.first)
                    );
                    conformance(&comm, 4);
                    let mut names = vec![0u64; size];
                    all_gather_into(&comm, comm.name(comm.rank()), &mut names);
                    assert!(
                        names.iter().copied().eq((seat.first as u64..).take(size)),
                        "{names:?}"
                    );
                });
            }
        });
    }
    // One rank of the second group fails, one of the third sends too much: the others of their
    // groups learn who it was.
    let told = |rank: usize, comm: Threads| {
        match rank {
            3 => comm.fail("disk full"),
            7 => drop(comm.all_reduce_sum_u64(&mut [1, 2]).unwrap_err()),
            _ => {}
        }
        comm.all_reduce_sum_u64(&mut [1]).err()
    };
    let results: Vec<Option<CommError>> = std::thread::scope(|scope| {
        let ends = (0..).zip(Threads::groups_within(3, 3, None));
        let ranks: Vec<_> =
            ends.map(|(rank, comm)| scope.spawn(move || told(rank, comm))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert!(results[..3].iter().all(Option::is_none), "{results:?}");
    for error in &results[3..6] {
        assert_eq!(
            *error,
            Some(CommError::PeerFailed { rank: 3, reason: "disk full".to_string() })
        );
    }
    let line = results[6].as_ref().unwrap().to_string();
    assert!(
        line.contains("rank 7") || line.contains("rank 8") || line.contains("rank 6"),
        "{line}"
    );
}

fn all_gather_into(comm: &dyn Communicator, value: usize, out: &mut [u64]) {
    comm.all_gather_bytes(&(value as u64).to_ne_bytes(), bytemuck::cast_slice_mut(out)).unwrap();
}
