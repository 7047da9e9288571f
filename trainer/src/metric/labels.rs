//! Labels of the vertices: one class each, any number of classes each, or one number each.

use gsplit_store::{ClassLabels, Dataset, MultiLabels, NumericLabels};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Labels that node classification learns.
pub enum Labels {
    /// Class of every vertex (in a shard, of every vertex that it owns); -1 for unlabelled.
    One {
        /// Classes by vertex.
        class: ClassLabels,
        /// Number of classes.
        classes: usize,
    },
    /// Any number of classes per vertex. A vertex without any is labelled too: it has none of them.
    /// Cells without a value are left out; a vertex with only such cells is unlabelled.
    Several(MultiLabels),
    /// Number of every vertex (in a shard, of every vertex that it owns) in the unit of the input;
    /// NaN for unlabelled.
    Number {
        /// Numbers by vertex.
        number: NumericLabels,
        /// Scale of the numbers that the model returns.
        scale: TargetScale,
    },
}

/// Scale of the numbers that a regression model learns and returns: standard deviations from the
/// mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetScale {
    /// Mean of the train split's numbers.
    pub mean: f64,
    /// Their population standard deviation; 1 if they are all the same.
    pub deviation: f64,
}

impl TargetScale {
    /// The scale of `numbers`, ignoring NaN. The same numbers in the same order give the same
    /// scale, to the bit.
    pub fn of(numbers: impl Iterator<Item = f32> + Clone) -> Self {
        let numbers = numbers.map(f64::from).filter(|number| !number.is_nan());
        let count = numbers.clone().count().max(1) as f64;
        let mean = numbers.clone().sum::<f64>() / count;
        let deviation = (numbers.map(|number| (number - mean).powi(2)).sum::<f64>() / count).sqrt();
        Self { mean, deviation: if deviation > 0.0 { deviation } else { 1.0 } }
    }

    /// Converts a number of the input to this scale.
    pub fn scaled(&self, number: f32) -> f32 {
        ((f64::from(number) - self.mean) / self.deviation) as f32
    }

    /// Converts a number on this scale to the unit of the input.
    pub fn in_unit(&self, scaled: f32) -> f32 {
        (f64::from(scaled) * self.deviation + self.mean) as f32
    }
}

impl Labels {
    /// Opens and checks the labels of `dataset`. Numbers are on the scale of the input, until
    /// [`Labels::on`].
    pub fn open(dataset: &Dataset) -> Result<Self> {
        let problem = |problem: String| Error::Data { path: dataset.path().to_path_buf(), problem };
        if dataset.manifest().multi_label {
            return Ok(Self::Several(dataset.held_multi_labels()?));
        }
        if dataset.manifest().numeric_label {
            let scale = TargetScale { mean: 0.0, deviation: 1.0 };
            return Ok(Self::Number { number: dataset.held_numeric_labels()?, scale });
        }
        let class = dataset.held_labels()?;
        let classes = dataset.manifest().num_classes.unwrap_or(0) as usize;
        if classes == 0 {
            return Err(problem("no vertex has a label: training needs at least one class".into()));
        }
        if let Some(row) =
            class.stored().iter().position(|&label| label >= classes as i32 || label < -1)
        {
            let (found, v) =
                (class.stored()[row], dataset.owned().map_or(row, |owned| owned[row] as usize));
            return Err(problem(format!(
                "label {found} of vertex {v}, expected below {classes}: run `gsplit verify`"
            )));
        }
        Ok(Self::One { class, classes })
    }

    /// Returns the same labels with numbers on `scale`.
    pub fn on(self, scale: TargetScale) -> Self {
        match self {
            Self::Number { number, .. } => Self::Number { number, scale },
            classes => classes,
        }
    }

    /// The scale of numbers; `None` for classes.
    pub fn scale(&self) -> Option<TargetScale> {
        match self {
            Self::Number { scale, .. } => Some(*scale),
            _ => None,
        }
    }

    /// Number of classes, or 1 for numbers: the width of the last layer.
    pub fn outputs(&self) -> usize {
        match self {
            Self::Number { .. } => 1,
            Self::One { classes, .. } => *classes,
            Self::Several(labels) => labels.num_classes() as usize,
        }
    }

    /// Whether a vertex can have several classes.
    pub fn several(&self) -> bool {
        matches!(self, Self::Several(_))
    }

    /// Whether `v` is labelled; `v` is in the train split or has its label in this shard. One of
    /// several classes that another shard holds counts as labelled.
    pub fn is_labelled(&self, v: u32) -> bool {
        match self {
            Self::One { class, .. } => class.is_labelled(v),
            Self::Several(labels) => labels.num_known(v) != Some(0),
            Self::Number { number, .. } => number.is_labelled(v),
        }
    }
}

/// Number of `vertices` that have each class, and then number of `vertices` with a value for each.
pub fn count_several(labels: &MultiLabels, vertices: impl Iterator<Item = u32>) -> Vec<u64> {
    let classes = labels.num_classes() as usize;
    let (mut with, mut known) = (vec![0; classes], vec![0; classes]);
    for v in vertices {
        for (class, cell) in labels.cells(v).enumerate() {
            with[class] += u64::from(cell == Some(true));
            known[class] += u64::from(cell.is_some());
        }
    }
    [with, known].concat()
}
