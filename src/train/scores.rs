//! Lines with the scores of a training run: the baseline's, the best epoch's, and the scores of
//! each class.

use gsplit_store::{Baseline, ModelScores};
use gsplit_trainer::EpochReport;

/// Number of classes above which only the report has the table.
const MOST_CLASSES: usize = 10;

/// The baseline as a row above the epochs.
pub fn row(baseline: &Baseline) -> String {
    let score = |score: Option<f64>| score.map_or("-".to_string(), |score| format!("{score:.4}"));
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
    let names: Vec<String> = (0..split.classes.len()).map(name).collect();
    let head = format!("{}, epoch {}", split.split.name(), scores.epoch);
    let width =
        names.iter().chain([&head]).map(|name| name.chars().count()).max().unwrap_or_default();
    let mut lines = vec![format!("{head:<width$}  precision   recall       f1  support")];
    lines.extend(names.iter().zip(&split.classes).map(|(name, class)| {
        let [precision, recall, f1] = [class.precision, class.recall, class.f1];
        format!("{name:<width$}  {precision:>9.4} {recall:>8.4} {f1:>8.4} {:>8}", class.support)
    }));
    lines.push(format!("{:<width$}  {:>9} {:>8} {:>8.4}", "macro", "", "", split.macro_f1));
    lines
}
