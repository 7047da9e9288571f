//! Baseline of a run: the score of a model that predicts the same for every vertex; for links, of
//! ranking by popularity.
//!
//! It predicts the most frequent class of the train split. If a vertex can have several classes, it
//! says yes or no to each, the same for every vertex, whichever the metric rewards: for micro-F1
//! yes for the k most frequent classes, with the k that is best on the train split; for macro-F1
//! yes for every class that occurs there; otherwise yes for each class that more than half of its
//! vertices have. Vertices without a value for a class do not count. ROC-AUC is then 0.5. For
//! numbers it predicts their mean over the train split.
//!
//! Cost: one pass over the labels of the three splits.

use gsplit_store::{Baseline, Split};

use super::{links, splits};
use crate::Result;
use crate::job::Job;
use crate::metric::labels::{Labels, count_several};
use crate::metric::{Metric, Scores};
use crate::ranks::comms::Comms;
use crate::run::setup::Run;
use crate::task::Task;

/// Baseline of a run, `None` for links that are never scored; and the splits of vertices in which
/// the metric is undefined, with the reasons.
pub type Yardstick = (Option<Baseline>, Vec<(Split, String)>);

/// Computes the yardstick. Only rank 0 does; for a shard all, collectively.
pub fn yardstick(run: &Run<'_>, comms: &Comms) -> Result<Yardstick> {
    let (job, all, group) = (run.job, comms.all(), comms.ranks().group);
    let sharded = job.dataset.shard().is_some();
    if !sharded && all.rank() > 0 {
        return Ok(Yardstick::default());
    }
    let labels = match &job.task {
        Task::Nodes(task) => &task.labels,
        // Ranking by popularity costs as much as an evaluation.
        Task::Links(_) if job.config.run.eval_every == 0 => return Ok(Yardstick::default()),
        Task::Links(split) => {
            let found = links::popularity(
                split,
                &job.whole,
                &job.config.data.task,
                job.metric,
                job.hooks.stop,
            )?;
            return Ok((Some(found), Vec::new()));
        }
    };
    let owners = job.frontiers.map().filter(|_| sharded);
    let is_own =
        |v: u32| owners.is_none_or(|owners| usize::from(owners[v as usize]) == group.rank());
    let mut counts = counts(job, labels, is_own);
    if sharded {
        group.all_reduce_sum_u64(&mut counts)?;
    }
    let (constant, logits) = constant(job.metric, labels, &counts);
    let mut scores = Scores::new(job.metric, labels, splits(job))?;
    for v in scores.vertices().into_iter().filter(|v| is_own(*v)) {
        scores.push(v, &logits);
    }
    if sharded {
        scores.reduce(group)?;
    }
    let found = scores.finish();
    let of = |wanted: Split| {
        found.scores.iter().find(|(split, _)| *split == wanted).and_then(|(_, score)| *score)
    };
    let (valid, test) = (of(Split::Valid), of(Split::Test));
    let name = if labels.scale().is_some() { "mean" } else { "majority" };
    let baseline = Some(Baseline { name: name.into(), class: constant, valid, test });
    // Whether the metric is defined depends on the labels, not on the predictions.
    let there = splits(job).filter(|(_, vertices)| !vertices.is_empty()).map(|(split, _)| split);
    let problem = |split| found.problem(split, job.metric);
    let unscored = there.filter_map(|split| Some((split, problem(split)?))).collect();
    Ok((baseline, unscored))
}

/// Number of vertices of the train split that have each class, and, if they can have several, then
/// number of vertices with a value for each; counts only vertices that `is_own`.
fn counts(job: &Job<'_>, labels: &Labels, is_own: impl Fn(u32) -> bool) -> Vec<u64> {
    let own = job.train.iter().copied().filter(|v| is_own(*v));
    match labels {
        Labels::One { class, classes } => {
            let mut counts = vec![0; *classes];
            own.filter_map(|v| usize::try_from(class.get(v)?).ok())
                .for_each(|class| counts[class] += 1);
            counts
        }
        Labels::Number { .. } => vec![0],
        Labels::Several(labels) => count_several(labels, own),
    }
}

/// The logits, equal for all vertices, that the metric rewards most, and the class that they
/// choose.
fn constant(metric: Metric, labels: &Labels, counts: &[u64]) -> (Option<u32>, Vec<f32>) {
    if labels.scale().is_some() {
        // The mean, on the model's scale.
        return (None, vec![0.0]);
    }
    let classes = labels.outputs();
    let mut logits = vec![-1.0; classes];
    let (with, known) = counts.split_at(classes);
    // Number of vertices with a value for the class; exclusive classes are compared by count.
    let known = |class: usize| known.get(class).map_or(1, |&known| known.max(1));
    // Most frequent class first; of equal ones, the lowest.
    let mut by_share: Vec<usize> = (0..classes).collect();
    let product = |a: usize, b: usize| u128::from(with[a]) * u128::from(known(b));
    by_share.sort_by(|&a, &b| product(b, a).cmp(&product(a, b)));
    if !labels.several() {
        logits[by_share[0]] = 1.0;
        return (Some(by_share[0] as u32), logits);
    }
    let all = with.iter().sum::<u64>();
    let yes = match metric {
        Metric::MicroF1 => {
            let (mut right, mut predicted, mut best) = (0, 0, (0.0, 0));
            for (i, &class) in by_share.iter().enumerate() {
                (right, predicted) = (right + with[class], predicted + known(class));
                let f1 = 2.0 * right as f64 / (predicted + all).max(1) as f64;
                best = if f1 > best.0 { (f1, i + 1) } else { best };
            }
            best.1
        }
        Metric::MacroF1 => by_share.iter().filter(|&&class| with[class] > 0).count(),
        _ => by_share.iter().filter(|&&class| 2 * with[class] > known(class)).count(),
    };
    by_share[..yes].iter().for_each(|&class| logits[class] = 1.0);
    (None, logits)
}
