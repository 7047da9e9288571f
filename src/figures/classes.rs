//! Number of vertices per class.

use gsplit_store::{Column, Dataset, Result};
use rayon::prelude::*;
use serde::Serialize;

/// Number of vertices of one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassCount {
    /// The class.
    pub class: u32,
    /// Its name, where classes have names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of vertices of the class.
    pub vertices: u64,
}

impl ClassCount {
    /// Its name, or its number where classes have no names.
    pub fn shown(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.class.to_string())
    }
}

/// The class of each vertex, -1 for none; `None` unless each vertex has at most one class and all rows are in this dataset.
pub fn labels(dataset: &Dataset) -> Result<Option<Column<i32>>> {
    let manifest = dataset.manifest();
    let has = manifest.num_classes.is_some() && !manifest.multi_label && dataset.shard().is_none();
    has.then(|| dataset.labels()).transpose()
}

/// The classes that occur, ascending; `None` without labels, and for a shard. A vertex of several classes counts in each.
pub fn count_classes(dataset: &Dataset) -> Result<Option<Vec<ClassCount>>> {
    let manifest = dataset.manifest();
    if manifest.num_classes.is_none() || dataset.shard().is_some() {
        return Ok(None);
    }
    let count = |class: u32, vertices: usize| ClassCount {
        class,
        name: manifest.class_names.as_ref().and_then(|names| names.get(class as usize).cloned()),
        vertices: vertices as u64,
    };
    if let Some(labels) = labels(dataset)? {
        // Sort instead of counting by class: a damaged label may be any number.
        let mut labels: Vec<i32> = labels.par_iter().copied().filter(|&label| label >= 0).collect();
        labels.par_sort_unstable();
        let counts = labels.chunk_by(|a, b| a == b);
        return Ok(Some(counts.map(|run| count(run[0] as u32, run.len())).collect()));
    }
    let labels = dataset.multi_labels()?;
    let of_class = |class: u32| {
        let has = |&v: &u32| labels.has(v, class);
        count(class, (0..dataset.num_vertices() as u32).filter(has).count())
    };
    let counts: Vec<ClassCount> = (0..labels.num_classes()).into_par_iter().map(of_class).collect();
    Ok(Some(counts.into_iter().filter(|count| count.vertices > 0).collect()))
}
