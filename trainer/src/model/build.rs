//! Builds the blocks of a model from its configuration.

use gsplit_store::attempt;

use super::block::{Block, Residual};
use super::head::Head;
use super::norm::Norm;
use super::parameters::Parameters;
use super::scorer::{Mlp, PairScorer};
use super::{Layer, LayerShape, Model, OwnLayer, gat, gatv2, gcn, gin, pool, sage};
use crate::config::{Config, JumpingKnowledge, ModelConfig, ModelKind, NormKind, ScorerKind, TaskKind};
use crate::model::Input;
use crate::operator::Place;
use crate::operator::{Activation, Engine};
use crate::{Error, Result};

impl Model {
    /// Builds the model of `config` for `in_dim` features and `classes` outputs, on the host, initialised from the seed only.
    pub fn new(config: &Config, in_dim: usize, classes: usize) -> Self {
        Self::with_layers(&Place::Host(Engine::of(config.model.dtype)), config, in_dim, classes, None)
    }

    /// Like [`Model::new`], at `place`; layers are made by `make`, if given, instead of by the kind in the
    /// configuration.
    pub fn with_layers(place: &Place, config: &Config, in_dim: usize, classes: usize, make: Option<&OwnLayer>) -> Self {
        let (seed, config, task) = (config.run.seed, &config.model, &config.data.task);
        let mut parameters = Parameters::new(seed, place);
        let has_head = config.has_head();
        let mut width = in_dim;
        let mut blocks = Vec::with_capacity(config.layers);
        for index in 0..config.layers {
            let hidden = has_head || index + 1 < config.layers;
            let shape = LayerShape { index, input: width, out: if hidden { config.hidden } else { classes }, hidden };
            let block = block(config, &mut parameters, &shape, in_dim, classes, make);
            width = block.layer.out_dim();
            blocks.push(block);
        }
        let shape = [config.layers, config.hidden, classes];
        let head = has_head.then(|| Head::new(&mut parameters.below("head".into()), config.jumping_knowledge, shape));
        let pair_scorer = match (task.task(), task.scorer) {
            (TaskKind::Link, ScorerKind::Mlp) => {
                PairScorer::Mlp(Mlp::new(&mut parameters.below("scorer".into()), place, classes, config.hidden))
            }
            _ => PairScorer::Dot,
        };
        let pre_activation = config.kind == ModelKind::Resgcn;
        let checkpoint_activations = config.checkpoint_activations;
        let input = Input::new(config);
        let place = place.clone();
        Self { place, blocks, pre_activation, head, classes, checkpoint_activations, input, pair_scorer, parameters }
    }
}

fn block(
    config: &ModelConfig,
    parameters: &mut Parameters,
    shape: &LayerShape,
    in_dim: usize,
    classes: usize,
    make: Option<&OwnLayer>,
) -> Block {
    let (kind, index) = (config.kind, shape.index);
    let mut named = parameters.below(format!("layers.{index}"));
    let linear = kind == ModelKind::Sgc && make.is_none();
    let norm = if shape.hidden && !linear { config.norm() } else { NormKind::None };
    if norm == NormKind::Batch {
        named.centre();
    }
    let heads = if shape.hidden { config.heads } else { 1 };
    let attention_dropout = config.attention_dropout as f32;
    let (input, out) = (shape.input, shape.out);
    let layer: Box<dyn Layer> = match (make, kind) {
        (Some(make), _) => make.make(&mut named, shape),
        (_, ModelKind::Sage) => Box::new(sage::Sage::new(&mut named, input, out)),
        (_, ModelKind::SagePool) => Box::new(pool::SagePool::new(&mut named, input, out)),
        (_, ModelKind::Gcn | ModelKind::Resgcn) => Box::new(gcn::Gcn::new(&mut named, input, out)),
        (_, ModelKind::Sgc) => Box::new(gcn::Gcn::simplified(&mut named, index, config.layers, in_dim, classes)),
        (_, ModelKind::Gin) => Box::new(gin::Gin::new(&mut named, input, out)),
        (_, ModelKind::Gat) => Box::new(gat::Gat::new(&mut named, input, out, heads, attention_dropout)),
        (_, ModelKind::Gatv2) => Box::new(gatv2::GatV2::new(&mut named, input, out, heads, attention_dropout)),
    };
    let pre_activation = kind == ModelKind::Resgcn;
    if !shape.hidden || linear {
        let (residual, norm, activation) = (Residual::None, Norm::None, Activation::Identity);
        return Block { layer, residual, norm, activation, dropout: false, tail: false };
    }
    let residual = match () {
        () if pre_activation && index > 0 => Residual::PreActivation,
        () if pre_activation || !config.residual => Residual::None,
        () if input == out => Residual::Identity,
        () => Residual::Projection(named.glorot("residual", [input, out])),
    };
    let norm = Norm::new(&mut named, norm, out);
    let tail = pre_activation || norm.needs_moments();
    Block { residual, norm, activation: layer.activation(), dropout: true, tail, layer }
}

impl ModelConfig {
    /// Whether all layers are hidden, with a product after the last.
    pub(crate) fn has_head(&self) -> bool {
        self.kind == ModelKind::Resgcn || self.jumping_knowledge != JumpingKnowledge::None
    }

    /// The normalisation; by default the one that the kind of model usually has.
    pub(crate) fn norm(&self) -> NormKind {
        self.norm.unwrap_or(match self.kind {
            ModelKind::Resgcn => NormKind::Layer,
            // As in the paper: sums over neighbourhoods of any size grow from layer to layer.
            ModelKind::Gin => NormKind::Batch,
            _ => NormKind::None,
        })
    }
}

/// Rejects a model that does not fit in the machine's memory, instead of failing in the middle of training.
pub fn check_size(config: &Config, in_dim: usize, classes: usize) -> Result<()> {
    /// Copies of each parameter that a rank holds during an update: value, gradient (twice), two moments, change.
    const COPIES: f64 = 6.0;
    let hidden = std::iter::repeat_n(config.model.hidden, config.model.layers - 1);
    let widths: Vec<f64> = std::iter::once(in_dim).chain(hidden).chain([classes]).map(|width| width as f64).collect();
    let of_layer = |input: f64, out: f64| match config.model.kind {
        ModelKind::Sgc => 0.0,
        ModelKind::Gcn | ModelKind::Gat | ModelKind::Resgcn => (input + 1.0) * out,
        ModelKind::Sage | ModelKind::Gatv2 => 2.0 * (input + 1.0) * out,
        ModelKind::Gin => (input + out) * out,
        ModelKind::SagePool => 2.0 * (input + 1.0) * out + input * input,
    };
    let hidden = config.model.hidden as f64;
    let of_scorer = match config.data.task.scorer {
        ScorerKind::Mlp => (classes as f64 + 2.0) * hidden,
        ScorerKind::Dot => 0.0,
    };
    let values: f64 = widths.windows(2).map(|pair| of_layer(pair[0], pair[1])).sum::<f64>() + of_scorer;
    let bytes = values * COPIES * size_of::<f32>() as f64 * config.num_ranks() as f64;
    let mut room: Vec<u8> = Vec::new();
    let refused = attempt(|| room.try_reserve_exact(bytes as usize)).is_err();
    std::hint::black_box(&room); // or the compiler leaves the attempt out
    match refused {
        false => Ok(()),
        true => Err(Error::Option(format!(
            "--hidden {}: training {} layers on {} ranks takes {:.0} GiB, more than there is: choose a smaller --hidden",
            config.model.hidden,
            config.model.layers,
            config.num_ranks(),
            bytes / f64::from(1 << 30)
        ))),
    }
}
