//! Tests of ranks that torch joins, all in one process: each has its end of the store and its own
//! connections.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use gsplit_kernels::Communicator;

use super::*;
use crate::Error;

#[path = "../../../../kernels/src/comm/tests/conformance.rs"]
mod conformance;
use conformance::conformance;

const PATIENCE: Duration = Duration::from_secs(60);

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Results of `body` on each of `size` ranks in `groups` groups.
fn on_ranks<R: Send>(
    (size, groups): (usize, usize),
    timeout: Duration,
    body: impl Fn(&Meeting, [C10d; 2]) -> R + Sync,
) -> Vec<R> {
    let (port, body) = (free_port(), &body);
    thread::scope(|scope| {
        let start = |rank| {
            scope.spawn(move || {
                let meeting =
                    Meeting::at("127.0.0.1", port, rank, size, "test", &BTreeMap::new(), timeout)
                        .unwrap();
                let seat = Seat::in_group(rank, size, groups);
                let ends = ["first", "second"].map(|name| meeting.group(name, seat).unwrap());
                let returned = body(&meeting, ends);
                meeting.linger();
                returned
            })
        };
        let ranks: Vec<_> = (0..size).map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn ranks_that_torch_joins_conform() {
    for (size, groups) in [(1, 1), (2, 1), (3, 1), (4, 1), (4, 2), (3, 3)] {
        on_ranks((size, groups), PATIENCE, |meeting, [comm, _]| {
            let seat = Seat::in_group(meeting.seat().rank, size, groups);
            assert_eq!((comm.rank(), comm.name(0)), (seat.rank, seat.first));
            conformance(&comm, 12);
        });
    }
}

#[test]
fn messages_of_any_length_arrive_whole() {
    on_ranks((3, 1), PATIENCE, |_, [comm, _]| {
        let me = comm.rank();
        for part in [0, 1, SLOT - HEAD - 1, SLOT - HEAD, SLOT - HEAD + 1, 20 << 20] {
            // Nothing from one rank to another, and twice as much back.
            let bytes = |from: usize, to: usize| part * ((3 + to - from) % 3);
            let to: Vec<usize> = (0..3).map(|to| bytes(me, to)).collect();
            let from: Vec<usize> = (0..3).map(|from| bytes(from, me)).collect();
            let (send, mut recv) = (vec![me as u8; to.iter().sum()], vec![9; from.iter().sum()]);
            comm.all_to_all_bytes(&send, &to, &mut recv, &from).unwrap();
            let mut rest = &recv[..];
            for (rank, &bytes) in from.iter().enumerate() {
                let (message, tail) = rest.split_at(bytes);
                assert!(
                    message.iter().all(|&byte| usize::from(byte) == rank),
                    "{part} bytes of {rank}"
                );
                rest = tail;
            }
        }
    });
}

#[test]
fn groups_of_the_same_ranks_do_not_wait_for_each_other() {
    on_ranks((2, 1), PATIENCE, |_, [sampling, computing]| {
        let (first, second) =
            if sampling.rank() == 0 { (sampling, computing) } else { (computing, sampling) };
        thread::scope(|scope| {
            let ahead = scope.spawn(move || first.barrier());
            thread::sleep(Duration::from_millis(50));
            second.barrier().unwrap();
            ahead.join().unwrap().unwrap();
        });
    });
}

#[test]
fn unlike_calls_are_noticed_and_told_to_all() {
    let errors = on_ranks((2, 1), PATIENCE, |_, [comm, _]| match comm.rank() {
        0 => comm.barrier().unwrap_err(),
        _ => comm.all_reduce_sum_u64(&mut [1, 2]).unwrap_err(),
    });
    assert!(errors.iter().any(|error| matches!(error, CommError::Order { .. })), "{errors:?}");

    for (sent, expected) in [(4, 3), (4, 5), (4, 4000), (4000, 4), (4000, 9000), (9000, 4000)] {
        let errors = on_ranks((2, 1), PATIENCE, |_, [comm, _]| {
            let (to, from): ([usize; 2], [usize; 2]) =
                if comm.rank() == 0 { ([0, sent], [0, 0]) } else { ([0, 0], [expected, 0]) };
            let (send, mut recv) = (vec![7; to.iter().sum()], vec![0; from.iter().sum()]);
            let first = comm.all_to_all_bytes(&send, &to, &mut recv, &from);
            first.and_then(|()| comm.barrier()).unwrap_err()
        });
        let mismatch = CommError::Mismatch { from: 0, to: 1, sent, expected };
        assert_eq!(
            errors,
            [CommError::PeerFailed { rank: 1, reason: mismatch.to_string() }, mismatch]
        );
    }
}

#[test]
fn who_does_not_come_in_time_is_named() {
    let patience = Duration::from_secs(3);
    let errors = on_ranks((3, 1), patience, |_, [comm, _]| match comm.rank() {
        2 => {
            // The store stays open for a moment longer.
            thread::sleep(patience + Duration::from_millis(400));
            comm.barrier().unwrap_err()
        }
        _ => comm.all_gather_bytes(&[7], &mut [0; 3]).unwrap_err(),
    });
    for error in &errors {
        let line = error.to_string();
        assert!(line.contains("waited 3 s in all_gather for rank 2, which"), "{errors:?}");
    }
}

#[test]
fn a_failure_is_told_to_those_who_wait_on_all_threads() {
    for reason in [Some("no room:\nasked for 3 GiB"), None] {
        let errors = on_ranks((3, 1), PATIENCE, |_, [sampling, computing]| {
            sampling.barrier().unwrap();
            if sampling.rank() == 1 {
                thread::sleep(Duration::from_millis(100));
                // Returns without a reason, like a process that ends.
                let reason = reason?;
                return thread::scope(|scope| {
                    let waits = scope.spawn(|| sampling.barrier());
                    thread::sleep(Duration::from_millis(100));
                    [&sampling, &computing].iter().for_each(|comm| comm.fail(reason));
                    Some(waits.join().unwrap().unwrap_err())
                });
            }
            let started = Instant::now();
            let error = computing.all_reduce_sum_f32(&mut [1.0; 9]).unwrap_err();
            assert!(started.elapsed() < PATIENCE / 2);
            assert_eq!(computing.barrier().unwrap_err(), error);
            Some(error)
        });
        let reason = reason.unwrap_or("its process has ended").replace('\n', " ");
        let told = CommError::PeerFailed { rank: 1, reason };
        assert!(errors.iter().flatten().all(|error| *error == told), "{errors:?}");
    }
}

#[test]
fn a_time_in_which_one_rank_works_alone_has_no_limit() {
    let patience = Duration::from_secs(3);
    on_ranks((2, 1), patience, |_, [comm, _]| {
        Communicator::suspend_timeout(&comm, true);
        if comm.rank() == 0 {
            thread::sleep(2 * patience);
        }
        comm.barrier().unwrap();
    });
}

/// Errors of ranks that start with these values of rank, ranks, groups and run, at a port of their
/// own.
fn refusals(starts: &[(usize, usize, usize, &str)], timeout: Duration) -> Vec<Option<String>> {
    let port = free_port();
    let start = |(rank, size, groups, run): (usize, usize, usize, &str)| {
        let options = BTreeMap::from([("groups".to_string(), groups.to_string())]);
        let met = Meeting::at("127.0.0.1", port, rank, size, run, &options, timeout);
        met.err().map(|error: Error| error.to_string())
    };
    thread::scope(|scope| {
        let ranks: Vec<_> = starts.iter().map(|&one| scope.spawn(move || start(one))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn says(told: &[Option<String>], who: usize, words: &str) {
    let line = told[who].as_ref().unwrap_or_else(|| panic!("{who} of {told:?}"));
    assert!(line.contains(words) && !line.contains('\n'), "{told:?}");
}

#[test]
fn who_does_not_belong_is_told_why() {
    let started = Instant::now();
    let told = refusals(&[(0, 2, 1, ""), (1, 3, 1, "")], PATIENCE);
    says(&told, 1, "rank 1: --ranks 3 of rank 1 is 2 on rank 0");
    says(&told, 0, "rank 1 left the group: --ranks 3 of rank 1 is 2 on rank 0");
    let told = refusals(&[(0, 4, 2, ""), (1, 4, 4, "")], PATIENCE);
    says(&told, 1, "--groups 4 of rank 1 is 2 on rank 0: start all with the same options");
    assert!(started.elapsed() < PATIENCE);
}

#[test]
fn who_does_not_come_or_is_of_another_run_is_named() {
    let second = Duration::from_secs(2);
    let told = refusals(&[(0, 3, 1, ""), (1, 3, 1, "")], second);
    says(&told, 0, "rank 2 did not come to 127.0.0.1:");
    let told = refusals(&[(0, 3, 1, "a"), (1, 3, 1, "b")], second);
    says(&told, 1, "this is another run: give each its own port");
    says(&told, 0, "ranks 1, 2 did not come to 127.0.0.1:");
}

#[test]
fn who_comes_twice_or_finds_nobody_is_told() {
    let second = Duration::from_secs(2);
    let told = refusals(&[(0, 3, 1, ""), (1, 3, 1, ""), (1, 3, 1, "")], second);
    assert!(
        told.iter().flatten().any(|line| line.contains("rank 1 has come already to 127.0.0.1:")),
        "{told:?}"
    );
    let told = refusals(&[(1, 2, 1, "")], second);
    says(&told, 0, "rank 1: rank 0 did not answer at 127.0.0.1:");
}

#[test]
fn all_who_wait_name_the_rank_that_does_not_come() {
    let told = refusals(&[(0, 4, 1, ""), (1, 4, 1, ""), (3, 4, 1, "")], Duration::from_secs(2));
    let names = |line: &Option<String>| line.as_ref().is_some_and(|line| line.contains("rank 2 "));
    assert!(told.iter().all(names), "{told:?}");
    assert!(
        told.iter().flatten().any(|line| line.contains("rank 2 did not come to 127.0.0.1:")),
        "{told:?}"
    );
}

#[test]
fn a_rank_that_waits_without_a_limit_names_the_rank_that_stopped() {
    let (started, num_told) = (Instant::now(), AtomicU64::new(0));
    let told = on_ranks((3, 1), Duration::from_secs(2), |_, [comm, _]| match comm.rank() {
        2 => {
            while num_told.load(Ordering::Relaxed) < 2 && started.elapsed() < PATIENCE / 4 {
                thread::sleep(Duration::from_millis(10));
            }
            None
        }
        rank => {
            Communicator::suspend_timeout(&comm, rank == 1);
            let error = comm.barrier().unwrap_err().to_string();
            Communicator::fail(&comm, &error);
            num_told.fetch_add(1, Ordering::Relaxed);
            Some(error)
        }
    });
    assert!(started.elapsed() < PATIENCE / 4, "{told:?}");
    for line in told.iter().flatten() {
        assert!(line.contains("rank 0 waited 2 s in barrier for rank 2"), "{told:?}");
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let at = |rank| {
        Meeting::at("127.0.0.1", port, rank, 2, "", &BTreeMap::new(), Duration::from_secs(1))
            .err()
            .unwrap()
            .to_string()
    };
    let first = at(0);
    assert!(
        first.contains(&format!("cannot listen at 127.0.0.1:{port}: the port is taken")),
        "{first}"
    );
    // The process that listens there does not answer.
    let second = at(1);
    assert!(second.contains("rank 1: rank 0 did not answer at"), "{second}");
}
