//! The ranks of a run as threads of this process: started, watched, and ended.
//!
//! Returns: the result of the first rank, or the first cause of a failure. Idea: a rank that fails
//! notifies the others. Their collectives then fail with its reason, so all end within one
//! collective. A rank that hangs cannot be notified, and its thread cannot be ended; so the program
//! is ended, if the caller has provided a function for that.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use gsplit_kernels::{CommError, Communicator, Solo, Threads};

use crate::ranks::comms::Comms;
use crate::{Error, Result};

/// Time for the ranks to end once one has failed.
const GRACE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// Function that ends the program when its ranks cannot be waited for.
pub type Abandon = fn(&Error) -> !;

/// Runs `work` on each of `ranks`, in `groups` equal groups, each on its own thread; the first
/// failure stops all of them and is reported. In a collective a rank waits for others for
/// `timeout`.
pub fn on_threads<R: Send>(
    ranks: usize,
    groups: usize,
    timeout: Option<Duration>,
    abandon: Option<Abandon>,
    work: impl Fn(&Comms) -> Result<R> + Sync,
) -> Result<R> {
    let work = &work;
    let results = thread::scope(|scope| {
        let (sender, receiver) = channel();
        for (rank, comm) in comms(ranks, groups, timeout).into_iter().enumerate() {
            let sender = sender.clone();
            scope.spawn(move || {
                let result = as_rank(&comm, work);
                drop(comm);
                // The receiver stays until all have sent.
                let _ = sender.send((rank, result));
            });
        }
        drop(sender);
        collect(&receiver, ranks, abandon)
    });
    let died =
        |rank| Err(Error::Rank { rank, reason: "its thread panicked, see the line above".into() });
    let results =
        results.into_iter().enumerate().map(|(rank, result)| result.unwrap_or_else(|| died(rank)));
    first_cause(results.collect())
        .unwrap_or_else(|| Err(Error::Option("--ranks: expected 1 or more".into())))
}

/// Runs `work` on one rank and notifies the others of its failure or panic.
pub fn as_rank<R>(comms: &Comms, work: impl FnOnce(&Comms) -> Result<R>) -> Result<R> {
    match catch_unwind(AssertUnwindSafe(|| work(comms))) {
        Ok(result) => {
            let result = result.map_err(|error| error.of_rank(comms.all().rank()));
            if let Err(error) = &result {
                comms.fail(&error.to_string());
            }
            result
        }
        Err(panic) => {
            let error = Error::of_panic(&*panic, comms.all().rank());
            comms.fail(&match &error {
                Error::Rank { reason, .. } => reason.clone(),
                error => error.to_string(),
            });
            Err(error)
        }
    }
}

/// The ends of each of `ranks`, in `groups` equal groups.
fn comms(ranks: usize, groups: usize, timeout: Option<Duration>) -> Vec<Comms> {
    let boxed = |comm| Box::new(comm) as Box<dyn Communicator>;
    let of = |groups: usize| {
        Threads::groups_within(groups, ranks / groups, timeout).into_iter().map(boxed)
    };
    match (ranks, groups) {
        (1, _) => vec![Comms::new(Box::new(Solo), Box::new(Solo), None)],
        (_, 1) => of(1).zip(of(1)).map(|(all, sampling)| Comms::new(all, sampling, None)).collect(),
        _ => {
            let of_groups = of(groups).zip(of(groups));
            of(1)
                .zip(of_groups)
                .map(|(all, (sampling, group))| Comms::new(all, sampling, Some(group)))
                .collect()
        }
    }
}

/// Results of the ranks, in order. A rank that is still running after the grace period counts as
/// hanging.
fn collect<R>(
    receiver: &Receiver<(usize, Result<R>)>,
    ranks: usize,
    abandon: Option<Abandon>,
) -> Vec<Option<Result<R>>> {
    let mut results: Vec<Option<Result<R>>> = (0..ranks).map(|_| None).collect();
    let mut deadline: Option<Instant> = None;
    loop {
        let next = match deadline {
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline) => {
                receiver.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            }
        };
        match (next, abandon) {
            (Ok((rank, result)), abandon) => {
                if result.is_err() && abandon.is_some() {
                    deadline.get_or_insert_with(|| Instant::now() + GRACE);
                }
                results[rank] = Some(result);
            }
            (Err(RecvTimeoutError::Timeout), Some(abandon)) => {
                let ended = results.iter_mut().filter_map(Option::take).collect();
                if let Some(Err(error)) = first_cause(ended) {
                    abandon(&error);
                }
                deadline = None;
            }
            (Err(_), _) => return results,
        }
    }
}

/// The result of a run from the `results` of its ranks: the first cause of a failure, else the
/// first rank's result.
fn first_cause<R>(results: Vec<Result<R>>) -> Option<Result<R>> {
    let mut first = None;
    for result in results {
        match result {
            // Ranks that were notified of another's failure repeat it; the cause is with the other.
            Err(error @ Error::Comm(CommError::PeerFailed { .. })) => {
                first = first.or(Some(Err(error)))
            }
            Err(error) => return Some(Err(error)),
            Ok(value) => first = first.or(Some(Ok(value))),
        }
    }
    first
}
