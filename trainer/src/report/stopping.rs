//! Conclusions from the epochs so far: whether to stop, and the time left.
//!
//! Both are functions of the epochs' reports, which every checkpoint holds: a resumed run decides
//! like an uninterrupted one.

use crate::report::EpochReport;

/// The valid metric of every evaluation, an error negated, so that more is better.
pub fn evaluations(history: &[EpochReport]) -> impl Iterator<Item = f64> {
    history.iter().filter_map(EpochReport::merit)
}

/// True if no score can be better than the score of `report`, as printed.
pub fn is_perfect(report: &EpochReport) -> bool {
    let perfect = if report.scores_are_errors { 0.0 } else { 1.0 };
    report.merit().is_some_and(|merit| merit > perfect - 5e-5)
}

/// True if, at the end of `history` or anywhere in it, `patience` evaluations in a row were not
/// better than the best before. After a perfect metric nothing counts as better: the loss of a
/// model without mistakes may fall for ever.
pub fn is_exhausted(history: &[EpochReport], patience: u32) -> bool {
    let none = EpochReport::default();
    let (mut best, mut others) = (&none, 0);
    for report in history {
        let Some(merit) = report.merit() else { continue };
        let is_better = match best.merit() {
            Some(of_best) if is_perfect(best) => merit > of_best,
            _ => report.is_better(best),
        };
        if is_better {
            (best, others) = (report, 0);
        } else {
            others += 1;
        }
        if others >= patience {
            return true;
        }
    }
    false
}

/// Time that `left` more epochs would take at the pace of the epochs `done`, for humans.
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
