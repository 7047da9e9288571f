//! Builds the blocks of a model from its configuration.

use super::block::{Block, Residual};
use super::head::Head;
use super::norm::Norm;
use super::parameters::Parameters;
use super::relational::{Relational, RelationalAttention};
use super::scorer::{Mlp, PairScorer};
use super::{
    Encoders, Layer, LayerShape, Model, OwnLayer, Typed, gat, gatv2, gcn, gin, pool, sage,
};
use crate::config::{
    Config, JumpingKnowledge, ModelConfig, ModelKind, NormKind, ScorerKind, TaskKind,
};
use crate::model::Input;
use crate::operator::{Activation, Engine, Place};

impl Model {
    /// Builds the model of `config` for `in_dim` features and `classes` outputs, on the host,
    /// initialised from the seed only.
    pub fn new(config: &Config, in_dim: usize, classes: usize) -> Self {
        Self::with_layers(
            &Place::Host(Engine::of(config.model.dtype)),
            config,
            in_dim,
            classes,
            None,
            None,
        )
    }

    /// Like [`Model::new`], at `place`; layers are made by `make`, if given, instead of by the kind
    /// in the configuration. With `typed`, vertices have several types, and layers weights for each
    /// relation.
    pub fn with_layers(
        place: &Place,
        config: &Config,
        in_dim: usize,
        classes: usize,
        make: Option<&OwnLayer>,
        typed: Option<&Typed>,
    ) -> Self {
        let (seed, config, task) = (config.run.seed, &config.model, &config.data.task);
        let mut parameters = Parameters::new(seed, place);
        let has_head = config.has_head();
        let encoders = typed.map(|typed| Encoders::new(&mut parameters, typed, config.hidden));
        let mut width = encoders.as_ref().map_or(in_dim, Encoders::width);
        let mut blocks = Vec::with_capacity(config.layers);
        for index in 0..config.layers {
            let hidden = has_head || index + 1 < config.layers;
            let shape = LayerShape {
                index,
                input: width,
                out: if hidden { config.hidden } else { classes },
                hidden,
            };
            let block = block(config, &mut parameters, &shape, in_dim, classes, make, typed);
            width = block.layer.out_dim();
            blocks.push(block);
        }
        let shape = [config.layers, config.hidden, classes];
        let head = has_head.then(|| {
            Head::new(&mut parameters.below("head".into()), config.jumping_knowledge, shape)
        });
        let pair_scorer = match (task.task(), task.scorer) {
            (TaskKind::Link, ScorerKind::Mlp) => PairScorer::Mlp(Mlp::new(
                &mut parameters.below("scorer".into()),
                place,
                classes,
                config.hidden,
            )),
            _ => PairScorer::Dot,
        };
        let pre_activation = config.kind == ModelKind::Resgcn;
        let checkpoint_activations = config.checkpoint_activations;
        let input = Input::new(config);
        let place = place.clone();
        Self {
            place,
            blocks,
            pre_activation,
            head,
            classes,
            checkpoint_activations,
            input,
            encoders,
            pair_scorer,
            parameters,
        }
    }
}

fn block(
    config: &ModelConfig,
    parameters: &mut Parameters,
    shape: &LayerShape,
    in_dim: usize,
    classes: usize,
    make: Option<&OwnLayer>,
    typed: Option<&Typed>,
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
        (_, ModelKind::Gat) if let Some(typed) = typed => {
            let (types, dropout) = (&typed.types, attention_dropout);
            Box::new(RelationalAttention::new(&mut named, types, input, out, heads, dropout))
        }
        (_, _) if let Some(typed) = typed => {
            Box::new(Relational::new(&mut named, &typed.types, input, out))
        }
        (_, ModelKind::Sage) => Box::new(sage::Sage::new(&mut named, input, out)),
        (_, ModelKind::SagePool) => Box::new(pool::SagePool::new(&mut named, input, out)),
        (_, ModelKind::Gcn | ModelKind::Resgcn) => Box::new(gcn::Gcn::new(&mut named, input, out)),
        (_, ModelKind::Sgc) => {
            Box::new(gcn::Gcn::simplified(&mut named, index, config.layers, in_dim, classes))
        }
        (_, ModelKind::Gin) => Box::new(gin::Gin::new(&mut named, input, out)),
        (_, ModelKind::Gat) => {
            Box::new(gat::Gat::new(&mut named, input, out, heads, attention_dropout))
        }
        (_, ModelKind::Gatv2) => {
            Box::new(gatv2::GatV2::new(&mut named, input, out, heads, attention_dropout))
        }
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
