//! Options of the optimizer.

use std::fmt;
use std::str::FromStr;

use gsplit_store::text_in_files;
use serde::{Deserialize, Serialize};

/// Shares of the first and the second moment that Adam keeps in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Betas(pub [f64; 2]);

impl Default for Betas {
    fn default() -> Self {
        Self([0.9, 0.999])
    }
}

impl FromStr for Betas {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share =
            |word: &str| word.trim().parse().ok().filter(|share: &f64| (0.0..1.0).contains(share));
        let both = text.split_once(',').and_then(|(one, other)| Some([share(one)?, share(other)?]));
        both.map(Self).ok_or_else(|| "expected two numbers from 0 and below 1: 0.9,0.999".into())
    }
}

impl fmt::Display for Betas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.0[0], self.0[1])
    }
}

text_in_files!(Betas);

/// Optimizers, each with torch's formulas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Adam (Kingma and Ba, 2015); weight decay is added to the gradient
    Adam,
    /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019)
    #[cfg_attr(feature = "cli", value(name = "adamw"))]
    AdamW,
    /// Stochastic gradient descent with momentum; weight decay is added to the gradient
    Sgd,
}

/// The optimizer's settings. `None` has the default of [`OptimizerConfig::effective`] or does not
/// apply to the kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerConfig {
    /// How the parameters are updated
    #[cfg_attr(feature = "cli", arg(id = "optimizer", long, value_name = "KIND", value_enum, default_value_t = Self::default().kind))]
    pub kind: OptimizerKind,
    /// Learning rate, before --schedule changes it
    #[cfg_attr(feature = "cli", arg(long, default_value_t = Self::default().lr))]
    pub lr: f64,
    /// Weight decay of every parameter
    #[cfg_attr(feature = "cli", arg(long, value_name = "FACTOR", default_value_t = Self::default().weight_decay))]
    pub weight_decay: f64,
    /// Scale the gradient of a mini-batch, over all ranks and parameters, down to this norm if it
    /// is larger
    #[cfg_attr(feature = "cli", arg(long, value_name = "NORM"))]
    pub clip_norm: Option<f64>,
    /// Momentum of sgd; 0 for none [default: 0.9]
    #[cfg_attr(feature = "cli", arg(long))]
    pub momentum: Option<f64>,
    /// Nesterov's momentum, for sgd
    #[cfg_attr(feature = "cli", arg(long))]
    pub nesterov: bool,
    /// Shares of the first and the second moment that adam and adamw keep in a step [default:
    /// 0.9,0.999]
    #[cfg_attr(feature = "cli", arg(long, value_name = "B1,B2"))]
    pub betas: Option<Betas>,
    /// Summand of the denominator of adam and adamw [default: 1e-8]
    #[cfg_attr(feature = "cli", arg(long))]
    pub adam_epsilon: Option<f64>,
    /// Update with the gradient of the mini-batch N steps before: w(t+1) = w(t) - lr * gradient(w(t -
    /// N)), like P3's pipeline of N mini-batches in flight; an epoch ends when all are applied.
    /// Only on the CPU
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = 0))]
    pub staleness: usize,
}

/// Each waiting gradient takes as much memory as the parameters: more than this is a mistake.
const MAX_STALENESS: usize = 64;

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self {
            kind: OptimizerKind::Adam,
            lr: 1e-3,
            weight_decay: 0.0,
            clip_norm: None,
            momentum: None,
            nesterov: false,
            betas: None,
            adam_epsilon: None,
            staleness: 0,
        }
    }
}

impl OptimizerConfig {
    /// Returns the problem with these options, if any.
    pub(super) fn problem(&self) -> Option<String> {
        if self.staleness > MAX_STALENESS {
            return Some(format!(
                "--staleness {}: expected at most {MAX_STALENESS}",
                self.staleness
            ));
        }
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let (positive_number, at_least_0, share) =
            ("a positive number", "a number from 0", "at least 0 and below 1");
        let checks = [
            ("lr", Some(self.lr), positive as fn(f64) -> bool, positive_number),
            (
                "weight-decay",
                Some(self.weight_decay),
                |value| value >= 0.0 && value.is_finite(),
                at_least_0,
            ),
            ("clip-norm", self.clip_norm, positive, positive_number),
            ("momentum", self.momentum, |value| (0.0..1.0).contains(&value), share),
            ("adam-epsilon", self.adam_epsilon, positive, positive_number),
        ];
        for (name, value, fits, expected) in checks {
            if let Some(value) = value.filter(|&value| !fits(value)) {
                return Some(format!("--{name} {value}: expected {expected}"));
            }
        }
        (self.nesterov && self.momentum == Some(0.0))
            .then(|| "--nesterov needs a --momentum above 0".to_string())
    }

    /// Names of the moments that the optimizer keeps of each value.
    pub(crate) fn moments(&self) -> &'static [&'static str] {
        match self.kind {
            OptimizerKind::Adam | OptimizerKind::AdamW => &["first_moment", "second_moment"],
            OptimizerKind::Sgd if self.effective().momentum != Some(0.0) => &["momentum"],
            OptimizerKind::Sgd => &[],
        }
    }

    /// Returns these settings with the defaults filled in that apply to the kind.
    pub fn effective(&self) -> Self {
        let adam = self.kind != OptimizerKind::Sgd;
        Self {
            momentum: (!adam).then(|| self.momentum.unwrap_or(0.9)),
            betas: adam.then(|| self.betas.unwrap_or_default()),
            adam_epsilon: adam.then(|| self.adam_epsilon.unwrap_or(1e-8)),
            ..self.clone()
        }
    }
}
