//! How long a collective waits for the other ranks, and how.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::CommError;

/// Rounds of a [`Wait`] in which the processor is only offered to others.
const YIELDS: u32 = 64;
/// The longest sleep between two looks.
const LONGEST: Duration = Duration::from_micros(500);

/// How long one rank's collectives may wait, and how long they have waited.
#[derive(Debug, Default)]
pub(super) struct Limit {
    timeout: Option<Duration>,
    suspended: AtomicBool,
    /// Nanoseconds.
    waited: AtomicU64,
}

impl Limit {
    /// Without limit if `timeout` is `None`.
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        Self { timeout, ..Self::default() }
    }

    /// Lifts the limit from waits that start from now on, or sets it again.
    pub(super) fn suspend(&self, suspended: bool) {
        self.suspended.store(suspended, Ordering::Relaxed);
    }

    /// A wait that starts now and ends when it is dropped.
    pub(super) fn start(&self) -> Wait<'_> {
        let timeout = self.timeout.filter(|_| !self.suspended.load(Ordering::Relaxed));
        Wait { waited: &self.waited, started: Instant::now(), timeout, rounds: 0 }
    }

    /// How long all waits that have ended were together.
    pub(super) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }
}

/// One wait.
#[derive(Debug)]
pub(super) struct Wait<'a> {
    waited: &'a AtomicU64,
    started: Instant,
    timeout: Option<Duration>,
    rounds: u32,
}

impl Wait<'_> {
    /// How much longer it may last; `None` without limit.
    pub(super) fn left(&self) -> Option<Duration> {
        self.timeout.map(|timeout| timeout.saturating_sub(self.started.elapsed()))
    }

    /// How long it has lasted.
    pub(super) fn lasted(&self) -> Duration {
        self.started.elapsed()
    }

    /// The error of `rank`, which has waited long enough in `called` for the `missing` ranks; `None` before that.
    pub(super) fn expired(
        &self,
        rank: usize,
        called: &'static str,
        missing: impl FnOnce() -> Vec<usize>,
    ) -> Option<CommError> {
        let timeout = self.timeout.filter(|&timeout| self.started.elapsed() >= timeout)?;
        Some(CommError::Timeout { rank, called, missing: missing(), timeout })
    }

    /// Lets some time pass before the next look. Ranks that are in step meet within microseconds: first the processor is
    /// offered to others, then this rank sleeps, ever longer.
    pub(super) fn pause(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        match self.rounds.checked_sub(YIELDS) {
            None => thread::yield_now(),
            Some(sleeps) => thread::sleep(LONGEST.min(Duration::from_micros(10 << sleeps.min(6)))),
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.waited.fetch_add(self.started.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}
