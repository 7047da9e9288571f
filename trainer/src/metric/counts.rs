//! Precision and recall of each class, counted.

use gsplit_kernels::{CommError, Communicator};

/// How often each class was predicted and how often it was right.
#[derive(Clone, Debug, Default)]
pub struct ClassCounts {
    right: Vec<u64>,
    predicted: Vec<u64>,
    actual: Vec<u64>,
}

impl ClassCounts {
    /// None yet of `classes`.
    pub fn new(classes: usize) -> Self {
        Self { right: vec![0; classes], predicted: vec![0; classes], actual: vec![0; classes] }
    }

    /// Counts one decision about `class`.
    pub fn add(&mut self, class: usize, predicted: bool, actual: bool) {
        self.right[class] += u64::from(predicted && actual);
        self.predicted[class] += u64::from(predicted);
        self.actual[class] += u64::from(actual);
    }

    /// Adds the counts of the other ranks of `comm`. Collective.
    pub fn reduce(&mut self, comm: &dyn Communicator) -> Result<(), CommError> {
        [&mut self.right, &mut self.predicted, &mut self.actual]
            .into_iter()
            .try_for_each(|counts| comm.all_reduce_sum_u64(counts))
    }

    /// F1 of all decisions together; 0 where there are none.
    pub fn micro_f1(&self) -> f64 {
        let sum = |of: &[u64]| of.iter().sum::<u64>();
        f1(sum(&self.right), sum(&self.predicted), sum(&self.actual))
    }

    /// Mean of the classes' F1. With `seen_only`, classes that were neither predicted nor actual are left out, as
    /// scikit-learn does where a vertex has one class; else they count 0.
    pub fn macro_f1(&self, seen_only: bool) -> f64 {
        let classes = (0..self.right.len()).filter(|&c| !seen_only || self.predicted[c] + self.actual[c] > 0);
        let each: Vec<f64> = classes.map(|c| f1(self.right[c], self.predicted[c], self.actual[c])).collect();
        each.iter().sum::<f64>() / each.len().max(1) as f64
    }
}

/// The harmonic mean of precision and recall.
fn f1(right: u64, predicted: u64, actual: u64) -> f64 {
    2.0 * right as f64 / ((predicted + actual).max(1)) as f64
}
