//! Where the time of an epoch goes, as it is drawn.

/// Parts of an epoch, from the bottom of a bar upwards.
pub const PHASES: [&str; 5] = ["sample", "load", "compute", "exchange", "wait"];

/// Seconds of each of [`PHASES`], of those that a run logs: waiting is a part of the exchange there, and drawn apart.
pub fn phases([sample, load, compute, exchange, wait]: [f64; 5]) -> [f64; 5] {
    let wait = wait.min(exchange);
    [sample, load, compute, exchange - wait, wait]
}
