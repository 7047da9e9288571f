//! The stopwatch of a mini-batch: seconds of exchanges, waits, and what is sent, by phase.

use std::mem::replace;
use std::time::{Duration, Instant};

use gsplit_kernels::SentByRoute;

use super::comms::Ranks;
use super::traffic::{Phase, Traffic};

/// Runs the phases of a mini-batch on one rank, and counts around them.
pub struct Clock<'a> {
    comm: Ranks<'a>,
    began: Instant,
    waited: Duration,
    exchange_s: f64,
    /// Counts of what had been sent when the last phase ended.
    before: SentByRoute,
    sent: Traffic,
}

/// Readings of a [`Clock`].
pub struct Counted {
    /// Seconds of exchanges, waits for other ranks included.
    pub exchange_s: f64,
    /// Seconds of waits.
    pub wait_s: f64,
    /// All other seconds.
    pub compute_s: f64,
    /// Counts of what was sent.
    pub sent: Traffic,
}

impl<'a> Clock<'a> {
    /// Starts now, after `sent` has been sent.
    pub fn start(comm: Ranks<'a>, sent: Traffic) -> Self {
        Self { comm, began: Instant::now(), waited: comm.waited(), exchange_s: 0.0, before: comm.sent(), sent }
    }

    /// Runs `work`, what it sends being of `phase`.
    pub fn phase<T>(&mut self, phase: Phase, work: impl FnOnce(&mut Self) -> T) -> T {
        let result = work(self);
        let now = self.comm.sent();
        self.sent.add(phase, replace(&mut self.before, now), now);
        result
    }

    /// Runs `exchange`, whose time is that of exchanges.
    pub fn exchange<T>(&mut self, exchange: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = exchange();
        self.exchange_s += began.elapsed().as_secs_f64();
        result
    }

    /// Stops now.
    pub fn stop(self) -> Counted {
        let (seconds, wait_s) = (self.began.elapsed().as_secs_f64(), (self.comm.waited() - self.waited).as_secs_f64());
        Counted { exchange_s: self.exchange_s, wait_s, compute_s: seconds - self.exchange_s, sent: self.sent }
    }
}
