//! Ranks as threads of one process.
//!
//! Idea: one mailbox for each (sender, receiver). A collective puts its messages into the mailboxes
//! of its round, passes a gate that opens when every rank has arrived, and reads. Two sets of
//! mailboxes take turns, so one gate per round is enough: a set is written again only after the
//! next gate, which no rank reaches before it has read. A rank that fails, panics or is dropped
//! closes the gate for good and wakes the waiting ranks; so does a rank that has waited for longer
//! than its limit, with the names of the ranks that have not arrived. Values on GPUs go from one to
//! the other: see `copies.rs`. Cost: two copies of each byte, one of the bytes that a rank sends to
//! itself; a mailbox keeps the memory of its largest message.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::copies::Post;
use super::messages::{Messages, check_message};
use super::wait::Limit;
use super::{DeviceExchange, Seat};
use crate::error::CommError;

/// One rank of a group whose ranks are threads of this process.
///
/// Move each to a thread of its own, never to a task of a thread pool: a rank that waits blocks its
/// thread. Only `fail` may be called while a collective is under way on another thread. Dropping
/// one ends the group for the others; if its thread is panicking, their errors say so.
#[derive(Debug)]
pub struct Threads {
    pub(super) seat: Seat,
    round: AtomicUsize,
    limit: Limit,
    pub(super) shared: Arc<Group>,
}

#[derive(Debug)]
pub(super) struct Group {
    /// `mail[from * size + to][round % 2]`.
    mail: Vec<[Mutex<Vec<u8>>; 2]>,
    /// Memory of each rank's GPU that the others may copy from.
    pub(super) posts: Vec<Mutex<Option<Post>>>,
    gate: Mutex<Gate>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Gate {
    /// The ranks that have arrived in this generation.
    arrived: Vec<usize>,
    /// The first rank that has arrived in this generation, and its collective.
    first: (usize, &'static str),
    generation: u64,
    failed: Option<CommError>,
}

/// Locks `mutex`, whatever happened to other threads: a panic while a lock is held ends their group
/// or run anyway, and data under the lock is never read half-written.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Threads {
    /// A group of `n` ranks, which wait for each other without limit; element `r` is rank `r`.
    pub fn group(n: usize) -> Vec<Self> {
        Self::groups_within(1, n, None)
    }

    /// `groups` groups of `n` ranks each; element `r` is rank `r` of all. Collectives fail with
    /// [`CommError::Timeout`] if a rank waits longer than `timeout`.
    pub fn groups_within(groups: usize, n: usize, timeout: Option<Duration>) -> Vec<Self> {
        (0..groups).flat_map(|group| Self::from_first(group * n, n, timeout)).collect()
    }

    /// A group of `n` ranks, the first of which is rank `first` of the run.
    fn from_first(first: usize, n: usize, timeout: Option<Duration>) -> Vec<Self> {
        let shared = Arc::new(Group {
            mail: (0..n * n).map(|_| Default::default()).collect(),
            posts: (0..n).map(|_| Mutex::default()).collect(),
            gate: Mutex::default(),
            wake: Condvar::new(),
        });
        let rank = |rank| Self {
            seat: Seat { rank, size: n, first },
            round: AtomicUsize::new(0),
            limit: Limit::new(timeout),
            shared: Arc::clone(&shared),
        };
        (0..n).map(rank).collect()
    }

    /// Waits until every rank has called the collective `called`.
    pub(super) fn pass(&self, called: &'static str) -> Result<(), CommError> {
        let mut gate = lock(&self.shared.gate);
        if let Some(failed) = &gate.failed {
            return Err(failed.clone());
        }
        if gate.arrived.is_empty() {
            gate.first = (self.seat.rank, called);
        }
        let (other, other_called) = gate.first;
        if called != other_called {
            let [rank, other] = [self.seat.rank, other].map(|rank| self.seat.name(rank));
            return Err(CommError::Order { rank, called, other, other_called });
        }
        gate.arrived.push(self.seat.rank);
        if gate.arrived.len() == self.seat.size {
            gate.arrived.clear();
            gate.generation += 1;
            self.shared.wake.notify_all();
            return Ok(());
        }
        let (generation, wait) = (gate.generation, self.limit.start());
        while gate.generation == generation {
            if let Some(failed) = &gate.failed {
                return Err(failed.clone());
            }
            let missing = (0..self.seat.size).filter(|rank| !gate.arrived.contains(rank));
            let missing = || missing.map(|rank| self.seat.name(rank)).collect();
            if let Some(expired) = wait.since().expired(self.seat.own_name(), called, missing) {
                gate.failed = Some(expired);
                self.shared.wake.notify_all();
                continue;
            }
            gate = match wait.left() {
                None => self.shared.wake.wait(gate).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    self.shared
                        .wake
                        .wait_timeout(gate, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
        Ok(())
    }
}

impl Messages for Threads {
    fn seat(&self) -> Seat {
        self.seat
    }

    fn exchange<'a>(
        &self,
        called: &'static str,
        outgoing: &dyn Fn(usize) -> &'a [u8],
        expected: &dyn Fn(usize) -> usize,
        incoming: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), CommError> {
        let (Seat { rank: me, size, .. }, mail) = (self.seat, &self.shared.mail);
        let set = self.round.load(Ordering::Relaxed) % 2;
        self.round.store(self.round.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        for to in (0..size).filter(|&to| to != me) {
            let mut message = lock(&mail[me * size + to][set]);
            message.clear();
            message.extend_from_slice(outgoing(to));
        }
        self.pass(called)?;
        for from in 0..size {
            let mut take = |message: &[u8]| {
                check_message(self.seat, from, message.len(), expected(from))?;
                incoming(from, message);
                Ok(())
            };
            match from == me {
                true => take(outgoing(from))?,
                false => take(&lock(&mail[from * size + me][set]))?,
            }
        }
        Ok(())
    }

    fn limit(&self) -> &Limit {
        &self.limit
    }

    fn failed(&self) -> Option<CommError> {
        lock(&self.shared.gate).failed.clone()
    }

    fn devices(&self) -> Option<&dyn DeviceExchange> {
        Some(self)
    }

    fn leave(&self, reason: &str) {
        let mut gate = lock(&self.shared.gate);
        if gate.failed.is_none() {
            gate.failed = Some(CommError::PeerFailed {
                rank: self.seat.own_name(),
                reason: reason.to_owned(),
            });
            self.shared.wake.notify_all();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.leave(if std::thread::panicking() {
            "its thread panicked"
        } else {
            "its thread has finished"
        });
    }
}
