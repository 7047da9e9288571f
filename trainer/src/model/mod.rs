//! Models, as stacks of [`Layer`]s written with the [operators](crate::operator) and with plain `tch`.
//!
//! No layer knows about ranks: it is given the hidden rows of its mixed frontier, wherever they came from, and returns
//! those of its local frontier. To add a model, implement [`Layer`] in a file of its own (`sage.rs` is one screen) and
//! name it in [`Model::new`].

mod gat;
mod order;
mod parameters;
mod sage;

use std::sync::Arc;

use gsplit_kernels::{Edges, Stream, StreamKey};
use tch::{Device, Kind, Tensor};

use crate::config::{ModelKind, TrainConfig};
use crate::operator::{Activation, Dropout, Finish, Rows};
use crate::{Error, Result};
pub use parameters::Parameters;

/// The sampled edges of one layer, and what of them a layer computes.
#[derive(Clone, Debug)]
pub struct LayerEdges {
    /// Edges from rows of the mixed frontier to rows of the frontier; row `i` of the frontier is row `i` of the mixed
    /// frontier.
    pub edges: Arc<Edges>,
}

impl LayerEdges {
    /// In-edges of frontier row `i` come from rows `local[indptr[i]..indptr[i + 1]]` of the mixed frontier.
    ///
    /// # Panics
    /// If these are not the arrays of a sample.
    pub fn new(indptr: &[u32], local: &[u32], num_mixed: usize) -> Self {
        let edges = Edges::new(indptr.to_vec(), local.to_vec(), num_mixed);
        Self { edges: Arc::new(edges.unwrap_or_else(|problem| panic!("a sampled layer: {problem}"))) }
    }
}

/// One layer of a graph neural network.
pub trait Layer {
    /// From the rows of the mixed frontier, f32 `[num_mixed, in]` ([`Rows::tensor`]), to those of the local frontier, f32
    /// `[num_frontier, out]`, with `finish` applied. Never called with an empty frontier.
    fn forward(&self, edges: &LayerEdges, mixed: Rows<'_>, finish: Finish) -> Result<Tensor>;

    /// Width of the rows it returns.
    fn out_dim(&self) -> usize;
}

/// What dropout needs to know.
#[derive(Clone, Copy, Debug)]
pub struct DropoutKey {
    /// Share of zeroed values.
    pub probability: f64,
    /// Seed, epoch and step of the mini-batch.
    pub at: (u64, u32, u32),
}

/// A stack of layers with its parameters.
pub struct Model {
    kind: ModelKind,
    layers: Vec<Box<dyn Layer>>,
    parameters: Parameters,
}

/// Refuses a model that the machine would never have the memory for, before training dies of it half-way.
pub fn check_size(config: &TrainConfig, in_dim: usize, classes: usize) -> Result<()> {
    /// What a rank holds of each parameter while it updates: value, gradient (twice), two moments, change.
    const COPIES: f64 = 6.0;
    let hidden = std::iter::repeat_n(config.model.hidden, config.model.layers - 1);
    let widths: Vec<f64> = std::iter::once(in_dim).chain(hidden).chain([classes]).map(|width| width as f64).collect();
    let values: f64 = widths.windows(2).map(|pair| 2.0 * (pair[0] + 1.0) * pair[1]).sum();
    let bytes = values * COPIES * size_of::<f32>() as f64 * config.num_ranks() as f64;
    let mut room: Vec<u8> = Vec::new();
    let refused = room.try_reserve_exact(bytes as usize).is_err();
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

impl Model {
    /// Builds the model of `config` for `in_dim` features and `classes` outputs, initialised from the seed alone.
    pub fn new(config: &TrainConfig, in_dim: usize, classes: usize) -> Self {
        let mut parameters = Parameters::new(config.seed);
        let mut width = in_dim;
        let layers = (0..config.model.layers)
            .map(|index| {
                let last = index + 1 == config.model.layers;
                let out = if last { classes } else { config.model.hidden };
                let heads = if last { 1 } else { config.model.heads };
                let mut named = parameters.below(format!("layers.{index}"));
                let layer: Box<dyn Layer> = match config.model.kind {
                    ModelKind::Sage => Box::new(sage::Sage::new(&mut named, width, out)),
                    ModelKind::Gat => Box::new(gat::Gat::new(&mut named, width, out, heads)),
                };
                width = out;
                layer
            })
            .collect();
        Self { kind: config.model.kind, layers, parameters }
    }

    /// Number of layers.
    pub fn num_layers(&self) -> usize {
        self.layers.len()
    }

    /// The parameters, in a fixed order.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Width of what layer `index`, counted from the features upwards, returns.
    pub fn out_dim(&self, index: usize) -> usize {
        self.layers[index].out_dim()
    }

    /// Layer `index`, counted from the features upwards, with activation and, when given, dropout; the last layer
    /// returns logits. `frontier` holds the vertices of the rows computed: dropout is drawn by vertex, so it is the same
    /// whichever rank computes a row. An empty frontier gives an empty tensor without gradient.
    pub fn layer<'a>(
        &self,
        index: usize,
        edges: &LayerEdges,
        mixed: impl Into<Rows<'a>>,
        frontier: &[u32],
        dropout: Option<DropoutKey>,
    ) -> Result<Tensor> {
        let dim = self.out_dim(index);
        if frontier.is_empty() {
            return Ok(Tensor::zeros([0, dim as i64], (Kind::Float, Device::Cpu)));
        }
        let last = index + 1 == self.layers.len();
        let activation = match self.kind {
            _ if last => Activation::Identity,
            ModelKind::Sage => Activation::Relu,
            ModelKind::Gat => Activation::Elu,
        };
        let dropout = dropout.filter(|dropout| !last && dropout.probability > 0.0).map(|dropout| {
            let (seed, epoch, step) = dropout.at;
            let key = StreamKey { seed, epoch, step, stream: Stream::Dropout, layer: index as u8 };
            Dropout { ids: frontier.into(), probability: dropout.probability as f32, key }
        });
        self.layers[index].forward(edges, mixed.into(), Finish { activation, dropout })
    }
}
