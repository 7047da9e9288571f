//! Notes on a run that are given once: conclusions from its numbers that users may miss.

use gsplit_store::{Split, diverged};

use crate::job::Job;
use crate::metric::labels::Labels;
use crate::report::EpochReport;
use crate::report::stopping::is_perfect;
use crate::{Error, Result};

/// A first loss of more than this many times the loss of a guess is absurd.
const ABSURD: f64 = 10.0;
/// Note before the first epoch if scores will not choose one.
pub fn unchosen(job: &Job<'_>) -> Option<String> {
    let is_blind = job.config.run.eval_every > 0 && !job.has_valid();
    is_blind.then(|| "note: no valid split, by which an epoch would be the best: the model is that of the last".into())
}

/// Notes on the splits `unscored` of `job`, whose metric has no value.
pub fn of_splits(job: &Job<'_>, unscored: &[(Split, String)]) -> Result<Vec<String>> {
    let config = job.config;
    if config.run.eval_every == 0 {
        return Ok(Vec::new());
    }
    let valid = unscored.iter().find(|(split, _)| *split == Split::Valid);
    if let (Some(user), Some((_, problem))) = (config.watches_valid(), valid) {
        let remedy = "leave it out, choose another --metric, or convert with another split";
        return Err(Error::Option(format!(
            "{user} needs a score of the valid split: {problem}: {remedy}"
        )));
    }
    let note = |(split, problem): &(Split, String)| match split {
        Split::Valid => {
            format!("{problem}: no epoch is the best, and the model is that of the last")
        }
        _ => problem.clone(),
    };
    Ok(unscored.iter().map(note).collect())
}

/// Note after the first epoch `report`, if its loss is far above that of a guess.
pub fn absurd(job: &Job<'_>, report: &EpochReport) -> Option<String> {
    let guess = guess(job)?;
    if report.loss < ABSURD * guess {
        return None;
    }
    let remedy = format!(
        "lower --lr, now {}, or scale features: convert with --schema scale=standard",
        job.config.run.optimizer.lr
    );
    Some(format!(
        "note: the loss of the first epoch is {:.4}, a guess has {guess:.4}: {remedy}",
        report.loss
    ))
}

/// The loss of a guess, above 0.
pub fn guess(job: &Job<'_>) -> Option<f64> {
    let guess = match job.task.labels()? {
        Labels::One { classes, .. } => (*classes as f64).ln(),
        Labels::Several(labels) => f64::from(labels.num_classes()) * std::f64::consts::LN_2,
        // Predicting the mean, with deviation 1.
        Labels::Number { .. } => 1.0,
    };
    Some(guess).filter(|guess| *guess > 0.0)
}

/// Note after the last epoch of `reports`, if the valid score was still rising and can rise
/// further. More epochs do not help a training that diverged, or whose loss never came near the
/// loss of a `guess`.
pub fn rising(reports: &[EpochReport], guess: Option<f64>) -> Option<String> {
    let (last, before) = reports.split_last()?;
    let merit = last.merit()?;
    let highest = before.iter().filter_map(EpochReport::merit).reduce(f64::max)?;
    let (is_higher, diverged) = (merit > highest, diverged(reports));
    let is_absurd = guess.is_some_and(|guess| last.loss >= ABSURD * guess);
    if !is_higher || is_perfect(last) || is_absurd || diverged.is_some() {
        return None;
    }
    let way =
        if last.scores_are_errors { "its error still falling" } else { "its score still rising" };
    Some(format!(
        "note: the last epoch was the best, {way}: train longer, --epochs {}",
        2 * last.epoch
    ))
}
