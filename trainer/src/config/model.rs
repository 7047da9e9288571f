//! Options of the model.

use serde::{Deserialize, Serialize};

/// Kinds of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum ModelKind {
    /// GraphSAGE with the mean aggregator (Hamilton et al., 2017); with several types of vertices
    /// R-SAGE, which has weights for each relation
    #[cfg_attr(feature = "cli", value(alias = "rsage"))]
    Sage,
    /// GraphSAGE with the max-pooling aggregator
    SagePool,
    /// Graph convolutional network (Kipf and Welling, 2017)
    Gcn,
    /// Simplified GCN, "S-GCN" (Wu et al., 2019): propagation and one product; --hidden and
    /// --dropout do not apply
    #[cfg_attr(feature = "cli", value(alias = "s-gcn"))]
    Sgc,
    /// Graph isomorphism network (Xu et al., 2019)
    Gin,
    /// Graph attention network (Veličković et al., 2018); with several types of vertices R-GAT,
    /// whose relations have attention of their own
    #[cfg_attr(feature = "cli", value(alias = "rgat"))]
    Gat,
    /// GAT with dynamic attention (Brody et al., 2022)
    Gatv2,
    /// ResGCN+ (Li et al., 2020): norm, ReLU, dropout, graph convolution, addition; for deep models
    #[cfg_attr(feature = "cli", value(alias = "resgcn+"))]
    Resgcn,
}

impl ModelKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Sage,
        Self::SagePool,
        Self::Gcn,
        Self::Sgc,
        Self::Gin,
        Self::Gat,
        Self::Gatv2,
        Self::Resgcn,
    ];

    /// True if its layers weight their sources' rows by attention.
    pub(crate) fn attends(self) -> bool {
        matches!(self, Self::Gat | Self::Gatv2)
    }

    /// True if its layers read their sources' rows only as weighted sums.
    pub fn sums_sources(self) -> bool {
        match self {
            Self::Sage | Self::Gcn | Self::Sgc | Self::Gin | Self::Resgcn => true,
            Self::SagePool | Self::Gat | Self::Gatv2 => false,
        }
    }
}

/// Normalisation before a hidden layer's activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// Nothing
    None,
    /// Each row (Ba et al., 2016)
    Layer,
    /// Each column over the rows of all ranks (Ioffe and Szegedy, 2015)
    Batch,
}

/// Layers whose rows are turned into logits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum JumpingKnowledge {
    /// The last layer's
    #[default]
    None,
    /// The rows of every layer, side by side
    Cat,
    /// The largest value of each column over all layers
    Max,
}

/// Type that factors of dense products, and on GPUs all rows, are rounded to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Dtype {
    /// No rounding: all bits of f32
    #[default]
    F32,
    /// bfloat16, summed in f32; weights, their gradients and checkpoints stay f32. On a CPU for
    /// products only: up to twice as fast with bf16 instructions (`gsplit doctor`), no faster
    /// without. On a GPU for all rows and their gradients too, including features and the rows that
    /// ranks exchange: half the memory
    Bf16,
    /// IEEE half precision, only on GPUs: like bf16 there, with three more bits for numbers up to 65504.
    /// Losses are scaled for it, as torch's GradScaler does
    F16,
}

/// Norm that a feature row is divided by before it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum FeatureNorm {
    /// Nothing
    #[default]
    None,
    /// The sum of its absolute values, unless it is zero: bags of words become shares
    Row,
}

