//! The metrics by name.

use std::fmt;
use std::str::FromStr;

use gsplit_store::{LinkInfo, LinkNegatives};

use crate::metric::labels::Labels;
use crate::{Error, Result};

/// Metric of valid and test scores. Larger is better, except for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Share of vertices classified correctly; if a vertex can have several classes, with all of
    /// them right.
    Accuracy,
    /// F1 of all decisions together; with one class per vertex it equals accuracy.
    MicroF1,
    /// Mean of the classes' F1.
    MacroF1,
    /// Area under the ROC curve: of two classes, or averaged over the classes that some vertices
    /// have and some do not.
    RocAuc,
    /// Mean reciprocal rank of held-out edges among negatives, as computed by OGB's evaluator.
    Mrr,
    /// Share of held-out edges that rank among the first K; if all edges share their negatives, the
    /// share that scores above the K-th best negative, as computed by OGB's evaluator.
    Hits(u32),
    /// Root of the mean squared error, in the unit of the numbers.
    Rmse,
    /// Mean absolute error, in the unit of the numbers.
    Mae,
    /// Share of the numbers' variance that is explained: 1 minus the squared error over that of
    /// their mean.
    R2,
}

/// Names on the command line.
const NAMES: [(&str, Metric); 8] = [
    ("accuracy", Metric::Accuracy),
    ("micro-f1", Metric::MicroF1),
    ("macro-f1", Metric::MacroF1),
    ("roc-auc", Metric::RocAuc),
    ("mrr", Metric::Mrr),
    ("rmse", Metric::Rmse),
    ("mae", Metric::Mae),
    ("r2", Metric::R2),
];

impl Metric {
    /// The default metric for `labels`: ROC-AUC for two classes, micro-F1 if vertices can have
    /// several, otherwise accuracy; for numbers the root mean squared error.
    pub fn of(labels: &Labels) -> Self {
        match labels {
            Labels::Several(_) => Self::MicroF1,
            Labels::One { classes: 2, .. } => Self::RocAuc,
            Labels::One { .. } => Self::Accuracy,
            Labels::Number { .. } => Self::Rmse,
        }
    }

    /// Whether it scores links.
    pub fn scores_links(self) -> bool {
        matches!(self, Self::Mrr | Self::Hits(_) | Self::RocAuc)
    }

    /// Whether it scores numbers of vertices.
    pub fn scores_numbers(self) -> bool {
        matches!(self, Self::Rmse | Self::Mae | Self::R2)
    }

    /// Whether it is an error, of which less is better.
    pub fn is_error(self) -> bool {
        matches!(self, Self::Rmse | Self::Mae)
    }

    /// The metric of links: `asked`, if given, else that of the dataset's own split, else mean
    /// reciprocal rank.
    ///
    /// # Errors
    /// [`Error::Option`] if it is ROC-AUC and the dataset has no negative pairs to score against
    /// all links.
    pub fn of_links(asked: Option<Self>, own: Option<&LinkInfo>) -> Result<Self> {
        let metric = match (asked, own) {
            (Some(metric), _) => metric,
            (None, Some(info)) => info.metric.parse()?,
            (None, None) => Self::Mrr,
        };
        let pairs = own.is_some_and(|info| info.negatives == Some(LinkNegatives::Pairs));
        match metric.scores_links() && (pairs || metric != Self::RocAuc) {
            true => Ok(metric),
            false => {
                let problem =
                    "needs a dataset with negative pairs: choose mrr or hits@K for --task link";
                Err(Error::Option(format!("--metric {metric}: {problem}")))
            }
        }
    }

    /// Checks that the metric is defined for `labels`.
    pub fn check(self, labels: &Labels) -> Result<()> {
        let of_classes = matches!(self, Self::Accuracy | Self::MicroF1 | Self::MacroF1);
        let (fits, scored, others) = match labels {
            Labels::Number { .. } => (self.scores_numbers(), "numbers", "rmse, mae or r2"),
            Labels::One { classes, .. } if *classes != 2 => {
                (of_classes, "one of several classes", "accuracy, micro-f1 or macro-f1")
            }
            Labels::One { .. } | Labels::Several(_) => (
                of_classes || self == Self::RocAuc,
                "two classes, or several per vertex",
                "accuracy, micro-f1, macro-f1 or roc-auc",
            ),
        };
        match fits {
            true => Ok(()),
            false => Err(Error::Option(format!(
                "--metric {self}: the labels are {scored}: choose {others}, or another --task"
            ))),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hits(k) => write!(f, "hits@{k}"),
            named => f.write_str(
                NAMES.iter().find(|(_, metric)| metric == named).map_or("", |(name, _)| name),
            ),
        }
    }
}

impl FromStr for Metric {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some((_, metric)) = NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(*metric);
        }
        match text.strip_prefix("hits@").and_then(|k| k.parse().ok()) {
            Some(k @ 1..) => Ok(Self::Hits(k)),
            _ => {
                let names = NAMES.map(|(name, _)| name).join(", ");
                Err(Error::Option(format!("expected one of {names}, hits@K (e.g. hits@10)")))
            }
        }
    }
}

gsplit_store::text_in_files!(Metric);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_what_they_print() {
        for text in [
            "accuracy", "micro-f1", "macro-f1", "roc-auc", "mrr", "rmse", "mae", "r2", "hits@1",
            "hits@50",
        ] {
            assert_eq!(text.parse::<Metric>().unwrap().to_string(), text);
        }
        for text in ["", "hits@", "hits@0", "hits@x", "auc", "Accuracy"] {
            assert!(text.parse::<Metric>().unwrap_err().to_string().contains("hits@K"), "{text}");
        }
    }
}
