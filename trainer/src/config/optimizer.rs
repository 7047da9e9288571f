//! How the parameters are updated.

use serde::{Deserialize, Serialize};

/// The optimizer's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct OptimizerConfig {
    /// Learning rate of Adam
    #[arg(long, default_value_t = 1e-3)]
    pub lr: f64,
}

impl OptimizerConfig {
    /// What is wrong with these options, if anything.
    pub(super) fn problem(&self) -> Option<String> {
        let positive = self.lr > 0.0 && self.lr.is_finite();
        (!positive).then(|| format!("--lr {}: expected a positive number", self.lr))
    }
}
