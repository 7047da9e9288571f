//! How many vertices each class has.

use gsplit_store::{Column, Dataset, Result};
use rayon::prelude::*;
use serde::Serialize;

/// Vertices of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClassCount {
    /// The class.
    pub class: u32,
    /// How many vertices have it.
    pub vertices: u64,
}

/// The class of each vertex, -1 for none, where a vertex has one class at most and all rows are here.
pub fn labels(dataset: &Dataset) -> Result<Option<Column<i32>>> {
    let manifest = dataset.manifest();
    let has = manifest.num_classes.is_some() && !manifest.multi_label && dataset.shard().is_none();
    has.then(|| dataset.labels()).transpose()
}

/// The classes that occur, ascending; `None` without labels, and of a shard. Where a vertex can have several it counts in each.
pub fn count_classes(dataset: &Dataset) -> Result<Option<Vec<ClassCount>>> {
    let manifest = dataset.manifest();
    if manifest.num_classes.is_none() || dataset.shard().is_some() {
        return Ok(None);
    }
    if let Some(labels) = labels(dataset)? {
        // Sorted, not counted by class: a damaged label may be any number.
        let mut labels: Vec<i32> = labels.par_iter().copied().filter(|&label| label >= 0).collect();
        labels.par_sort_unstable();
        let counts = labels.chunk_by(|a, b| a == b);
        return Ok(Some(counts.map(|run| ClassCount { class: run[0] as u32, vertices: run.len() as u64 }).collect()));
    }
    let labels = dataset.multi_labels()?;
    let of_class = |class: u32| {
        let has = |&v: &u32| labels.has(v, class);
        ClassCount { class, vertices: (0..dataset.num_vertices() as u32).filter(has).count() as u64 }
    };
    let counts: Vec<ClassCount> = (0..labels.num_classes()).into_par_iter().map(of_class).collect();
    Ok(Some(counts.into_iter().filter(|count| count.vertices > 0).collect()))
}
