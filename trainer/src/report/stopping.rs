//! Conclusions from the epochs so far: whether to stop, how long the rest takes.
//!
//! Both are functions of the epochs' reports, which every checkpoint holds: a resumed run decides as one that was never
//! interrupted.

use crate::report::EpochReport;

/// The valid metric of every evaluation, an error negated, so that more is better.
pub fn evaluations(history: &[EpochReport]) -> impl Iterator<Item = f64> {
    history.iter().filter_map(EpochReport::merit)
}

/// Whether `patience` evaluations in a row have passed without the metric being better than the best before by more than
/// `min_delta`, at the end of `history` or anywhere in it.
pub fn is_exhausted(history: &[EpochReport], patience: u32, min_delta: f64) -> bool {
    let (mut best, mut others) = (f64::NEG_INFINITY, 0);
    for metric in evaluations(history) {
        if metric > best + min_delta {
            (best, others) = (metric, 0);
        } else {
            others += 1;
        }
        if others >= patience {
            return true;
        }
    }
    false
}

/// How long `left` more epochs would take at the pace of those `done`, for people.
pub fn to_go(done: &[EpochReport], left: u32) -> String {
    if done.is_empty() {
        return String::new();
    }
    let spent: f64 = done.iter().map(|report| report.seconds + report.evaluate_s).sum();
    let left = (spent / done.len() as f64 * f64::from(left)) as u64;
    match (left / 3600, left / 60 % 60, left % 60) {
        (0, 0, seconds) => format!(", {seconds} s to go"),
        (0, minutes, seconds) => format!(", {minutes}:{seconds:02} min to go"),
        (hours, minutes, _) => format!(", {hours}:{minutes:02} h to go"),
    }
}
