//! What is learnt, and how it is scored.

use serde::{Deserialize, Serialize};

use crate::metric::Metric;

/// What is learnt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct TaskConfig {
    /// Score of the valid and test splits: accuracy, micro-f1, macro-f1 or roc-auc [default: roc-auc for two classes,
    /// micro-f1 where a vertex can have several, else accuracy]
    #[arg(long)]
    pub metric: Option<Metric>,
}
