//! Options of the task: training targets, losses and metrics.

use std::fmt;
use std::str::FromStr;

use gsplit_sample::links::HeldOut;
use gsplit_store::{Dataset, Progress, text_in_files};
use serde::{Deserialize, Serialize};

use super::Config;
use crate::metric::Metric;
use crate::{Error, Result};

/// Task to learn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum TaskKind {
    /// The classes of vertices: one per vertex, or any number per vertex, as in the dataset's
    /// labels
    #[default]
    Node,
    /// Whether a pair of vertices is an edge; needs neither labels nor splits
    Link,
    /// The numbers of vertices; in training, standardised by mean and standard deviation of the
    /// train split
    Regression,
}

/// Loss of a regression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum NumberLoss {
    /// Squared error
    #[default]
    Mse,
    /// Absolute error, which gives outliers less weight
    Mae,
}

/// Weights of classes in the loss.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassWeights {
    /// Computed from the labels of the train split.
    Balanced,
    /// One weight per class, in the order of the classes.
    Each(Vec<f32>),
}

impl FromStr for ClassWeights {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "balanced" {
            return Ok(Self::Balanced);
        }
        let number = |word: &str| {
            word.trim().parse().ok().filter(|weight: &f32| *weight >= 0.0 && weight.is_finite())
        };
        match text.split(',').map(number).collect::<Option<Vec<f32>>>() {
            Some(weights) if weights.iter().any(|&weight| weight > 0.0) => Ok(Self::Each(weights)),
            _ => Err("expected balanced, or a number from 0 for each class, e.g. 1,2.5, not all of them 0".into()),
        }
    }
}

impl fmt::Display for ClassWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Balanced => f.write_str("balanced"),
            Self::Each(weights) => {
                f.write_str(&weights.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
            }
        }
    }
}

text_in_files!(ClassWeights);

/// Function that scores a pair of vertices from their rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum ScorerKind {
    /// Their dot product
    #[default]
    Dot,
    /// A trained perceptron with a hidden layer of --hidden over their elementwise product
    Mlp,
}

/// Options of the task: training targets, losses and metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct TaskConfig {
    /// Task to learn; with link a mini-batch is --batch-size edges, and the model's rows have
    /// --hidden values [default: regression if the labels are numbers, else node]
    #[cfg_attr(feature = "cli", arg(id = "task", long, value_name = "KIND", value_enum))]
    pub kind: Option<TaskKind>,
    /// Score of the valid and test splits: accuracy, micro-f1, macro-f1 or roc-auc; mrr or hits@K
    /// with --task link, and roc-auc if the dataset has pairs that are not links; rmse, mae or r2
    /// with --task regression [default: roc-auc for two classes, micro-f1 where a vertex can have
    /// several, else accuracy; for links the metric of the dataset's own split, else mrr; for
    /// numbers rmse]
    #[cfg_attr(feature = "cli", arg(long))]
    pub metric: Option<Metric>,
    /// With --task regression, the loss of a number, in standard deviations [default: mse]
    #[cfg_attr(feature = "cli", arg(long, value_name = "KIND", value_enum))]
    pub loss: Option<NumberLoss>,
    /// Weights of the classes in the loss, which is then a weighted mean: one number per class in
    /// their order, or balanced, which makes rare classes weigh as much as frequent ones, by the
    /// train split: vertices / (classes * vertices of the class). Where a vertex can have several
    /// classes, balanced weights the classes that it has: vertices without / with the class
    #[cfg_attr(feature = "cli", arg(long, value_name = "balanced|W,..."))]
    pub class_weights: Option<ClassWeights>,
    /// Relation whose edges are learnt, with --task link and several types of vertices: its name,
    /// or SOURCE/NAME/TARGET
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub relation: Option<String>,
    /// Function that scores a pair of vertices, with --task link
    #[cfg_attr(feature = "cli", arg(long, value_name = "KIND", value_enum, default_value_t))]
    pub scorer: ScorerKind,
    /// Negative pairs drawn for each edge of a mini-batch, with --task link
    #[cfg_attr(feature = "cli", arg(long, value_name = "K", default_value_t = Self::default().negatives))]
    pub negatives: usize,
    /// Share of the edges held out for scores while training, with --task link; this and the next
    /// three options are for datasets without their own split of links
    #[cfg_attr(feature = "cli", arg(long, value_name = "SHARE", default_value_t = Self::default().valid_edges))]
    pub valid_edges: f64,
    /// Share of the edges held out for the final score, with --task link
    #[cfg_attr(feature = "cli", arg(long, value_name = "SHARE", default_value_t = Self::default().test_edges))]
    pub test_edges: f64,
    /// Seed of the choice of held-out edges, and of the pairs that they are ranked among
    #[cfg_attr(feature = "cli", arg(long, value_name = "SEED", default_value_t = Self::default().edge_seed))]
    pub edge_seed: u64,
    /// Pairs that each held-out edge is ranked among
    #[cfg_attr(feature = "cli", arg(long, value_name = "K", default_value_t = Self::default().eval_negatives))]
    pub eval_negatives: usize,
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self {
            kind: None,
            metric: None,
            loss: None,
            class_weights: None,
            relation: None,
            scorer: ScorerKind::Dot,
            negatives: 1,
            valid_edges: 0.05,
            test_edges: 0.1,
            edge_seed: 0,
            eval_negatives: 100,
        }
    }
}

