//! Lines with the scores of a training run: the baseline's, the best epoch's, and the scores of
//! each class.

use gsplit::describe::score;
use gsplit::ui::aligned;
use gsplit_store::{Baseline, ClassScores, ModelScores};
use gsplit_trainer::EpochReport;

/// Number of classes above which only the report has the table.
const MOST_CLASSES: usize = 10;

/// The baseline as a row above the epochs.
pub fn row(baseline: &Baseline) -> String {
    format!(
        "{:>14} {:>7} {:>7} {:>7}",
        baseline.name,
        "-",
        score(baseline.valid),
        score(baseline.test)
    )
}

/// The scores of the best epoch, compared with the baseline.
pub fn best(best: &EpochReport, baseline: Option<&Baseline>) -> String {
    let beside = |score: Option<f64>| match (baseline, score) {
        (Some(baseline), Some(score)) => format!(" ({} {score:.4})", baseline.name),
        _ => String::new(),
    };
    let [valid, test] =
        [beside(baseline.and_then(|of| of.valid)), beside(baseline.and_then(|of| of.test))];
    let test = best.test.map(|score| format!(", test {score:.4}{test}")).unwrap_or_default();
    format!("best: epoch {}, valid {:.4}{valid}{test}", best.epoch, best.valid.unwrap_or_default())
}

/// The classes of the last split, one line each, if there are few.
pub fn table(scores: &ModelScores, names: Option<&[String]>) -> Vec<String> {
    let Some(split) = scores.splits.last().filter(|split| split.classes.len() <= MOST_CLASSES)
    else {
        return Vec::new();
    };
    let name = |class: usize| {
        names.and_then(|names| names.get(class)).cloned().unwrap_or_else(|| class.to_string())
    };
    let row = |(class, of): (usize, &ClassScores)| {
        let [precision, recall, f1] = [of.precision, of.recall, of.f1].map(|of| score(Some(of)));
        vec![name(class), precision, recall, f1, of.support.to_string()]
    };
    let rows = split.classes.iter().enumerate().map(row);
    let all = ["macro", "", ""].map(String::from).into_iter().chain([score(Some(split.macro_f1))]);
    let head = format!("{} after epoch {}", split.split.name(), scores.epoch);
    aligned(&format!("{head}, precision, recall, f1, support"), rows.chain([all.collect()]))
}
