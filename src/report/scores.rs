//! Scores of training runs beside the baseline, and class by class.

use gsplit::describe::describe_features;
use gsplit_store::{Dataset, ModelScores, SplitScores, notes};

use super::found::{Found, TrainingRun};
use super::page::Page;

/// Classes above which the most confused pairs stand for the matrix.
const MOST_IN_MATRIX: usize = 20;
/// Pairs that are shown then.
const PAIRS_SHOWN: usize = 20;

/// Adds the section.
pub fn show(page: &mut Page, dataset: Option<&Dataset>, found: &Found) {
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
                "Not recorded, for want of a checkpoint with scores: metric, baseline and classes of {silent}."
            ));
        }
        page.facts(&scored.iter().map(|(run, _)| features(run, dataset)).collect::<Vec<_>>());
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

fn shown(score: Option<f64>) -> String {
    score.map_or_else(|| "-".into(), |score| format!("{score:.4}"))
}

/// The scores of each run beside those of the model that reads nothing.
fn baselines(page: &mut Page, scored: &[(&TrainingRun, &ModelScores)]) {
    let row = |(run, scores): &(&TrainingRun, &ModelScores)| {
        let epoch = run.epochs.iter().find(|epoch| epoch.epoch == scores.epoch);
        let baseline = scores.baseline.as_ref();
        let class =
            baseline.and_then(|baseline| baseline.class).map(|class| format!(": {}", run.class(class as usize)));
        vec![
            run.name.clone(),
            scores.metric.clone(),
            scores.epoch.to_string(),
            shown(epoch.and_then(|epoch| epoch.valid)),
            shown(epoch.and_then(|epoch| epoch.test)),
            baseline.map_or("not recorded", |baseline| &baseline.name).to_string() + &class.unwrap_or_default(),
            shown(baseline.and_then(|baseline| baseline.valid)),
            shown(baseline.and_then(|baseline| baseline.test)),
        ]
    };
    let is_link = |(_, scores): &(&TrainingRun, &ModelScores)| {
        scores.baseline.as_ref().is_some_and(|baseline| baseline.name == "popularity")
    };
    let caption = match scored.iter().any(is_link) {
        true => "Scores beside a baseline, which ranks targets by their popularity",
        false => "Scores beside a baseline, which predicts the same for every vertex, by the labels of the train split",
    };
    page.table(
        caption,
        &["run", "metric", "epoch", "valid", "test", "baseline", "its valid", "its test"],
        &scored.iter().map(row).collect::<Vec<_>>(),
    );
}

/// The features that `run` learnt from: by its own columns, else as `dataset` names them if that is its own.
fn features(run: &TrainingRun, dataset: Option<&Dataset>) -> (String, String) {
    let name = format!("features of {}", run.name);
    let Some(checkpoint) = &run.checkpoint else { return (name, "not recorded".into()) };
    let width = checkpoint.inputs.shape.features;
    let own = dataset.filter(|dataset| dataset.topology_checksum() == checkpoint.made_from.topology);
    let fact = match (&checkpoint.recipe, own.and_then(|dataset| dataset.manifest().features.as_ref())) {
        (Some(recipe), _) => {
            let columns: Vec<&str> = recipe.features.iter().map(|feature| feature.column.as_str()).collect();
            let left_out = recipe.left_out.iter().map(|out| format!("{} ({})", out.column, out.why));
            let left_out = left_out.collect::<Vec<_>>().join(", ");
            let without = if left_out.is_empty() { String::new() } else { format!("; without {left_out}") };
            format!("{width} values a vertex, from the columns {}{without}", columns.join(", "))
        }
        (None, Some(features)) if usize::try_from(features.dim) == Ok(width) => describe_features(features),
        _ => format!("{width} values a vertex, of which the checkpoint records no names"),
    };
    (name, fact)
}

fn of_split(page: &mut Page, run: &TrainingRun, epoch: u32, split: &SplitScores) {
    let (name, run_name, classes) = (split.split.name(), &run.name, split.classes.len());
    let rows: Vec<_> = (0..classes)
        .map(|class| {
            let of = &split.classes[class];
            let scores = [of.precision, of.recall, of.f1].map(|score| format!("{score:.4}"));
            [&[run.class(class)][..], &scores, &[of.support.to_string(), of.predicted.to_string()]].concat()
        })
        .collect();
    page.table(
        &format!("{run_name}: the classes in the {name} split after epoch {epoch}; macro-F1 {:.4}", split.macro_f1),
        &["class", "precision", "recall", "F1", "vertices", "predicted so"],
        &rows,
    );
}

/// How often each class was taken for which.
fn confusion(page: &mut Page, run: &TrainingRun, split: &SplitScores) {
    if split.confused.is_empty() {
        return;
    }
    let (name, run_name, classes) = (split.split.name(), &run.name, split.classes.len());
    if classes > MOST_IN_MATRIX {
        let row = |pair: &gsplit_store::Confused| {
            [run.class(pair.actual as usize), run.class(pair.predicted as usize), pair.count.to_string()]
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
        [run.class(actual)].into_iter().chain(counts).collect()
    };
    let head: Vec<String> =
        ["class".to_string()].into_iter().chain((0..classes).map(|class| run.class(class))).collect();
    let title =
        format!("{run_name}: confusion in the {name} split, a row for each class, a column for what was predicted");
    page.table(&title, &head, &(0..classes).map(row).collect::<Vec<_>>());
}
