//! The classes of the vertices: one each, or any number each.

use gsplit_store::{ClassLabels, Dataset, MultiLabels};

use crate::{Error, Result};

/// Labels that node classification learns.
pub enum Labels {
    /// Class of every vertex, or in a shard of its own, -1 for unlabelled.
    One {
        /// Classes by vertex.
        class: ClassLabels,
        /// Number of classes.
        classes: usize,
    },
    /// Any number of classes a vertex. A vertex without any is labelled too: it has none of them.
    Several(MultiLabels),
}

impl Labels {
    /// Opens and checks the labels of `dataset`.
    ///
    /// # Errors
    /// [`Error::Data`] without classes, or with a label that is none; [`Error::Store`] without labels.
    pub fn open(dataset: &Dataset) -> Result<Self> {
        let problem = |problem: String| Error::Data { path: dataset.path().to_path_buf(), problem };
        if dataset.manifest().multi_label {
            return Ok(Self::Several(dataset.held_multi_labels()?));
        }
        let class = dataset.held_labels()?;
        let classes = dataset.manifest().num_classes.unwrap_or(0) as usize;
        if classes == 0 {
            return Err(problem("no vertex has a label: training needs at least one class".into()));
        }
        if let Some(row) = class.stored().iter().position(|&label| label >= classes as i32 || label < -1) {
            let (found, v) = (class.stored()[row], dataset.owned().map_or(row, |owned| owned[row] as usize));
            return Err(problem(format!("label {found} of vertex {v}, expected below {classes}: run `gsplit verify`")));
        }
        Ok(Self::One { class, classes })
    }

    /// Number of classes: the width of the last layer.
    pub fn classes(&self) -> usize {
        match self {
            Self::One { classes, .. } => *classes,
            Self::Several(labels) => labels.num_classes() as usize,
        }
    }

    /// Whether a vertex can have several classes.
    pub fn several(&self) -> bool {
        matches!(self, Self::Several(_))
    }

    /// Whether `v`, of the train split or with its classes here, is labelled.
    pub fn is_labelled(&self, v: u32) -> bool {
        match self {
            Self::One { class, .. } => class.is_labelled(v),
            Self::Several(_) => true,
        }
    }
}
