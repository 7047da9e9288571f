//! Scores of several splits, counted together.

use gsplit_kernels::Communicator;
use gsplit_store::{Dataset, Split, SplitScores};

use super::{Metric, Scorer};
use crate::Result;
use crate::metric::labels::Labels;

/// Result of an evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// Splits and their scores; `None` if a split has no labelled vertex, or the score is
    /// undefined.
    pub scores: Vec<(Split, Option<f64>)>,
    /// Scores of each split by class, if classes are learnt.
    pub classes: Vec<SplitScores>,
    /// Mean loss of the valid split, if a node model was evaluated.
    pub loss: Option<f64>,
}

impl Evaluation {
    /// The reason why `split` has no score by `metric`; `None` if it has one.
    pub fn problem(&self, split: Split, metric: Metric) -> Option<String> {
        self.scores.iter().find(|(of, score)| *of == split && score.is_none())?;
        let lacks = match metric {
            Metric::R2 => "no two labelled vertices with different numbers",
            Metric::RocAuc => "no class that some of its vertices have and others have not",
            _ => "no labelled vertex",
        };
        Some(format!("{metric} has no value in the {} split, which has {lacks}", split.name()))
    }
}

/// Why `split` of `dataset` has no score by the metric `asked` for, or the default of its labels;
/// `None` if it has one.
///
/// # Errors
/// Errors of the labels and the split; [`Error::Option`](crate::Error::Option) if the metric is
/// undefined for the labels.
pub fn unscored(dataset: &Dataset, asked: Option<Metric>, split: Split) -> Result<Option<String>> {
    if !dataset.manifest().splits().contains(&split) {
        return Ok(Some(format!("there is no {} split", split.name())));
    }
    let (labels, vertices) = (Labels::open(dataset)?, dataset.split(split)?);
    let metric = asked.unwrap_or_else(|| Metric::of(&labels));
    let mut scores = Scores::new(metric, &labels, [(split, &vertices[..])])?;
    vertices.iter().for_each(|&v| scores.push(v, &vec![0.0; labels.outputs()]));
    Ok(scores.finish().problem(split, metric))
}

/// Scores by split.
pub struct Scores<'a> {
    splits: Vec<(Split, &'a [u32], Scorer<'a>)>,
}

impl<'a> Scores<'a> {
    /// Creates scores that have not seen any vertex; the vertices of each split must be sorted.
    pub fn new(
        metric: Metric,
        labels: &'a Labels,
        splits: impl IntoIterator<Item = (Split, &'a [u32])>,
    ) -> Result<Self> {
        let begin = |(split, vertices)| Ok((split, vertices, Scorer::new(metric, labels)?));
        Ok(Self { splits: splits.into_iter().map(begin).collect::<Result<_>>()? })
    }

    /// The vertices of all splits, ascending.
    pub fn vertices(&self) -> Vec<u32> {
        let mut all =
            self.splits.iter().map(|(_, vertices, _)| *vertices).collect::<Vec<_>>().concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Counts the logits of `v` in each split that contains it.
    pub fn push(&mut self, v: u32, logits: &[f32]) {
        for (_, vertices, scorer) in &mut self.splits {
            if vertices.binary_search(&v).is_ok() {
                scorer.push(v, logits);
            }
        }
    }

    /// Adds the counts of the other ranks of `comm`. Collective.
    pub fn reduce(&mut self, comm: &dyn Communicator) -> Result<()> {
        self.splits.iter_mut().try_for_each(|(_, _, scorer)| scorer.reduce(comm))
    }

    /// The scores.
    pub fn finish(self) -> Evaluation {
        let classes =
            self.splits.iter().filter_map(|(split, _, scorer)| scorer.classes(*split)).collect();
        let scores =
            self.splits.into_iter().map(|(split, _, scorer)| (split, scorer.finish())).collect();
        Evaluation { scores, classes, loss: None }
    }
}
