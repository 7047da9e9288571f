//! The stopwatch of a mini-batch: seconds of exchanges and waits, and data sent, by phase.

use std::mem::replace;
use std::time::{Duration, Instant};

use gsplit_kernels::{SentByRoute, in_phase};

use super::comms::Ranks;
use super::traffic::{Phase, Traffic};

/// Runs the phases of a mini-batch on one rank and measures them.
pub struct Clock<'a> {
    comm: Ranks<'a>,
    began: Instant,
    /// Time when the last phase ended.
    phase_began: Instant,
    phase_s: [f64; Phase::ALL.len()],
    waited: Duration,
    exchange_s: f64,
    /// Counts of data sent before the current phase.
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
    phase_s: [f64; Phase::ALL.len()],
    /// Counts of data sent.
    pub sent: Traffic,
}

impl Counted {
    /// Seconds of `phase`.
    pub fn seconds(&self, phase: Phase) -> f64 {
        self.phase_s[phase as usize]
    }
}

impl<'a> Clock<'a> {
    /// Starts now; `sent` was sent before.
    pub fn start(comm: Ranks<'a>, sent: Traffic) -> Self {
        let (began, phase_s) = (Instant::now(), Default::default());
        let (waited, before) = (comm.waited(), comm.sent());
        Self { comm, began, phase_began: began, phase_s, waited, exchange_s: 0.0, before, sent }
    }

    /// Runs `work`; data sent and the time since the last phase count for `phase`.
    pub fn phase<T>(&mut self, phase: Phase, work: impl FnOnce(&mut Self) -> T) -> T {
        let result = in_phase(phase.name(), || work(self));
        let now = self.comm.sent();
        self.sent.add(phase, replace(&mut self.before, now), now);
        let now = Instant::now();
        self.phase_s[phase as usize] += (now - replace(&mut self.phase_began, now)).as_secs_f64();
        result
    }

    /// Runs `exchange`, whose time counts as exchange.
    pub fn exchange<T>(&mut self, exchange: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = exchange();
        self.exchange_s += began.elapsed().as_secs_f64();
        result
    }

    /// Stops now.
    pub fn stop(self) -> Counted {
        let (seconds, wait_s) =
            (self.began.elapsed().as_secs_f64(), (self.comm.waited() - self.waited).as_secs_f64());
        let Self { exchange_s, phase_s, sent, .. } = self;
        Counted { exchange_s, wait_s, compute_s: seconds - exchange_s, phase_s, sent }
    }
}
