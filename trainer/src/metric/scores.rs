//! Scores of several splits, counted together.

use gsplit_kernels::Communicator;
use gsplit_store::{Split, SplitScores};

use super::{Metric, Scorer};
use crate::Result;
use crate::metric::labels::Labels;

/// Result of an evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// Splits and their scores; `None` where a split has no labelled vertex, or the score is not defined.
    pub scores: Vec<(Split, Option<f64>)>,
    /// The splits class by class, where classes are learnt.
    pub classes: Vec<SplitScores>,
}

/// Scores by split.
pub struct Scores<'a> {
    splits: Vec<(Split, &'a [u32], Scorer<'a>)>,
}

impl<'a> Scores<'a> {
    /// Begins with no vertex; `splits` ascend.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) if the metric is not defined for the labels.
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
        let mut all = self.splits.iter().map(|(_, vertices, _)| *vertices).collect::<Vec<_>>().concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Counts the logits of `v` in each split that has it.
    pub fn push(&mut self, v: u32, logits: &[f32]) {
        for (_, vertices, scorer) in &mut self.splits {
            if vertices.binary_search(&v).is_ok() {
                scorer.push(v, logits);
            }
        }
    }

    /// Adds what the other ranks of `comm` have counted. Collective.
    ///
    /// # Errors
    /// Errors of the communicator.
    pub fn reduce(&mut self, comm: &dyn Communicator) -> Result<()> {
        self.splits.iter_mut().try_for_each(|(_, _, scorer)| scorer.reduce(comm))
    }

    /// The scores.
    pub fn finish(self) -> Evaluation {
        let classes = self.splits.iter().filter_map(|(split, _, scorer)| scorer.classes(*split)).collect();
        let scores = self.splits.into_iter().map(|(split, _, scorer)| (split, scorer.finish())).collect();
        Evaluation { scores, classes }
    }
}
