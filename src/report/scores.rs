//! Scores of training runs beside the baseline, and class by class.

use gsplit_store::{ModelScores, SplitScores};

use super::found::{Found, TrainingRun};
use super::page::Page;

/// Classes above which the most confused pairs stand for the matrix.
const MOST_IN_MATRIX: usize = 20;
/// Pairs that are shown then.
const PAIRS_SHOWN: usize = 20;

/// Adds the section.
pub fn show(page: &mut Page, found: &Found) {
    let scored: Vec<_> = found.runs.iter().filter_map(|run| Some((run, scores(run)?))).collect();
    if scored.is_empty() {
        let why = "no checkpoint with scores is here: gsplit train DATASET --checkpoint DIR";
        return page.leave_out("Scores of the classes", why);
    }
    page.section("Scores of the classes", |page| {
        baselines(page, &scored);
        for (run, scores) in &scored {
            for split in &scores.splits {
                of_split(page, run, scores.epoch, split);
            }
        }
    });
}

fn scores(run: &TrainingRun) -> Option<&ModelScores> {
    run.checkpoint.as_ref()?.scores.as_ref()
}

fn shown(score: Option<f64>) -> String {
    score.map_or_else(|| "-".into(), |score| format!("{score:.4}"))
}

/// The scores of each run beside those of the model that reads nothing.
fn baselines(page: &mut Page, scored: &[(&TrainingRun, &ModelScores)]) {
    let row = |(run, scores): &(&TrainingRun, &ModelScores)| {
        let epoch = run.epochs.iter().find(|epoch| epoch.epoch == scores.epoch);
        let baseline = scores.baseline.as_ref();
        let class =
            baseline.and_then(|baseline| baseline.class).map(|class| format!(": {}", named(run, class as usize)));
        vec![
            run.name.clone(),
            scores.metric.clone(),
            scores.epoch.to_string(),
            shown(epoch.and_then(|epoch| epoch.valid)),
            shown(epoch.and_then(|epoch| epoch.test)),
            baseline.map(|baseline| baseline.name.clone()).unwrap_or_default() + &class.unwrap_or_default(),
            shown(baseline.and_then(|baseline| baseline.valid)),
            shown(baseline.and_then(|baseline| baseline.test)),
        ]
    };
    page.table(
        "Scores beside a baseline, which predicts the same for every vertex",
        &["run", "metric", "epoch", "valid", "test", "baseline", "its valid", "its test"],
        &scored.iter().map(row).collect::<Vec<_>>(),
    );
}

/// The class as people know it.
fn named(run: &TrainingRun, class: usize) -> String {
    let names = run.checkpoint.as_ref().and_then(|checkpoint| checkpoint.class_names.as_ref());
    names.and_then(|names| names.get(class)).cloned().unwrap_or_else(|| class.to_string())
}

fn of_split(page: &mut Page, run: &TrainingRun, epoch: u32, split: &SplitScores) {
    let (name, run_name, classes) = (split.split.name(), &run.name, split.classes.len());
    let rows: Vec<_> = (0..classes)
        .map(|class| {
            let of = &split.classes[class];
            let scores = [of.precision, of.recall, of.f1].map(|score| format!("{score:.4}"));
            [&[named(run, class)][..], &scores, &[of.support.to_string(), of.predicted.to_string()]].concat()
        })
        .collect();
    page.table(
        &format!("{run_name}: the classes in the {name} split after epoch {epoch}; macro-F1 {:.4}", split.macro_f1),
        &["class", "precision", "recall", "F1", "vertices", "predicted"],
        &rows,
    );
    if split.confused.is_empty() {
        return;
    }
    if classes > MOST_IN_MATRIX {
        let row = |pair: &gsplit_store::Confused| {
            [named(run, pair.actual as usize), named(run, pair.predicted as usize), pair.count.to_string()]
        };
        let rows: Vec<_> = split.confused.iter().take(PAIRS_SHOWN).map(row).collect();
        let title = format!("{run_name}: the classes most confused in the {name} split");
        return page.table(&title, &["class", "taken for", "vertices"], &rows);
    }
    let count = |actual: usize, predicted: usize| {
        let pair =
            split.confused.iter().find(|pair| (pair.actual as usize, pair.predicted as usize) == (actual, predicted));
        if actual == predicted { split.classes[actual].right } else { pair.map_or(0, |pair| pair.count) }
    };
    let row = |actual: usize| -> Vec<String> {
        let counts = (0..classes).map(|predicted| count(actual, predicted).to_string());
        [named(run, actual)].into_iter().chain(counts).collect()
    };
    let head: Vec<String> =
        ["class".to_string()].into_iter().chain((0..classes).map(|class| named(run, class))).collect();
    let title =
        format!("{run_name}: confusion in the {name} split, a row for each class, a column for what was predicted");
    page.table(&title, &head, &(0..classes).map(row).collect::<Vec<_>>());
}
