//! What a model is trained for: the labels, the loss of a mini-batch and its gradient.
//!
//! The loss is one more boundary between layers: it is given the rows that the last layer returned, as a leaf of torch's
//! graph, and returns its value with the gradient of those rows.

mod labels;
mod loss;

pub use labels::Labels;
pub use loss::{Loss, Targets};

use serde::{Deserialize, Serialize};

/// What a model reads and returns, whatever lies between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Width of the feature rows.
    pub features: usize,
    /// Width of the last layer's rows.
    pub outputs: usize,
    /// Whether these are a yes or no for each class, instead of one choice among them.
    pub several: bool,
}