impl TaskConfig {
    /// The task; classes of vertices if none is given.
    pub fn task(&self) -> TaskKind {
        self.kind.unwrap_or_default()
    }

    /// True if links are learnt.
    pub fn is_link(&self) -> bool {
        self.kind == Some(TaskKind::Link)
    }

    /// True if numbers are learnt.
    pub fn is_regression(&self) -> bool {
        self.kind == Some(TaskKind::Regression)
    }

    /// Returns these options with the default loss of a regression if none is given.
    pub(super) fn effective(&self) -> Self {
        let loss = self.is_regression().then(|| self.loss.unwrap_or_default());
        Self { loss, ..self.clone() }
    }

    /// The choice of held-out edges.
    pub fn held_out(&self) -> HeldOut {
        HeldOut { valid: self.valid_edges, test: self.test_edges, seed: self.edge_seed }
    }

    /// Returns the problem with an option that is only for links, if links are not learnt.
    pub(super) fn unread_problem(&self) -> Option<String> {
        let default = Self::default();
        let of_loss = [
            ("--relation", self.relation.is_some()),
            ("--scorer", self.scorer != default.scorer),
            ("--negatives", self.negatives != default.negatives),
        ];
        let of_loss = of_loss.into_iter().find(|(_, is_set)| *is_set).map(|(option, _)| option);
        let option = of_loss.or_else(|| self.of_own_split(true)).filter(|_| !self.is_link())?;
        Some(format!("{option} is for links: leave it out, or choose --task link"))
    }

