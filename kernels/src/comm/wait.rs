//! How long a collective waits for the other ranks, and how.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::CommError;

/// How long a [`Wait`] only yields the processor: ranks that are in step meet sooner, and a sleep
/// takes 60 µs or more.
const SPIN: Duration = Duration::from_micros(200);
/// The longest sleep between two checks.
const LONGEST: Duration = Duration::from_micros(500);

thread_local! {
    /// Phase of a run that this thread is in.
    static PHASE: Cell<&'static str> = const { Cell::new("") };
}

/// Runs `work`, which is a phase of a run: the error of a wait that takes too long names it.
pub fn in_phase<T>(phase: &'static str, work: impl FnOnce() -> T) -> T {
    let before = PHASE.replace(phase);
    let result = work();
    PHASE.set(before);
    result
}

/// Time that one rank's collectives may wait, and have waited.
#[derive(Debug)]
pub struct Limit {
    timeout: Option<Duration>,
    suspended: AtomicBool,
    /// Nanoseconds.
    waited: AtomicU64,
}

impl Limit {
    /// Without limit if `timeout` is `None`.
    pub const fn new(timeout: Option<Duration>) -> Self {
        Self { timeout, suspended: AtomicBool::new(false), waited: AtomicU64::new(0) }
    }

    /// Lifts the limit from waits that start from now on, or sets it again.
    pub fn suspend(&self, suspended: bool) {
        self.suspended.store(suspended, Ordering::Relaxed);
    }

    /// A wait that starts now and ends when it is dropped.
    pub fn start(&self) -> Wait<'_> {
        let timeout = self.timeout.filter(|_| !self.suspended.load(Ordering::Relaxed));
        let since = Since { started: Instant::now(), timeout, phase: PHASE.get() };
        Wait { waited: &self.waited, since, sleeps: 0 }
    }

    /// Total time of all waits that have ended.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }
}

/// The start of a wait, its limit and the phase of the run.
#[derive(Clone, Copy, Debug)]
pub struct Since {
    started: Instant,
    timeout: Option<Duration>,
    phase: &'static str,
}

impl Since {
    /// The error of `rank`, which has waited long enough in `called` for the `missing` ranks;
    /// `None` before that.
    pub fn expired(
        &self,
        rank: usize,
        called: &'static str,
        missing: impl FnOnce() -> Vec<usize>,
    ) -> Option<CommError> {
        let timeout = self.timeout.filter(|&timeout| self.started.elapsed() >= timeout)?;
        Some(CommError::Timeout { rank, called, phase: self.phase, missing: missing(), timeout })
    }
}

/// One rank's wait in a collective.
#[derive(Debug)]
pub struct Wait<'a> {
    waited: &'a AtomicU64,
    since: Since,
    sleeps: u32,
}

impl Wait<'_> {
    /// How much longer it may last; `None` without limit.
    pub fn left(&self) -> Option<Duration> {
        self.since.timeout.map(|timeout| timeout.saturating_sub(self.since.started.elapsed()))
    }

    /// Its start and its limit.
    pub fn since(&self) -> Since {
        self.since
    }

    /// Lets some time pass before the next check: first yields the processor, then sleeps, ever
    /// longer.
    pub fn pause(&mut self) {
        if self.since.started.elapsed() < SPIN {
            return thread::yield_now();
        }
        thread::sleep(LONGEST.min(Duration::from_micros(10 << self.sleeps.min(6))));
        self.sleeps += 1;
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.waited.fetch_add(self.since.started.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}
