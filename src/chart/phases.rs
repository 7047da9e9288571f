//! Phases that charts divide the time of an epoch into.

use gsplit_store::Timings;

/// Parts of an epoch, from the bottom of a bar upwards.
pub const PHASES: [&str; 5] = ["sample", "load", "compute", "exchange", "wait"];

/// Seconds of each of [`PHASES`], of those that a run logs: waiting is a part of the exchange there, and drawn apart.
pub fn phases(t: &Timings) -> [f64; 5] {
    let wait = t.wait_s.min(t.exchange_s);
    [t.sample_s, t.load_s, t.compute_s, t.exchange_s - wait, wait]
}
