//! Notes on a run that are said once: what its numbers tell and its user may not see.

use crate::job::Job;
use crate::metric::labels::Labels;
use crate::operator::gather_features;
use crate::report::EpochReport;
use crate::report::stopping::evaluations;

/// A first loss so many times that of a guess is absurd.
const ABSURD: f64 = 10.0;
/// Rows that are looked at for the largest values.
const ROWS_SEEN: usize = 4096;
/// Values above which features can be what made the first loss absurd.
const LARGE: f32 = 10.0;

/// Note before the first epoch, where scores will not choose one.
pub fn unchosen(job: &Job<'_>) -> Option<String> {
    let is_blind = job.config.eval_every > 0 && !job.has_valid();
    is_blind.then(|| "note: no valid split, by which an epoch would be the best: the model is that of the last".into())
}

/// Note after the first epoch `report`, if its loss is far above that of a guess.
pub fn absurd(job: &Job<'_>, report: &EpochReport) -> Option<String> {
    let guess = match job.task.labels()? {
        Labels::One { classes, .. } => (*classes as f64).ln(),
        Labels::Several(labels) => f64::from(labels.num_classes()) * std::f64::consts::LN_2,
        // The mean, of which the deviation is 1.
        Labels::Number { .. } => 1.0,
    };
    if guess == 0.0 || report.loss < ABSURD * guess {
        return None;
    }
    let largest = largest(job);
    let remedy = match largest.is_empty() {
        true => format!("lower --lr, now {}", job.config.optimizer.lr),
        false => {
            format!("features are not scaled (up to {}): convert with --scale standard", largest.join(", "))
        }
    };
    Some(format!("note: the loss of the first epoch is {:.4}, a guess has {guess:.4}: {remedy}", report.loss))
}

/// Note after the last epoch of `reports`, if the valid score was the highest there.
pub fn rising(reports: &[EpochReport]) -> Option<String> {
    let last = reports.last()?;
    let is_best = EpochReport::best(reports).is_some_and(|best| best.epoch == last.epoch);
    let way = if last.scores_are_errors { "its error still falling" } else { "its score still rising" };
    let more = 2 * last.epoch;
    (is_best && evaluations(reports).count() > 1)
        .then(|| format!("note: the last epoch was the best, {way}: train longer, --epochs {more}"))
}

/// The three columns with the largest values in the train split, of those that have large ones, with these.
fn largest(job: &Job<'_>) -> Vec<String> {
    let table = &job.features;
    let vertices: Vec<u32> = job.train.iter().copied().step_by(job.train.len().div_ceil(ROWS_SEEN)).collect();
    let mut rows = vec![0f32; vertices.len() * table.dim()];
    // Rows that cannot be read make no note.
    let _ = gather_features(table, &vertices, &mut rows);
    let mut most = vec![0f32; table.dim()];
    for row in rows.chunks_exact(table.dim().max(1)) {
        most.iter_mut().zip(row).for_each(|(most, value)| *most = most.max(value.abs()));
    }
    let names = job.dataset.manifest().recipe.as_ref().map(|recipe| recipe.feature_names());
    let names = names.filter(|names| names.len() == most.len());
    let mut columns: Vec<usize> = (0..most.len()).filter(|&column| most[column] > LARGE).collect();
    columns.sort_by(|&a, &b| most[b].total_cmp(&most[a]));
    let named = |&column: &usize| match &names {
        Some(names) => format!("{} {:.0}", names[column], most[column]),
        None => format!("column {column} {:.0}", most[column]),
    };
    columns.iter().take(3).map(named).collect()
}
