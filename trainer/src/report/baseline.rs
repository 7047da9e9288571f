//! Baseline beside the scores of a run: what needs no model.

use serde::{Deserialize, Serialize};

/// Scores that need no model, of the same splits by the same metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// The rule: `majority`, `mean` or `popularity`.
    pub name: String,
    /// Score of the valid split.
    pub valid: Option<f64>,
    /// Score of the test split.
    pub test: Option<f64>,
}
