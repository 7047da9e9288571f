//! Ranks as threads of one process.
//!
//! Idea: one mailbox for each (sender, receiver). A collective puts its messages into the mailboxes of its round,
//! passes a gate that opens when every rank has arrived, and reads. Two sets of mailboxes take turns, so one gate a
//! round is enough: a set is written again only after the next gate, which no rank reaches before it has read. A rank
//! that fails, panics or goes away closes the gate for good and wakes whoever waits there.
//! Cost: two copies of each byte, one of what a rank sends to itself; a mailbox keeps the memory of its largest
//! message.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytemuck::{Pod, cast_slice, cast_slice_mut, pod_read_unaligned};

use super::{Communicator, check_gather, check_parts};
use crate::error::CommError;

/// One rank of a group whose ranks are threads of this process.
///
/// Move each to a thread of its own, never to a task of a thread pool: a rank that waits blocks its thread. Only `fail` may be
/// called while a collective is under way on another thread. Dropping
/// one ends the group for the others; if its thread is panicking, they are told so.
#[derive(Debug)]
pub struct Threads {
    rank: usize,
    round: AtomicUsize,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    size: usize,
    /// `mail[from * size + to][round % 2]`.
    mail: Vec<[Mutex<Vec<u8>>; 2]>,
    gate: Mutex<Gate>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Gate {
    arrived: usize,
    /// The first rank that has arrived in this generation, and its collective.
    first: (usize, &'static str),
    generation: u64,
    failed: Option<CommError>,
}

/// A panic while a lock is held ends the group anyway; what the lock protects is never read half-written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Threads {
    /// A group of `n` ranks; element `r` is rank `r`.
    pub fn group(n: usize) -> Vec<Self> {
        let shared = Arc::new(Shared {
            size: n,
            mail: (0..n * n).map(|_| Default::default()).collect(),
            gate: Mutex::default(),
            wake: Condvar::new(),
        });
        (0..n).map(|rank| Self { rank, round: AtomicUsize::new(0), shared: Arc::clone(&shared) }).collect()
    }

    /// Waits until every rank has called the collective `called`.
    fn pass(&self, called: &'static str) -> Result<(), CommError> {
        let mut gate = lock(&self.shared.gate);
        if let Some(failed) = &gate.failed {
            return Err(failed.clone());
        }
        if gate.arrived == 0 {
            gate.first = (self.rank, called);
        }
        let (other, other_called) = gate.first;
        if called != other_called {
            return Err(CommError::Order { rank: self.rank, called, other, other_called });
        }
        gate.arrived += 1;
        if gate.arrived == self.shared.size {
            gate.arrived = 0;
            gate.generation += 1;
            self.shared.wake.notify_all();
            return Ok(());
        }
        let generation = gate.generation;
        while gate.generation == generation {
            if let Some(failed) = &gate.failed {
                return Err(failed.clone());
            }
            gate = self.shared.wake.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Sends `outgoing(r)` to each rank `r`, then gives `incoming` the message of each rank, in rank order.
    fn exchange<'a>(
        &self,
        called: &'static str,
        outgoing: impl Fn(usize) -> &'a [u8],
        mut incoming: impl FnMut(usize, &[u8]) -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        let Shared { size, ref mail, .. } = *self.shared;
        let set = self.round.load(Ordering::Relaxed) % 2;
        self.round.store(self.round.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        for to in (0..size).filter(|&to| to != self.rank) {
            let mut message = lock(&mail[self.rank * size + to][set]);
            message.clear();
            message.extend_from_slice(outgoing(to));
        }
        self.pass(called)?;
        for from in 0..size {
            if from == self.rank {
                incoming(from, outgoing(from))?;
            } else {
                incoming(from, &lock(&mail[from * size + self.rank][set]))?;
            }
        }
        Ok(())
    }

    /// All-to-all with parts given by their ranges.
    fn exchange_parts(
        &self,
        called: &'static str,
        outgoing: impl Fn(usize) -> Range<usize>,
        send: &[u8],
        recv: &mut [u8],
        recv_bytes: impl Fn(usize) -> usize,
    ) -> Result<(), CommError> {
        let mut rest = recv;
        self.exchange(
            called,
            |to| &send[outgoing(to)],
            |from, message| {
                self.check_message(from, message, recv_bytes(from))?;
                let (part, tail) = std::mem::take(&mut rest).split_at_mut(message.len());
                part.copy_from_slice(message);
                rest = tail;
                Ok(())
            },
        )
    }

    /// Sums over the ranks, in rank order: rank `r` sums the `r`-th share of the values for all, then hands it round.
    fn all_reduce<T: Pod>(
        &self,
        called: &'static str,
        values: &mut [T],
        add: impl Fn(T, T) -> T,
    ) -> Result<(), CommError> {
        let size = self.shared.size;
        let len = values.len();
        let share = |rank: usize| len * rank / size..len * (rank + 1) / size;
        let mut sums = vec![T::zeroed(); share(self.rank).len()];
        self.exchange(
            called,
            |to| cast_slice(&values[share(to)]),
            |from, message| {
                self.check_message(from, message, size_of_val(sums.as_slice()))?;
                for (sum, bytes) in sums.iter_mut().zip(message.chunks_exact(size_of::<T>())) {
                    let value = pod_read_unaligned(bytes);
                    // The first is copied, not added to 0, which would lose the sign of -0.
                    *sum = if from == 0 { value } else { add(*sum, value) };
                }
                Ok(())
            },
        )?;
        let sums: &[u8] = cast_slice(&sums);
        self.exchange_parts(
            called,
            |_| 0..sums.len(),
            sums,
            cast_slice_mut(values),
            |from| share(from).len() * size_of::<T>(),
        )
    }

    fn check_message(&self, from: usize, message: &[u8], expected: usize) -> Result<(), CommError> {
        if message.len() == expected {
            return Ok(());
        }
        Err(CommError::Mismatch { from, to: self.rank, sent: message.len(), expected })
    }

    /// A rank whose call went wrong takes no part any more: the others must not wait for it.
    fn or_fail(&self, result: Result<(), CommError>) -> Result<(), CommError> {
        result.inspect_err(|error| self.fail(&error.to_string()))
    }
}

impl Communicator for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.size
    }

    fn barrier(&self) -> Result<(), CommError> {
        self.or_fail(self.pass("barrier"))
    }

    fn all_to_all_bytes(
        &self,
        send: &[u8],
        send_bytes: &[usize],
        recv: &mut [u8],
        recv_bytes: &[usize],
    ) -> Result<(), CommError> {
        let checked = check_parts(self, "bytes to send", send_bytes, send.len())
            .and_then(|()| check_parts(self, "bytes to receive", recv_bytes, recv.len()));
        self.or_fail(checked)?;
        let starts: Vec<usize> = send_bytes
            .iter()
            .scan(0, |end, bytes| {
                *end += bytes;
                Some(*end - bytes)
            })
            .collect();
        let outgoing = |to: usize| starts[to]..starts[to] + send_bytes[to];
        self.or_fail(self.exchange_parts("all_to_all", outgoing, send, recv, |from| recv_bytes[from]))
    }

    fn all_reduce_sum_f32(&self, values: &mut [f32]) -> Result<(), CommError> {
        self.or_fail(self.all_reduce("all_reduce_sum_f32", values, |a, b| a + b))
    }

    fn all_reduce_sum_f64(&self, values: &mut [f64]) -> Result<(), CommError> {
        self.or_fail(self.all_reduce("all_reduce_sum_f64", values, |a, b| a + b))
    }

    fn all_reduce_sum_u64(&self, values: &mut [u64]) -> Result<(), CommError> {
        self.or_fail(self.all_reduce("all_reduce_sum_u64", values, u64::wrapping_add))
    }

    fn all_gather_bytes(&self, send: &[u8], recv: &mut [u8]) -> Result<(), CommError> {
        self.or_fail(check_gather(self, send.len(), recv.len()))?;
        self.or_fail(self.exchange_parts("all_gather", |_| 0..send.len(), send, recv, |_| send.len()))
    }

    fn fail(&self, reason: &str) {
        let mut gate = lock(&self.shared.gate);
        if gate.failed.is_none() {
            gate.failed = Some(CommError::PeerFailed { rank: self.rank, reason: reason.to_owned() });
            self.shared.wake.notify_all();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.fail(if std::thread::panicking() { "its thread panicked" } else { "its thread has finished" });
    }
}