/// A model's shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Kind of layers
    #[cfg_attr(feature = "cli", arg(id = "model", long, value_name = "KIND", value_enum, default_value_t = Self::default().kind))]
    pub kind: ModelKind,
    /// Number of layers, each with its fanout [default: as many as --fanouts]
    #[cfg_attr(feature = "cli", arg(long, default_value_t = Self::default().layers, hide_default_value = true))]
    pub layers: usize,
    /// Width of the hidden layers
    #[cfg_attr(feature = "cli", arg(long, default_value_t = Self::default().hidden))]
    pub hidden: usize,
    /// Attention heads of GAT's and GATv2's hidden layers, a divisor of --hidden; a layer that
    /// returns logits has one
    #[cfg_attr(feature = "cli", arg(long, default_value_t = Self::default().heads))]
    pub heads: usize,
    /// Share of the hidden values that dropout zeroes
    #[cfg_attr(feature = "cli", arg(long, default_value_t = Self::default().dropout))]
    pub dropout: f64,
    /// Share of the features that dropout zeroes
    #[cfg_attr(feature = "cli", arg(long, value_name = "SHARE", default_value_t = 0.0))]
    pub input_dropout: f64,
    /// Share of the attention weights that dropout zeroes, of --model gat and gatv2
    #[cfg_attr(feature = "cli", arg(long, value_name = "SHARE", default_value_t = 0.0))]
    pub attention_dropout: f64,
    /// Divide each feature row where it is used, as recipes for bags of words do; the dataset stays
    /// as it is
    #[cfg_attr(feature = "cli", arg(long, value_name = "BY", value_enum, default_value_t))]
    pub normalise_features: FeatureNorm,
    /// Normalisation before the activation of hidden layers [default: none; layer for resgcn, batch
    /// for gin]
    #[cfg_attr(feature = "cli", arg(long, value_enum))]
    pub norm: Option<NormKind>,
    /// Add its input row to each hidden layer's output, through a trained matrix where the widths
    /// differ
    #[cfg_attr(feature = "cli", arg(long))]
    pub residual: bool,
    /// Compute the logits from the rows of several layers, with one more product (Xu et al., 2018)
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t))]
    pub jumping_knowledge: JumpingKnowledge,
    /// Recompute intermediate values of each layer in the backward pass instead of keeping them:
    /// less memory, more time, the same losses to the bit
    #[cfg_attr(feature = "cli", arg(long))]
    pub checkpoint_activations: bool,
    /// Type that factors of dense products, and on a GPU all rows, are rounded to
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t))]
    pub dtype: Dtype,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            kind: ModelKind::Sage,
            layers: 3,
            hidden: 256,
            heads: 4,
            dropout: 0.5,
            input_dropout: 0.0,
            attention_dropout: 0.0,
            normalise_features: FeatureNorm::None,
            norm: None,
            residual: false,
            jumping_knowledge: JumpingKnowledge::None,
            checkpoint_activations: false,
            dtype: Dtype::F32,
        }
    }
}

impl ModelConfig {
    /// Returns the problem with these options, if any.
    pub(super) fn problem(&self) -> Option<String> {
        let attends = self.kind.attends();
        let shares = [
            ("dropout", self.dropout),
            ("input-dropout", self.input_dropout),
            ("attention-dropout", self.attention_dropout),
        ];
        let extras = self.norm.is_some_and(|norm| norm != NormKind::None)
            || self.residual
            || self.jumping_knowledge != JumpingKnowledge::None;
        if self.layers == 0 || self.layers > usize::from(u8::MAX) {
            Some(format!("--layers {}: expected 1 to {}", self.layers, u8::MAX))
        } else if self.hidden == 0 || self.hidden > 1 << 16 {
            Some(format!("--hidden {}: expected 1 to 65536", self.hidden))
        } else if attends && (self.heads == 0 || !self.hidden.is_multiple_of(self.heads)) {
            Some(format!(
                "--heads {} does not divide --hidden {}: choose a divisor",
                self.heads, self.hidden
            ))
        } else if let Some((option, share)) =
            shares.into_iter().find(|(_, share)| !(0.0..1.0).contains(share))
        {
            Some(format!("--{option} {share}: expected at least 0 and below 1"))
        } else if self.kind == ModelKind::Sgc && extras {
            let options = "--norm, --residual and --jumping-knowledge";
            Some(format!(
                "--model sgc has no hidden layers for {options}: leave them out, or choose gcn"
            ))
        } else if self.kind == ModelKind::Resgcn && self.residual {
            Some("--residual: resgcn adds its layers up already: leave it out".into())
        } else {
            None
        }
    }

    /// Returns this shape with the default for the norm if it is not given.
    pub(super) fn effective(&self) -> Self {
        Self { norm: Some(self.norm()), ..self.clone() }
    }

    /// Returns the problem with an attention option of a model without attention, if any.
    pub(super) fn unread_problem(&self) -> Option<String> {
        let attends = self.kind.attends();
        super::unread(&[
            ("attention-dropout", self.attention_dropout > 0.0, attends, "--model gat and gatv2"),
            ("heads", self.heads != Self::default().heads, attends, "--model gat and gatv2"),
        ])
    }
}
