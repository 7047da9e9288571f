//! Which model is trained.

use serde::{Deserialize, Serialize};

/// The kinds of layers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ModelKind {
    /// GraphSAGE with the mean aggregator (Hamilton et al., 2017)
    Sage,
    /// Graph attention network (Veličković et al., 2018)
    Gat,
}

/// A model's shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Kind of layers
    #[arg(id = "model", long, value_name = "KIND", value_enum, default_value = "sage")]
    pub kind: ModelKind,
    /// Number of layers; one fanout is needed for each
    #[arg(long, default_value_t = 3)]
    pub layers: usize,
    /// Width of the hidden layers
    #[arg(long, default_value_t = 256)]
    pub hidden: usize,
    /// Attention heads of GAT's hidden layers, a divisor of --hidden; the last layer has one
    #[arg(long, default_value_t = 4)]
    pub heads: usize,
    /// Share of the hidden values that dropout zeroes
    #[arg(long, default_value_t = 0.5)]
    pub dropout: f64,
}

impl ModelConfig {
    /// What is wrong with these options, if anything.
    pub(super) fn problem(&self) -> Option<String> {
        if self.layers > usize::from(u8::MAX) {
            Some(format!("--layers {}: expected at most {}", self.layers, u8::MAX))
        } else if self.hidden == 0 || self.hidden > 1 << 16 {
            Some(format!("--hidden {}: expected 1 to 65536", self.hidden))
        } else if self.kind == ModelKind::Gat && (self.heads == 0 || !self.hidden.is_multiple_of(self.heads)) {
            Some(format!("--heads {} does not divide --hidden {}: choose a divisor", self.heads, self.hidden))
        } else if !(0.0..1.0).contains(&self.dropout) {
            Some(format!("--dropout {}: expected at least 0 and below 1", self.dropout))
        } else {
            None
        }
    }
}
