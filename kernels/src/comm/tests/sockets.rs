//! Ranks that sockets join, all in one process.

use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::super::messages::Messages;
use super::super::*;
use super::conformance;

const PATIENCE: Duration = Duration::from_secs(30);

/// The connections of `size` processes.
pub(crate) fn linked(size: usize) -> Vec<Links> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut streams: Vec<Vec<Option<TcpStream>>> = (0..size).map(|_| (0..size).map(|_| None).collect()).collect();
    let pairs = (0..size).flat_map(|low| (low + 1..size).map(move |high| (low, high)));
    for (low, high) in pairs {
        streams[high][low] = Some(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        streams[low][high] = Some(listener.accept().unwrap().0);
    }
    (0..).zip(streams).map(|(rank, streams)| Links::new(rank, streams).unwrap()).collect()
}

/// Results of `body` on each of `size` ranks.
fn on_links<R: Send>(size: usize, timeout: Duration, body: impl Fn(&Links, [Sockets; 2]) -> R + Sync) -> Vec<R> {
    let body = &body;
    thread::scope(|scope| {
        let start = |(rank, links): (usize, Links)| {
            scope.spawn(move || {
                let group = |channel| links.group(channel, Seat::among_all(rank, size), Some(timeout));
                let returned = body(&links, [group(0), group(1)]);
                links.finish();
                returned
            })
        };
        let ranks: Vec<_> = linked(size).into_iter().enumerate().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn ranks_that_sockets_join_conform() {
    for size in [1, 2, 3, 4, 8] {
        on_links(size, PATIENCE, |_, [comm, _]| conformance(&comm, 20));
    }
}

#[test]
fn groups_on_the_same_connections_do_not_wait_for_each_other() {
    let sums = on_links(2, PATIENCE, |_, [sampling, computing]| {
        let (first, second) =
            if Communicator::rank(&sampling) == 0 { (sampling, computing) } else { (computing, sampling) };
        thread::scope(|scope| {
            let ahead = scope.spawn(move || first.barrier());
            thread::sleep(Duration::from_millis(50));
            second.barrier().unwrap();
            ahead.join().unwrap()
        })
    });
    assert_eq!(sums, [Ok(()), Ok(())]);
}

#[test]
fn messages_that_fill_the_connections_both_ways_arrive() {
    on_links(3, PATIENCE, |_, [comm, _]| {
        let (rank, part) = (Communicator::rank(&comm) as u8, 20 << 20);
        let mut all = vec![9; 3 * part];
        comm.all_gather_bytes(&vec![rank; part], &mut all).unwrap();
        assert!(all.chunks(part).zip(0..).all(|(part, from)| part.iter().all(|&byte| byte == from)));
    });
}

#[test]
fn ranks_in_different_collectives_are_noticed_though_another_never_comes() {
    let started = Instant::now();
    let errors = on_links(3, PATIENCE, |_, [comm, _]| match Communicator::rank(&comm) {
        0 => comm.barrier().unwrap_err(),
        1 => comm.all_reduce_sum_u64(&mut [1, 2]).unwrap_err(),
        _ => loop {
            match Messages::failed(&comm) {
                Some(failed) => return failed,
                None => thread::sleep(Duration::from_millis(5)),
            }
        },
    });
    assert!(errors.iter().any(|error| matches!(error, CommError::Order { .. })), "{errors:?}");
    assert!(started.elapsed() < PATIENCE / 2);
}

#[test]
fn messages_of_another_length_name_both_ranks() {
    let errors = on_links(2, PATIENCE, |_, [comm, _]| {
        let (to, from): ([usize; 2], [usize; 2]) =
            if Communicator::rank(&comm) == 0 { ([0, 4], [0, 0]) } else { ([0, 0], [3, 0]) };
        let (send, mut recv) = (vec![7; to.iter().sum()], vec![0; from.iter().sum()]);
        let first = comm.all_to_all_bytes(&send, &to, &mut recv, &from);
        first.and_then(|()| comm.barrier()).unwrap_err()
    });
    let mismatch = CommError::Mismatch { from: 0, to: 1, sent: 4, expected: 3 };
    assert_eq!(errors, [CommError::PeerFailed { rank: 1, reason: mismatch.to_string() }, mismatch]);
}

#[test]
fn who_does_not_come_in_time_is_named() {
    let patience = Duration::from_millis(300);
    let errors = on_links(4, patience, |_, [comm, _]| match Communicator::rank(&comm) {
        3 => {
            thread::sleep(2 * patience);
            comm.barrier().unwrap_err()
        }
        _ => comm.all_gather_bytes(&[7], &mut [0; 4]).unwrap_err(),
    });
    let named = |error: &CommError| matches!(error, CommError::Timeout { missing, .. } if missing == &[3]);
    assert!(errors.iter().any(named), "{errors:?}");
    for error in &errors {
        assert!(named(error) || error.to_string().contains("in all_gather for rank 3"), "{errors:?}");
    }
}

#[test]
fn a_failure_is_told_to_all_in_every_group() {
    for (failing, reason) in [(0, Some("disk full")), (1, Some("no room:\nasked for 3 GiB")), (2, None)] {
        let mut links = linked(3);
        let failed = links.remove(failing);
        let group = |links: &Links, rank| links.group(1, Seat::among_all(rank, 3), Some(PATIENCE));
        match reason {
            Some(reason) => group(&failed, failing).fail(reason),
            None => drop(failed),
        }
        let reason = reason.unwrap_or("it ended before the others").replace('\n', " ");
        let told = Err(CommError::PeerFailed { rank: failing, reason });
        let ranks = (0..3).filter(|&rank| rank != failing);
        for (rank, links) in ranks.zip(&links) {
            assert_eq!(group(links, rank).barrier(), told);
            assert_eq!(links.failed().map_or(Ok(()), Err), told);
        }
    }
}

#[test]
fn a_connection_that_ends_without_a_farewell_is_a_death() {
    let mut links = linked(2);
    let comm = links[0].group(0, Seat::among_all(0, 2), Some(PATIENCE));
    // What the system does when a process is killed.
    links.pop().unwrap().cut();
    let error = comm.barrier().unwrap_err().to_string();
    assert_eq!(error, "rank 1 left the group: its process has ended");
}

#[test]
fn who_finishes_first_disturbs_nobody() {
    for _ in 0..20 {
        let results = on_links(4, PATIENCE, |_, [comm, _]| {
            comm.all_gather_bytes(&[Communicator::rank(&comm) as u8], &mut [0; 4])
        });
        assert!(results.iter().all(Result::is_ok));
    }
}