    /// The first given option without effect on a dataset's own split of links; `with_negatives` if
    /// that split has negatives.
    pub(crate) fn of_own_split(&self, with_negatives: bool) -> Option<&'static str> {
        let default = Self::default();
        let options = [
            ("--valid-edges", self.valid_edges != default.valid_edges),
            ("--test-edges", self.test_edges != default.test_edges),
            ("--edge-seed", with_negatives && self.edge_seed != default.edge_seed),
            ("--eval-negatives", with_negatives && self.eval_negatives != default.eval_negatives),
        ];
        options.into_iter().find(|(_, set)| *set).map(|(option, _)| option)
    }

    /// Returns the problem with the metric if held-out edges are ranked among too few drawn pairs.
    pub(crate) fn ranking_problem(&self) -> Option<String> {
        let (Metric::Hits(first), among) = (self.metric?, self.eval_negatives) else { return None };
        (first as usize > among).then(|| {
            format!(
                "--metric hits@{first}: always 1 among --eval-negatives {among} pairs: choose \
                     more of them, or a smaller K"
            )
        })
    }

    /// Returns the problem with these options, if any.
    pub(super) fn problem(&self) -> Option<String> {
        /// Bounds the random words of an evaluation edge, redrawn pairs included.
        const MOST_EVAL_NEGATIVES: usize = 10_000;
        const MOST_NEGATIVES: usize = 1_000;
        if let Some(problem) = self.misplaced() {
            return Some(problem);
        }
        if self.negatives == 0 || self.negatives > MOST_NEGATIVES {
            return Some(format!("--negatives {}: expected 1 to {MOST_NEGATIVES}", self.negatives));
        }
        if self.eval_negatives == 0 || self.eval_negatives > MOST_EVAL_NEGATIVES {
            return Some(format!(
                "--eval-negatives {}: expected 1 to {MOST_EVAL_NEGATIVES}",
                self.eval_negatives
            ));
        }
        let shares = [self.valid_edges, self.test_edges];
        if !shares.iter().all(|share| (0.0..1.0).contains(share))
            || shares.iter().sum::<f64>() >= 1.0
        {
            let [valid, test] = shares;
            return Some(format!(
                "--valid-edges {valid} and --test-edges {test}: expected shares from 0 on, \
                 together below 1"
            ));
        }
        None
    }

    /// Returns the problem with an option that is for another task, if any.
    fn misplaced(&self) -> Option<String> {
        let of = |kind| self.kind.is_none_or(|own| own == kind);
        let (loss, weights) = (self.loss.is_some(), self.class_weights.is_some());
        super::unread(&[
            ("loss", loss, of(TaskKind::Regression), "--task regression"),
            ("class-weights", weights, of(TaskKind::Node), "--task node"),
        ])
    }
}

impl Config {
    /// Returns this configuration with the task of the labels of `dataset` if none is given; notes
    /// a regression on `progress`.
    ///
    /// # Errors
    /// [`Error::Option`] if the labels do not fit the task, or an option is for another task.
    pub fn of_labels(&self, dataset: &Dataset, progress: &dyn Progress) -> Result<Self> {
        let (place, manifest) = (dataset.path().display(), dataset.manifest());
        let kind = match (self.data.task.kind, manifest.numeric_label) {
            (Some(TaskKind::Node), true) => {
                return Err(Error::Option(format!(
                    "--task node: the labels of {place} are numbers: choose --task regression, or \
                     convert it with --schema label-kind=class"
                )));
            }
            (Some(TaskKind::Regression), false) => {
                let found = if manifest.num_classes.is_some() {
                    "labels are classes"
                } else {
                    "vertices have no labels"
                };
                return Err(Error::Option(format!(
                    "--task regression: {place}: {found}: convert with --schema label-kind=number"
                )));
            }
            (None, true) => {
                progress.note("the labels are numbers, which are learnt: --task regression");
                TaskKind::Regression
            }
            (kind, _) => kind.unwrap_or_default(),
        };
        let mut config = self.clone();
        config.data.task.kind = Some(kind);
        config.data.task.problem().map_or(Ok(config), |problem| Err(Error::Option(problem)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_weights_read_what_they_print() {
        for text in ["balanced", "1,2.5", "0,1", "3"] {
            let weights: ClassWeights = text.parse().unwrap();
            assert_eq!(weights.to_string(), text);
            let stored = serde_json::to_string(&weights).unwrap();
            assert_eq!(serde_json::from_str::<ClassWeights>(&stored).unwrap(), weights);
        }
        for bad in ["", "0,0", "-1,2", "1,,2", "NaN,1", "inf", "Balanced", "a=1,b=2"] {
            assert!(
                bad.parse::<ClassWeights>().unwrap_err().contains("expected balanced, or a number"),
                "{bad}"
            );
        }
    }
}
