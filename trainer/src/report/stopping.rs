//! Conclusions from the epochs so far: which was best by the valid metric, whether to stop, how long the rest takes.
//!
//! Both are functions of the epochs' reports, which every checkpoint holds: a resumed run decides as one that was never
//! interrupted.

use crate::report::EpochReport;

/// The valid metric of every evaluation, with its epoch.
pub fn evaluations(history: &[EpochReport]) -> impl Iterator<Item = (u32, f64)> {
    history.iter().filter_map(|report| Some((report.epoch, report.valid?)))
}

/// The epoch with the highest valid metric, the first of several; `None` when nothing was evaluated.
pub fn best_epoch(history: &[EpochReport]) -> Option<u32> {
    let better = |best: (u32, f64), other: (u32, f64)| if other.1 > best.1 { other } else { best };
    evaluations(history).reduce(better).map(|(epoch, _)| epoch)
}

/// Whether `patience` evaluations in a row have passed without the metric rising by more than `min_delta` above the best
/// before, at the end of `history` or anywhere in it.
pub fn is_exhausted(history: &[EpochReport], patience: u32, min_delta: f64) -> bool {
    let (mut best, mut others) = (f64::NEG_INFINITY, 0);
    for (_, metric) in evaluations(history) {
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
