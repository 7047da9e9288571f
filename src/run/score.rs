//! The score of a run: how good the model of its best epoch is.

use std::fmt;
use std::path::Path;

use gsplit_store::Baseline;
use gsplit_trainer::{EpochReport, Trained};
use serde::Serialize;

use crate::train::as_usage;
use gsplit::describe::score;

/// Scores of the best epoch, and of a baseline that learns nothing.
#[derive(Serialize)]
pub struct Score {
    epoch: u32,
    metric: Option<String>,
    valid: Option<f64>,
    test: Option<f64>,
    baseline: Option<Baseline>,
}

impl Score {
    /// The score of the model in `checkpoint`; `None` if no score was computed.
    pub fn of(checkpoint: &Path) -> anyhow::Result<Option<Self>> {
        let trained = Trained::open(checkpoint, None).map_err(as_usage)?;
        let scores = trained.checkpoint.scores.as_ref();
        Ok(EpochReport::best(&trained.checkpoint.history).map(|best| Self {
            epoch: best.epoch,
            metric: scores.map(|scores| scores.metric.clone()),
            valid: best.valid,
            test: best.test,
            baseline: scores.and_then(|scores| scores.baseline.clone()),
        }))
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metric = self.metric.as_deref().unwrap_or("score");
        write!(f, "{metric}: valid {}, test {}", score(self.valid), score(self.test))?;
        match &self.baseline {
            Some(baseline) => write!(f, " ({}: test {})", baseline.name, score(baseline.test)),
            None => Ok(()),
        }
    }
}
