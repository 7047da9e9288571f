//! Scores logits against labels.

use gsplit_kernels::{Communicator, all_gather_v};
use gsplit_store::{Split, SplitScores};

use super::counts::ClassCounts;
use super::{Metric, roc_auc};
use crate::Result;
use crate::metric::labels::Labels;

/// Collects a metric over vertices; unlabelled ones are left out, and so are cells of several
/// classes that have no value.
pub struct Scorer<'a> {
    metric: Metric,
    labels: &'a Labels,
    seen: Seen,
    /// Decisions by class.
    counts: ClassCounts,
    /// Labelled vertices.
    vertices: u64,
}

/// Values collected for a metric.
enum Seen {
    /// Number of vertices classified correctly.
    Right(u64),
    /// Nothing besides the decisions by class.
    Classes,
    /// Score and label of each decision, by class.
    Scores(Vec<Vec<(f32, bool)>>),
    /// Sums over numbers.
    Errors(ErrorSums),
}

/// Sums over predicted numbers.
#[derive(Default)]
struct ErrorSums {
    /// Sum of squared errors.
    squared: f64,
    /// Sum of absolute errors.
    absolute: f64,
    /// Sum of the differences from the train split's mean, which lose less precision than the
    /// numbers themselves.
    differences: f64,
    /// Sum of the squares of these differences.
    squared_differences: f64,
}

impl ErrorSums {
    fn add(&mut self, predicted: f32, actual: f32, mean: f64) {
        let error = f64::from(predicted) - f64::from(actual);
        let difference = f64::from(actual) - mean;
        self.squared += error * error;
        self.absolute += error.abs();
        self.differences += difference;
        self.squared_differences += difference * difference;
    }

    /// The metric over `vertices` vertices; `None` for R² of numbers that are all the same.
    fn finish(&self, metric: Metric, vertices: f64) -> Option<f64> {
        match metric {
            Metric::Mae => Some(self.absolute / vertices),
            Metric::R2 => {
                let variation =
                    self.squared_differences - self.differences * self.differences / vertices;
                (variation > 1e-12 * self.squared_differences)
                    .then(|| 1.0 - self.squared / variation)
            }
            _ => Some((self.squared / vertices).sqrt()),
        }
    }
}

impl<'a> Scorer<'a> {
    /// Creates a scorer that has not seen any vertex.
    pub fn new(metric: Metric, labels: &'a Labels) -> Result<Self> {
        metric.check(labels)?;
        let seen = match (metric, labels) {
            (Metric::RocAuc, Labels::One { .. }) => Seen::Scores(vec![Vec::new()]),
            (Metric::RocAuc, Labels::Several(_)) => {
                Seen::Scores(vec![Vec::new(); labels.outputs()])
            }
            (Metric::MicroF1 | Metric::MacroF1, _) => Seen::Classes,
            (_, Labels::Number { .. }) => Seen::Errors(ErrorSums::default()),
            _ => Seen::Right(0),
        };
        Ok(Self { metric, labels, seen, counts: ClassCounts::new(labels.outputs()), vertices: 0 })
    }

    /// Counts the logits of `v`, one per class, or its number on the labels' scale. With one class
    /// per vertex the first of the largest logits is predicted; with several, every class whose
    /// logit is above 0.
    pub fn push(&mut self, v: u32, logits: &[f32]) {
        match self.labels {
            Labels::One { class, .. } => {
                let Some(actual) = class.get(v).and_then(|class| usize::try_from(class).ok())
                else {
                    return;
                };
                let predicted = largest(logits);
                self.counts.choose(predicted, actual);
                match &mut self.seen {
                    Seen::Right(right) => *right += u64::from(predicted == actual),
                    // The probability of the second class increases with this difference.
                    Seen::Scores(scores) => scores[0].push((logits[1] - logits[0], actual == 1)),
                    Seen::Classes | Seen::Errors(_) => {}
                }
            }
            Labels::Several(labels) => {
                if labels.num_known(v) == Some(0) {
                    return;
                }
                let mut all_right = true;
                for (class, (&logit, cell)) in logits.iter().zip(labels.cells(v)).enumerate() {
                    let Some(has) = cell else { continue };
                    self.counts.add(class, logit > 0.0, has);
                    all_right &= (logit > 0.0) == has;
                    if let Seen::Scores(scores) = &mut self.seen {
                        scores[class].push((logit, has));
                    }
                }
                if let Seen::Right(right) = &mut self.seen {
                    *right += u64::from(all_right);
                }
            }
            Labels::Number { number, scale } => {
                let Some(actual) = number.get(v).filter(|number| !number.is_nan()) else { return };
                if let Seen::Errors(sums) = &mut self.seen {
                    sums.add(scale.in_unit(logits[0]), actual, scale.mean);
                }
            }
        }
        self.vertices += 1;
    }

    /// Adds the counts of the other ranks of `comm`, which are of other vertices. Collective.
    pub fn reduce(&mut self, comm: &dyn Communicator) -> Result<()> {
        comm.all_reduce_sum_u64(std::slice::from_mut(&mut self.vertices))?;
        self.counts.reduce(comm)?;
        match &mut self.seen {
            Seen::Right(right) => comm.all_reduce_sum_u64(std::slice::from_mut(right))?,
            Seen::Classes => {}
            Seen::Errors(ErrorSums { squared, absolute, differences, squared_differences }) => {
                let mut sums = [*squared, *absolute, *differences, *squared_differences];
                comm.all_reduce_sum_f64(&mut sums)?;
                [*squared, *absolute, *differences, *squared_differences] = sums;
            }
            Seen::Scores(classes) => {
                for scores in classes {
                    let own: Vec<[f32; 2]> = scores
                        .iter()
                        .map(|&(score, positive)| [score, f32::from(u8::from(positive))])
                        .collect();
                    let all = all_gather_v(comm, &own)?.concat();
                    *scores =
                        all.into_iter().map(|[score, positive]| (score, positive > 0.0)).collect();
                }
            }
        }
        Ok(())
    }

    /// The scores of the classes in `split`; `None` if no vertex is labelled, or for numbers.
    pub fn classes(&self, split: Split) -> Option<SplitScores> {
        let has_classes = self.vertices > 0 && self.labels.scale().is_none();
        has_classes.then(|| self.counts.scores(split, !self.labels.several()))
    }

    /// The score; `None` if no vertex is labelled, for ROC-AUC if no class has both kinds of
    /// vertices, and for R² if all numbers are the same.
    pub fn finish(self) -> Option<f64> {
        if self.vertices == 0 {
            return None;
        }
        let single = !self.labels.several();
        match self.seen {
            Seen::Right(right) => Some(right as f64 / self.vertices as f64),
            Seen::Classes if self.metric == Metric::MacroF1 => Some(self.counts.macro_f1(single)),
            Seen::Classes => Some(self.counts.micro_f1()),
            Seen::Errors(sums) => sums.finish(self.metric, self.vertices as f64),
            Seen::Scores(mut classes) => {
                let areas: Vec<f64> =
                    classes.iter_mut().filter_map(|scores| roc_auc(scores)).collect();
                (!areas.is_empty()).then(|| areas.iter().sum::<f64>() / areas.len() as f64)
            }
        }
    }
}

/// Index of the first of the largest logits.
pub(crate) fn largest(logits: &[f32]) -> usize {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
    best.map_or(0, |(class, _)| class)
}
