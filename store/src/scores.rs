//! Scores of a trained model compared with a baseline, and class by class: part of a checkpoint,
//! shown by `gsplit report`.

use serde::{Deserialize, Serialize};

use crate::{EpochReport, Split};

/// A loss has diverged if it is this many times the lowest loss before it.
const DIVERGED: f64 = 1000.0;

/// Scores of the model that predicts the same for every vertex, without reading a feature or an
/// edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Its name, e.g. `majority`.
    pub name: String,
    /// Class that it predicts, where vertices have one each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<u32>,
    /// Score of the valid split.
    pub valid: Option<f64>,
    /// Score of the test split.
    pub test: Option<f64>,
}

/// Scores of one epoch's model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelScores {
    /// The best epoch on the valid split; without a valid split the last that was evaluated.
    pub epoch: u32,
    /// Name of the metric of `baseline`.
    pub metric: String,
    /// The baseline, where there is one.
    pub baseline: Option<Baseline>,
    /// The splits class by class, where classes are learnt.
    pub splits: Vec<SplitScores>,
    /// Notes on the splits in which the metric has no value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl ModelScores {
    /// Note that the scores of this epoch of `history` are not above the baseline's, if any is not.
    pub fn below_baseline<S>(&self, history: &[EpochReport<S>]) -> Option<String> {
        let (baseline, epoch) =
            (self.baseline.as_ref()?, history.iter().find(|report| report.epoch == self.epoch)?);
        let sign = if epoch.scores_are_errors { -1.0 } else { 1.0 };
        let splits = [("valid", epoch.valid, baseline.valid), ("test", epoch.test, baseline.test)];
        let worse = splits.into_iter().filter_map(|(split, score, of_baseline)| {
            let (score, of_baseline) = (score?, of_baseline?);
            // A score that is not a number is not above the baseline's.
            let is_above = sign * score > sign * of_baseline;
            (!is_above).then(|| format!("{split} {score:.4} ({} {of_baseline:.4})", baseline.name))
        });
        let worse = worse.collect::<Vec<_>>().join(", ");
        let remedy = "try another --lr or other features";
        (!worse.is_empty()).then(|| {
            format!(
                "the model of epoch {} is no better than the baseline: {worse}: {remedy}",
                self.epoch
            )
        })
    }
}

/// Note on the first epoch of `history` whose loss is above the first epoch's and a thousand times
/// the lowest before it.
pub fn diverged<S>(history: &[EpochReport<S>]) -> Option<String> {
    let mut lowest = history.first()?;
    for report in history {
        // Any loss is many times a loss that is nearly 0.
        if report.loss > history[0].loss && report.loss > DIVERGED * lowest.loss.max(1e-6) {
            let rate = report.learning_rate;
            return Some(format!(
                "the loss rose from {:.4} in epoch {} to {:.4} in epoch {}: the training has \
                 diverged: pass a lower --lr (it is {rate})",
                lowest.loss, lowest.epoch, report.loss, report.epoch
            ));
        }
        lowest = if report.loss < lowest.loss { report } else { lowest };
    }
    None
}

/// Notes on a training with these epochs and scores.
pub fn notes<S>(history: &[EpochReport<S>], scores: Option<&ModelScores>) -> Vec<String> {
    let of_splits = scores.into_iter().flat_map(|scores| scores.notes.iter().cloned());
    let below = scores.and_then(|scores| scores.below_baseline(history));
    of_splits.chain(diverged(history)).chain(below).collect()
}

/// Scores of a split class by class, as scikit-learn counts them; unlabelled vertices are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SplitScores {
    /// The split.
    pub split: Split,
    /// Mean of the classes' F1. Where vertices have one class each, classes that are neither
    /// predicted nor actual are left out; otherwise classes for which no vertex has a value.
    pub macro_f1: f64,
    /// Scores by class.
    pub classes: Vec<ClassScores>,
    /// Wrong predictions by pair of classes, the most frequent first; empty if a vertex can have
    /// several classes. With more than 20 classes, only the most frequent pairs.
    pub confused: Vec<Confused>,
}

/// Scores of one class.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassScores {
    /// Share of the vertices predicted to have the class that have it; 0 if none is predicted.
    pub precision: f64,
    /// Share of the vertices that have the class for which it is predicted; 0 if none has it.
    pub recall: f64,
    /// Their harmonic mean.
    pub f1: f64,
    /// Vertices that have the class.
    pub support: u64,
    /// Vertices for which it is predicted.
    pub predicted: u64,
    /// Vertices for which it is predicted and that have it.
    pub right: u64,
}

