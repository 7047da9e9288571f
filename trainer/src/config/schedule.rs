//! Options of the learning rate's schedule.

use serde::{Deserialize, Serialize};

/// Learning-rate schedules. All except `plateau` change the rate with every mini-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum ScheduleKind {
    /// One rate for the whole run
    #[default]
    Constant,
    /// Down to --min-lr along a line
    Linear,
    /// Down to --min-lr along half a cosine (Loshchilov and Hutter, 2017)
    Cosine,
    /// Multiply by --gamma when the valid metric has not risen for --lr-patience evaluations
    Plateau,
}

/// The schedule's settings. `None` has the default of [`ScheduleConfig::effective`] or does not
/// apply to the kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleConfig {
    /// How the learning rate changes in the course of the run
    #[cfg_attr(
        feature = "cli",
        arg(id = "schedule", long, value_name = "KIND", value_enum, default_value_t)
    )]
    pub kind: ScheduleKind,
    /// Mini-batches over which the rate first rises linearly to --lr
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = Self::default().warmup_steps))]
    pub warmup_steps: u64,
    /// Epochs, warm-up included, after which linear and cosine reach --min-lr [default: --epochs]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N"))]
    pub decay_epochs: Option<u32>,
    /// Lowest rate of linear, cosine and plateau [default: 0]
    #[cfg_attr(feature = "cli", arg(long, value_name = "LR"))]
    pub min_lr: Option<f64>,
    /// Factor by which plateau multiplies the rate [default: 0.1]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FACTOR"))]
    pub gamma: Option<f64>,
    /// Evaluations without a new best before plateau lowers the rate at the next one [default: 10]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N"))]
    pub lr_patience: Option<u32>,
}

impl ScheduleConfig {
    /// Returns the problem with these options, if any.
    pub(super) fn problem(&self, lr: f64) -> Option<String> {
        if let Some(min) = self.min_lr.filter(|min| !(0.0..=lr).contains(min)) {
            return Some(format!("--min-lr {min}: expected 0 to --lr {lr}"));
        }
        if let Some(gamma) = self.gamma.filter(|&gamma| !(gamma > 0.0 && gamma < 1.0)) {
            return Some(format!("--gamma {gamma}: expected above 0 and below 1"));
        }
        (self.decay_epochs == Some(0)).then(|| "--decay-epochs 0: expected 1 or more".to_string())
    }

    /// Returns these settings for a run of `epochs`, with the defaults filled in that apply to the
    /// kind.
    pub fn effective(&self, epochs: u32) -> Self {
        use ScheduleKind::{Cosine, Linear, Plateau};
        let is = |kinds: &[ScheduleKind]| kinds.contains(&self.kind);
        Self {
            decay_epochs: is(&[Linear, Cosine]).then(|| self.decay_epochs.unwrap_or(epochs)),
            min_lr: is(&[Linear, Cosine, Plateau]).then(|| self.min_lr.unwrap_or(0.0)),
            gamma: is(&[Plateau]).then(|| self.gamma.unwrap_or(0.1)),
            lr_patience: is(&[Plateau]).then(|| self.lr_patience.unwrap_or(10)),
            ..self.clone()
        }
    }
}
