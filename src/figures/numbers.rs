//! Mean, deviation and range of numeric labels.

use gsplit_store::{Dataset, Result};
use serde::Serialize;

/// Figures of the labels of all vertices that have one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NumberFigures {
    /// Vertices that have a number.
    pub vertices: u64,
    /// Mean of the labels.
    pub mean: f64,
    /// Their population standard deviation.
    pub deviation: f64,
    /// The least.
    pub min: f32,
    /// The largest.
    pub max: f32,
}

impl NumberFigures {
    /// The figures of the labels of `dataset`; `None` if the labels are not numbers, if no vertex has one, and for a shard.
    ///
    /// # Errors
    /// A damaged label file.
    pub fn of(dataset: &Dataset) -> Result<Option<Self>> {
        if !dataset.manifest().numeric_label || dataset.shard().is_some() {
            return Ok(None);
        }
        let labels = dataset.numeric_labels()?;
        let given = || labels.iter().copied().filter(|number| !number.is_nan());
        let vertices = given().count();
        let mean = given().map(f64::from).sum::<f64>() / vertices as f64;
        let squares = given().map(|number| (f64::from(number) - mean).powi(2)).sum::<f64>();
        Ok((vertices > 0).then(|| Self {
            vertices: vertices as u64,
            mean,
            deviation: (squares / vertices as f64).sqrt(),
            min: given().fold(f32::INFINITY, f32::min),
            max: given().fold(f32::NEG_INFINITY, f32::max),
        }))
    }
}
