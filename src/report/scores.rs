//! Scores of training runs compared with the baseline, and class by class.

use gsplit_store::{Confused, EpochReport, SplitScores, notes};

use super::found::TrainingRun;
use super::page::Page;
use crate::describe::score;

/// Number of pairs of classes shown, the most confused ones.
const PAIRS_SHOWN: usize = 20;

/// Adds the section.
pub fn show(page: &mut Page, runs: &[TrainingRun]) {
    page.section("Scores", |page| {
        summary(page, runs);
        for run in runs {
            let notes = notes(&run.history, run.scores.as_ref());
            notes.iter().for_each(|line| page.text(&format!("{}: {line}.", run.name)));
        }
        for run in runs {
            let Some(scores) = &run.scores else { continue };
            let Some((last, others)) = scores.splits.split_last() else { continue };
            of_split(page, run, scores.epoch, last);
            page.fold(
                &format!("{}: which class was taken for which, and other splits", run.name),
                |page| {
                    confusion(page, run, last);
                    for split in others {
                        of_split(page, run, scores.epoch, split);
                        confusion(page, run, split);
                    }
                },
            );
        }
    });
}

/// Adds the loss and the scores of each run, and the scores of its baseline.
fn summary(page: &mut Page, runs: &[TrainingRun]) {
    let row = |run: &TrainingRun| {
        let best = match &run.scores {
            Some(scores) => run.history.iter().find(|epoch| epoch.epoch == scores.epoch),
            None => EpochReport::best(&run.history),
        };
        let baseline = run.scores.as_ref().and_then(|scores| scores.baseline.as_ref());
        let class = baseline
            .and_then(|of| of.class)
            .map(|class| format!(": {}", run.class(class as usize)));
        [
            run.name.clone(),
            run.history.len().to_string(),
            run.history.last().map(|last| format!("{:.5}", last.loss)).unwrap_or_default(),
            run.scores.as_ref().map_or_else(|| "-".into(), |scores| scores.metric.clone()),
            best.map_or_else(|| "-".into(), |best| best.epoch.to_string()),
            score(best.and_then(|best| best.valid)),
            score(best.and_then(|best| best.test)),
            baseline.map_or("-", |of| &of.name).to_string() + &class.unwrap_or_default(),
            score(baseline.and_then(|of| of.valid)),
            score(baseline.and_then(|of| of.test)),
        ]
    };
    let caption = "Scores of the best epoch beside a baseline, which reads no features: it predicts the same for every vertex, by the \
                   labels of the train split; of links it ranks targets by their popularity";
    let head =
        "run, epochs, last loss, metric, best epoch, valid, test, baseline, its valid, its test";
    let head: Vec<&str> = head.split(", ").collect();
    page.table(caption, &head, &runs.iter().map(row).collect::<Vec<_>>());
}

/// Adds precision, recall and F1 of each class.
fn of_split(page: &mut Page, run: &TrainingRun, epoch: u32, split: &SplitScores) {
    let row = |(class, of): (usize, &gsplit_store::ClassScores)| {
        let [precision, recall, f1] = [of.precision, of.recall, of.f1].map(|of| score(Some(of)));
        [run.class(class), precision, recall, f1, of.support.to_string(), of.predicted.to_string()]
    };
    let (name, run_name, macro_f1) = (split.split.name(), &run.name, split.macro_f1);
    page.table(
        &format!(
            "{run_name}: the classes in the {name} split after epoch {epoch}; macro-F1 \
                  {macro_f1:.4}"
        ),
        &["class", "precision", "recall", "F1", "vertices", "predicted so"],
        &split.classes.iter().enumerate().map(row).collect::<Vec<_>>(),
    );
}

/// Adds the pairs of classes of which one was most often taken for the other.
fn confusion(page: &mut Page, run: &TrainingRun, split: &SplitScores) {
    let row = |pair: &Confused| {
        [
            run.class(pair.actual as usize),
            run.class(pair.predicted as usize),
            pair.count.to_string(),
        ]
    };
    let rows: Vec<_> = split.confused.iter().take(PAIRS_SHOWN).map(row).collect();
    let title =
        format!("{}: the classes most confused in the {} split", run.name, split.split.name());
    if !rows.is_empty() {
        page.table(&title, &["class", "taken for", "vertices"], &rows);
    }
}
