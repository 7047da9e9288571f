//! Counts for precision and recall of each class, and of classes that are mistaken for each other.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gsplit_kernels::{CommError, Communicator, all_gather_v};
use gsplit_store::{ClassScores, Confused, Split, SplitScores};

/// Maximum number of confused pairs of classes that are reported: all pairs of 20 classes.
const MOST_PAIRS: usize = 20 * 19;

/// How often each class was predicted, and how often rightly.
#[derive(Clone, Debug, Default)]
pub struct ClassCounts {
    right: Vec<u64>,
    predicted: Vec<u64>,
    actual: Vec<u64>,
    /// Vertices about which it was decided.
    decided: Vec<u64>,
    /// Vertices by actual and predicted class, where these differ.
    confused: BTreeMap<(u32, u32), u64>,
}

impl ClassCounts {
    /// Empty counts for `classes` classes.
    pub fn new(classes: usize) -> Self {
        let [right, predicted, actual, decided] = [(); 4].map(|()| vec![0; classes]);
        Self { right, predicted, actual, decided, confused: BTreeMap::new() }
    }

    /// Counts one decision about `class`.
    pub fn add(&mut self, class: usize, predicted: bool, actual: bool) {
        self.right[class] += u64::from(predicted && actual);
        self.predicted[class] += u64::from(predicted);
        self.actual[class] += u64::from(actual);
        self.decided[class] += 1;
    }

    /// Counts the choice of one class for a vertex.
    pub fn choose(&mut self, predicted: usize, actual: usize) {
        self.add(predicted, true, predicted == actual);
        if predicted != actual {
            self.add(actual, false, true);
            *self.confused.entry((actual as u32, predicted as u32)).or_default() += 1;
        }
    }

    /// Adds the counts of the other ranks of `comm`. Collective.
    pub fn reduce(&mut self, comm: &dyn Communicator) -> Result<(), CommError> {
        [&mut self.right, &mut self.predicted, &mut self.actual, &mut self.decided]
            .into_iter()
            .try_for_each(|counts| comm.all_reduce_sum_u64(counts))?;
        let own: Vec<[u64; 3]> =
            self.confused.iter().map(|(&(a, p), &n)| [a.into(), p.into(), n]).collect();
        self.confused.clear();
        for [actual, predicted, count] in all_gather_v(comm, &own)?.concat() {
            *self.confused.entry((actual as u32, predicted as u32)).or_default() += count;
        }
        Ok(())
    }

    /// The scores of the classes in `split`; `seen_only` as for [`macro_f1`](Self::macro_f1).
    pub fn scores(&self, split: Split, seen_only: bool) -> SplitScores {
        let of_class = |c: usize| {
            let (right, predicted, support) = (self.right[c], self.predicted[c], self.actual[c]);
            let portion = |of: u64| right as f64 / of.max(1) as f64;
            let f1 = f1(right, predicted, support);
            ClassScores {
                precision: portion(predicted),
                recall: portion(support),
                f1,
                support,
                predicted,
                right,
            }
        };
        let pairs = self.confused.iter();
        let mut confused: Vec<Confused> = pairs
            .map(|(&(actual, predicted), &count)| Confused { actual, predicted, count })
            .collect();
        confused.sort_by_key(|pair| Reverse(pair.count));
        confused.truncate(MOST_PAIRS);
        let classes = (0..self.right.len()).map(of_class).collect();
        SplitScores { split, macro_f1: self.macro_f1(seen_only), classes, confused }
    }

    /// F1 of all decisions together; 0 if there are none.
    pub fn micro_f1(&self) -> f64 {
        let sum = |of: &[u64]| of.iter().sum::<u64>();
        f1(sum(&self.right), sum(&self.predicted), sum(&self.actual))
    }

    /// Mean of the classes' F1. With `seen_only`, classes that were neither predicted nor actual
    /// are left out, as scikit-learn does when a vertex has one class; otherwise they count 0, and
    /// classes without a decision are left out.
    pub fn macro_f1(&self, seen_only: bool) -> f64 {
        let is_scored = |&c: &usize| match seen_only {
            true => self.predicted[c] + self.actual[c] > 0,
            false => self.decided[c] > 0,
        };
        let classes = (0..self.right.len()).filter(is_scored);
        let each: Vec<f64> =
            classes.map(|c| f1(self.right[c], self.predicted[c], self.actual[c])).collect();
        each.iter().sum::<f64>() / each.len().max(1) as f64
    }
}

/// The harmonic mean of precision and recall.
fn f1(right: u64, predicted: u64, actual: u64) -> f64 {
    2.0 * right as f64 / ((predicted + actual).max(1)) as f64
}
