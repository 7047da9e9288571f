//! Models, as stacks of [`Layer`]s written in plain `tch`.
//!
//! No layer knows about ranks: it is given the hidden rows of its mixed frontier, wherever they came from, and returns
//! those of its local frontier. To add a model, implement [`Layer`] in a file of its own (`sage.rs` is one screen) and
//! name it in [`Model::new`].

mod gat;
mod parameters;
mod sage;

use gsplit_kernels::{Stream, StreamKey, dropout_mask};
use tch::{Kind, Tensor};

use crate::config::{ModelKind, TrainConfig};
use crate::{Error, Result};
pub use parameters::Parameters;

/// The sampled edges of one layer, as tensors.
#[derive(Debug)]
pub struct LayerEdges {
    /// i64 `[num_frontier + 1]`: in-edges of frontier row `i` are `sources[indptr[i]..indptr[i + 1]]`.
    pub indptr: Tensor,
    /// i64 `[num_edges]`: source of each edge as a row of the mixed frontier.
    pub sources: Tensor,
    /// Rows to compute; row `i` of the frontier is row `i` of the mixed frontier.
    pub num_frontier: i64,
    /// Rows to read.
    pub num_mixed: i64,
}

impl LayerEdges {
    /// Widens the sampler's arrays.
    pub fn new(indptr: &[u32], local: &[u32], num_mixed: usize) -> Self {
        let widen =
            |values: &[u32]| Tensor::from_slice(&values.iter().map(|&value| i64::from(value)).collect::<Vec<_>>());
        Self {
            indptr: widen(indptr),
            sources: widen(local),
            num_frontier: indptr.len() as i64 - 1,
            num_mixed: num_mixed as i64,
        }
    }

    /// i64 `[num_frontier]`: sampled in-degree of each frontier row.
    pub fn degrees(&self) -> Tensor {
        self.indptr.narrow(0, 1, self.num_frontier) - self.indptr.narrow(0, 0, self.num_frontier)
    }
}

/// One layer of a graph neural network.
pub trait Layer {
    /// From the hidden rows of the mixed frontier, f32 `[num_mixed, in]`, to those of the local frontier, f32
    /// `[num_frontier, out]`, before activation. Never called with an empty frontier.
    fn forward(&self, edges: &LayerEdges, mixed: &Tensor) -> Tensor;

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
    let hidden = std::iter::repeat_n(config.hidden, config.layers - 1);
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
            config.hidden,
            config.layers,
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
        let layers = (0..config.layers)
            .map(|index| {
                let last = index + 1 == config.layers;
                let out = if last { classes } else { config.hidden };
                let heads = if last { 1 } else { config.heads };
                let mut named = parameters.below(format!("layers.{index}"));
                let layer: Box<dyn Layer> = match config.model {
                    ModelKind::Sage => Box::new(sage::Sage::new(&mut named, width, out)),
                    ModelKind::Gat => Box::new(gat::Gat::new(&mut named, width, out, heads)),
                };
                width = out;
                layer
            })
            .collect();
        Self { kind: config.model, layers, parameters }
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
    pub fn layer(
        &self,
        index: usize,
        edges: &LayerEdges,
        mixed: &Tensor,
        frontier: &[u32],
        dropout: Option<DropoutKey>,
    ) -> Result<Tensor> {
        let dim = self.out_dim(index);
        if frontier.is_empty() {
            return Ok(Tensor::zeros([0, dim as i64], (Kind::Float, mixed.device())));
        }
        let out = self.layers[index].forward(edges, mixed);
        if index + 1 == self.layers.len() {
            return Ok(out);
        }
        let out = match self.kind {
            ModelKind::Sage => out.relu(),
            ModelKind::Gat => out.elu(),
        };
        let Some(dropout) = dropout.filter(|dropout| dropout.probability > 0.0) else { return Ok(out) };
        let (seed, epoch, step) = dropout.at;
        let key = StreamKey { seed, epoch, step, stream: Stream::Dropout, layer: index as u8 };
        let mut mask = vec![0f32; frontier.len() * dim];
        dropout_mask(frontier, dim, dropout.probability as f32, &key, &mut mask)?;
        Ok(out * Tensor::from_slice(&mask).view([frontier.len() as i64, dim as i64]))
    }
}

/// Weighted sums of rows: row `i` of the result is the sum over its edges of `weight × rows[source]`; the mean of the
/// rows with no weights. Edges of row `i` are `sources[indptr[i]..indptr[i + 1]]`; rows without edges are zero.
///
/// This is torch's `embedding_bag`, which never builds a row per edge, forwards or (for dense gradients) backwards.
fn aggregate(rows: &Tensor, sources: &Tensor, indptr: &Tensor, weights: Option<&Tensor>) -> Tensor {
    const SUM: i64 = 0;
    const MEAN: i64 = 1;
    let mode = if weights.is_some() { SUM } else { MEAN };
    Tensor::embedding_bag(rows, sources, indptr, false, mode, false, weights, true).0
}
