//! Baseline of a run: the score of the model that predicts the same for every vertex; of links, of the ranking by popularity.
//!
//! It predicts the most frequent class of the train split. Where a vertex can have several classes it says of each yes or no, the same
//! for every vertex, as the metric rewards: for micro-F1 yes for the k most frequent classes, by the k that is best on the train split;
//! for macro-F1 yes for every class that occurs there; else yes for those that more than half of its vertices have. ROC-AUC is then 0.5.
//!
//! Of numbers it predicts their mean over the train split.
//!
//! Cost: a look at each label of the three splits.

use std::cmp::Reverse;

use gsplit_store::{Baseline, Split};

use super::{links, splits};
use crate::Result;
use crate::job::Job;
use crate::metric::labels::Labels;
use crate::metric::{Metric, Scores};
use crate::ranks::comms::Comms;
use crate::run::setup::Run;
use crate::task::Task;

/// The baseline; notes where there is but one class to learn. On rank 0, `None` on others. Of a shard on all ranks; collective.
pub fn baseline(run: &Run<'_>, comms: &Comms) -> Result<Option<Baseline>> {
    let (job, all, group) = (run.job, comms.all(), comms.ranks().group);
    let sharded = job.dataset.shard().is_some();
    if !sharded && all.rank() > 0 {
        return Ok(None);
    }
    let labels = match &job.task {
        Task::Nodes(task) => &task.labels,
        // Popularity costs as much as a score.
        Task::Links(_) if job.config.eval_every == 0 => return Ok(None),
        Task::Links(split) => {
            return links::popularity(split, &job.whole, (&job.config.task, job.metric), job.options.stop).map(Some);
        }
    };
    let owners = job.frontiers.map().filter(|_| sharded);
    let is_own = |v: u32| owners.is_none_or(|owners| usize::from(owners[v as usize]) == group.rank());
    let mut counts = counts(job, labels, is_own);
    if sharded {
        group.all_reduce_sum_u64(&mut counts)?;
    }
    let (constant, logits) = constant(job.metric, labels, &counts);
    if let (Some(class), 1, 0) = (constant, counts.iter().filter(|count| **count > 0).count(), all.rank()) {
        let class = named(job, class);
        run.progress.note(&format!(
            "note: every labelled vertex of the train split has class {class}: nothing but that can be learnt"
        ));
    }
    let mut scores = Scores::new(job.metric, labels, splits(job))?;
    for v in scores.vertices().into_iter().filter(|v| is_own(*v)) {
        scores.push(v, &logits);
    }
    if sharded {
        scores.reduce(group)?;
    }
    let scores = scores.finish().scores;
    let of = |wanted: Split| scores.iter().find(|(split, _)| *split == wanted).and_then(|(_, score)| *score);
    let (valid, test) = (of(Split::Valid), of(Split::Test));
    let name = if labels.scale().is_some() { "mean" } else { "majority" };
    Ok(Some(Baseline { name: name.into(), class: constant, valid, test }))
}

/// The class as people know it.
fn named(job: &Job<'_>, class: u32) -> String {
    let names = job.dataset.manifest().class_names.as_ref();
    names.and_then(|names| names.get(class as usize)).cloned().unwrap_or_else(|| class.to_string())
}

/// The vertices of the train split that have each class, then all of them; those that `is_own`.
fn counts(job: &Job<'_>, labels: &Labels, is_own: impl Fn(u32) -> bool) -> Vec<u64> {
    let mut counts = vec![0; labels.outputs()];
    for &v in job.train.iter().filter(|v| is_own(**v)) {
        match labels {
            Labels::One { class, .. } => {
                let class = class.get(v).and_then(|class| usize::try_from(class).ok());
                class.into_iter().for_each(|class| counts[class] += 1);
            }
            Labels::Number { .. } => {}
            Labels::Several(labels) => labels.classes(v).for_each(|class| counts[class as usize] += 1),
        }
    }
    if labels.several() {
        counts.push(job.train.iter().filter(|v| is_own(**v)).count() as u64);
    }
    counts
}

/// The logits that the metric rewards most of those that are the same for all vertices, and the class that they choose.
fn constant(metric: Metric, labels: &Labels, counts: &[u64]) -> (Option<u32>, Vec<f32>) {
    if labels.scale().is_some() {
        // The mean, as the model tells it.
        return (None, vec![0.0]);
    }
    let classes = labels.outputs();
    let mut logits = vec![-1.0; classes];
    // The first of the most frequent.
    let mut by_count: Vec<usize> = (0..classes).collect();
    by_count.sort_by_key(|&class| Reverse(counts[class]));
    if !labels.several() {
        logits[by_count[0]] = 1.0;
        return (Some(by_count[0] as u32), logits);
    }
    let (vertices, all) = (counts[classes], counts[..classes].iter().sum::<u64>());
    let yes = match metric {
        Metric::MicroF1 => {
            let (mut right, mut best) = (0, (0.0, 0));
            for (i, &class) in by_count.iter().enumerate() {
                right += counts[class];
                let f1 = 2.0 * right as f64 / ((i as u64 + 1) * vertices + all).max(1) as f64;
                best = if f1 > best.0 { (f1, i + 1) } else { best };
            }
            best.1
        }
        Metric::MacroF1 => by_count.iter().filter(|&&class| counts[class] > 0).count(),
        _ => by_count.iter().filter(|&&class| 2 * counts[class] > vertices).count(),
    };
    by_count[..yes].iter().for_each(|&class| logits[class] = 1.0);
    (None, logits)
}
