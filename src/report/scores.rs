//! Scores of training runs compared with the baseline, and class by class.

use gsplit_store::{Confused, ModelScores, SplitScores, notes};

use super::found::{Found, TrainingRun};
use super::page::Page;

/// Most classes of which the page shows the matrix; of more it shows the most confused pairs.
const MOST_IN_MATRIX: usize = 20;
/// Number of these pairs.
const PAIRS_SHOWN: usize = 20;

/// Adds the section.
pub fn show(page: &mut Page, found: &Found) {
    let scored: Vec<_> = found.runs.iter().filter_map(|run| Some((run, run.scores()?))).collect();
    if scored.is_empty() {
        let why = "no checkpoint with scores is here, which has metric, baseline and classes: gsplit train DATASET --checkpoint DIR";
        return page.leave_out("Scores", why);
    }
    page.section("Scores", |page| {
        baselines(page, &scored);
        for (run, scores) in &scored {
            notes(&run.epochs, Some(scores)).iter().for_each(|line| page.text(&format!("{}: {line}.", run.name)));
        }
        let silent = found.runs.iter().filter(|run| run.scores().is_none()).map(|run| run.name.as_str());
        let silent = silent.collect::<Vec<_>>().join(", ");
        if !silent.is_empty() {
            page.text(&format!(
                "Metric, baseline and classes of {silent} are not recorded: there is no checkpoint with scores."
            ));
        }
        for (run, scores) in &scored {
            let Some((last, others)) = scores.splits.split_last() else { continue };
            of_split(page, run, scores.epoch, last);
            page.fold(&format!("{}: which class was taken for which, and other splits", run.name), |page| {
                confusion(page, run, last);
                for split in others {
                    of_split(page, run, scores.epoch, split);
                    confusion(page, run, split);
                }
            });
        }
    });
}

/// Returns a score as a cell.
pub fn shown(score: Option<f64>) -> String {
    score.map_or_else(|| "-".into(), |score| format!("{score:.4}"))
}

/// Adds the scores of each run and of its baseline.
fn baselines(page: &mut Page, scored: &[(&TrainingRun, &ModelScores)]) {
    let row = |(run, scores): &(&TrainingRun, &ModelScores)| {
        let epoch = run.epochs.iter().find(|epoch| epoch.epoch == scores.epoch);
        let baseline = scores.baseline.as_ref();
        let class = baseline.and_then(|of| of.class).map(|class| format!(": {}", run.class(class as usize)));
        [
            run.name.clone(),
            scores.metric.clone(),
            scores.epoch.to_string(),
            shown(epoch.and_then(|epoch| epoch.valid)),
            shown(epoch.and_then(|epoch| epoch.test)),
            baseline.map_or("not recorded", |of| &of.name).to_string() + &class.unwrap_or_default(),
            shown(baseline.and_then(|of| of.valid)),
            shown(baseline.and_then(|of| of.test)),
        ]
    };
    let caption = "Scores beside a baseline, which reads no features: it predicts the same for every vertex, by the labels of the train \
                   split; of links it ranks targets by their popularity";
    let head = ["run", "metric", "epoch", "valid", "test", "baseline", "its valid", "its test"];
    page.table(caption, &head, &scored.iter().map(row).collect::<Vec<_>>());
}

/// Adds precision, recall and F1 of each class.
fn of_split(page: &mut Page, run: &TrainingRun, epoch: u32, split: &SplitScores) {
    let row = |(class, of): (usize, &gsplit_store::ClassScores)| {
        let [precision, recall, f1] = [of.precision, of.recall, of.f1].map(|score| shown(Some(score)));
        [run.class(class), precision, recall, f1, of.support.to_string(), of.predicted.to_string()]
    };
    let (name, run_name, macro_f1) = (split.split.name(), &run.name, split.macro_f1);
    page.table(
        &format!("{run_name}: the classes in the {name} split after epoch {epoch}; macro-F1 {macro_f1:.4}"),
        &["class", "precision", "recall", "F1", "vertices", "predicted so"],
        &split.classes.iter().enumerate().map(row).collect::<Vec<_>>(),
    );
}

/// Adds how often each class was taken for which.
fn confusion(page: &mut Page, run: &TrainingRun, split: &SplitScores) {
    let (name, run_name, classes) = (split.split.name(), &run.name, split.classes.len());
    if split.confused.is_empty() {
        return;
    } else if classes > MOST_IN_MATRIX {
        let row = |pair: &Confused| {
            [run.class(pair.actual as usize), run.class(pair.predicted as usize), pair.count.to_string()]
        };
        let rows: Vec<_> = split.confused.iter().take(PAIRS_SHOWN).map(row).collect();
        let title = format!("{run_name}: the classes most confused in the {name} split");
        return page.table(&title, &["class", "taken for", "vertices"], &rows);
    }
    let mut rows: Vec<Vec<String>> = vec![vec!["0".into(); classes + 1]; classes];
    for (class, of) in split.classes.iter().enumerate() {
        (rows[class][0], rows[class][class + 1]) = (run.class(class), of.right.to_string());
    }
    for pair in &split.confused {
        // A checkpoint is a file, which may have been edited.
        let row = rows.get_mut(pair.actual as usize);
        if let Some(cell) = row.and_then(|row| row.get_mut(pair.predicted as usize + 1)) {
            *cell = pair.count.to_string();
        }
    }
    let head: Vec<String> = ["class".into()].into_iter().chain((0..classes).map(|class| run.class(class))).collect();
    let title =
        format!("{run_name}: confusion in the {name} split, a row for each class, a column for each prediction");
    page.table(&title, &head, &rows);
}