/// Number of vertices of one class that were predicted to have another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confused {
    /// Class that they have.
    pub actual: u32,
    /// Class that was predicted.
    pub predicted: u32,
    /// Number of vertices.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    type Report = EpochReport<()>;

    fn history(losses: &[f64]) -> Vec<Report> {
        (1..)
            .zip(losses)
            .map(|(epoch, &loss)| Report { epoch, loss, ..Report::default() })
            .collect()
    }

    #[test]
    fn of_equal_scores_the_lowest_loss_is_the_best() {
        let best = |epochs: &[(Option<f64>, Option<f64>)], scores_are_errors| {
            let reports = (1..).zip(epochs).map(|(epoch, &(valid, valid_loss))| Report {
                epoch,
                valid,
                valid_loss,
                scores_are_errors,
                ..Report::default()
            });
            Report::best(&reports.collect::<Vec<_>>()).map(|best| best.epoch)
        };
        let nan = Some(f64::NAN);
        assert_eq!(
            best(&[(Some(1.0), Some(0.3)), (Some(1.0), Some(0.1)), (Some(1.0), Some(0.1))], false),
            Some(2)
        );
        assert_eq!(
            best(&[(Some(0.9), Some(0.1)), (Some(1.0), Some(0.3)), (None, None)], false),
            Some(2)
        );
        assert_eq!(
            best(&[(Some(2.0), Some(0.1)), (Some(1.0), Some(0.3)), (Some(1.0), Some(0.2))], true),
            Some(3)
        );
        assert_eq!(best(&[(Some(1.0), None), (Some(1.0), None)], false), Some(1));
        assert_eq!(
            best(&[(Some(1.0), None), (Some(1.0), Some(5.0)), (Some(1.0), nan)], false),
            Some(2)
        );
        assert_eq!(best(&[(nan, None), (Some(0.1), None), (nan, None)], false), Some(2));
        assert_eq!(best(&[(nan, None), (None, Some(1.0))], false), None);
    }

    #[test]
    fn a_loss_that_grows_a_thousandfold_has_diverged() {
        let line = diverged(&history(&[0.9917, 94_588_411_904.0, 2_085_123_840.0])).unwrap();
        assert!(
            line.starts_with("the loss rose from 0.9917 in epoch 1 to 94588411904.0000 in epoch 2"),
            "{line}"
        );
        assert!(line.contains("diverged: pass a lower --lr"), "{line}");
        assert!(
            diverged(&history(&[2.0, 0.5, 3000.0])).unwrap().contains("from 0.5000 in epoch 2")
        );
        for fine in
            [&[1.0, 0.9, 2.0][..], &[1.0, 999.0], &[1.0, 1e-9, 1e-3], &[0.0, 0.0, 5e-4], &[]]
        {
            assert_eq!(diverged(&history(fine)), None, "{fine:?}");
        }
    }

    #[test]
    fn scores_that_are_not_above_the_baseline_are_named() {
        let below = |score: f64, baseline: f64, scores_are_errors| {
            let baseline = Baseline {
                name: "majority".into(),
                class: None,
                valid: Some(baseline),
                test: None,
            };
            let scores = ModelScores {
                epoch: 1,
                metric: "accuracy".into(),
                baseline: Some(baseline),
                splits: Vec::new(),
                notes: vec!["first".into()],
            };
            let report = Report {
                epoch: 1,
                valid: Some(score),
                test: Some(0.0),
                scores_are_errors,
                ..Report::default()
            };
            notes(&[report], Some(&scores)).join("; ")
        };
        let line = below(0.0569, 0.3158, false);
        assert!(
            line.starts_with(
                "first; the model of epoch 1 is no better than the baseline: valid 0.0569 \
                 (majority 0.3158):"
            ),
            "{line}"
        );
        assert!(
            below(0.5, 0.5, false).contains("valid 0.5000")
                && below(f64::NAN, 0.5, true).contains("valid NaN")
        );
        assert!(below(2.0, 1.0, true).contains("valid 2.0000 (majority 1.0000)"));
        assert_eq!(
            (below(0.6, 0.5, false), below(0.5, 1.0, true)),
            ("first".to_string(), "first".to_string())
        );
    }
}
