//! Ranks that never come: the others report it, and whom they waited for.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::super::*;

const PATIENCE: Duration = Duration::from_millis(400);

#[test]
fn a_rank_that_never_comes_is_named() {
    // Rank 2 is alive and does something else; rank 3 has come.
    let mut group = Threads::groups_within(1, 4, Some(PATIENCE));
    let (come, wait) = mpsc::channel::<()>();
    let busy = group.remove(2);
    let busy = thread::spawn(move || {
        wait.recv().unwrap_err();
        busy.barrier()
    });
    let started = Instant::now();
    let waiting: Vec<_> = group
        .into_iter()
        .map(|comm| {
            thread::spawn(move || in_phase("update", || comm.all_reduce_sum_f32(&mut [1.0; 5])))
        })
        .collect();
    let errors: Vec<CommError> =
        waiting.into_iter().map(|rank| rank.join().unwrap().unwrap_err()).collect();
    assert!(started.elapsed() >= PATIENCE && started.elapsed() < 60 * PATIENCE);
    for error in &errors {
        let CommError::Timeout { rank, called, phase: "update", missing, timeout } = error else {
            panic!("{error}")
        };
        assert!([0, 1, 3].contains(rank), "{error}");
        assert_eq!(
            (*called, missing.as_slice(), *timeout),
            ("all_reduce_sum_f32", &[2][..], PATIENCE)
        );
        assert_eq!(error, &errors[0], "all say the same");
    }
    let line = errors[0].to_string();
    assert!(
        line.contains("waited 0.4 s in all_reduce_sum_f32 (update) for rank 2, which")
            && line.contains("--timeout"),
        "{line}"
    );
    drop(come);
    assert_eq!(busy.join().unwrap().unwrap_err(), errors[0], "too late");
}

#[test]
fn all_that_are_missing_are_named() {
    let mut group = Threads::groups_within(1, 5, Some(PATIENCE));
    let error = group.remove(1).barrier().unwrap_err();
    let missing = vec![0, 2, 3, 4];
    assert_eq!(
        error,
        CommError::Timeout { rank: 1, called: "barrier", phase: "", missing, timeout: PATIENCE }
    );
    assert!(error.to_string().contains("for ranks 0, 2, 3, 4, which"), "{error}");
}

#[test]
fn while_one_rank_works_alone_there_is_no_limit() {
    let group = Threads::groups_within(1, 2, Some(PATIENCE));
    let results = thread::scope(|scope| {
        let rank = |comm: Threads| {
            move || {
                comm.suspend_timeout(true);
                if comm.rank() == 0 {
                    thread::sleep(3 * PATIENCE);
                }
                comm.barrier()?;
                comm.suspend_timeout(false);
                if comm.rank() == 0 {
                    thread::sleep(3 * PATIENCE);
                }
                comm.barrier()
            }
        };
        let ranks: Vec<_> = group.into_iter().map(|comm| scope.spawn(rank(comm))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
    });
    let missing = vec![0];
    let expired =
        CommError::Timeout { rank: 1, called: "barrier", phase: "", missing, timeout: PATIENCE };
    assert_eq!(results, [Err(expired.clone()), Err(expired)]);
}
