//! Models, as stacks of [`Layer`]s written with the [operators](crate::operator) and with plain
//! `tch`.
//!
//! No layer knows about ranks: it takes the hidden rows of its mixed frontier (its vertices and
//! their sampled in-neighbours), wherever they came from, and returns those of its local frontier.
//! The surroundings of a layer (residual, normalisation, activation, dropout, jumping knowledge)
//! are the same for all: `block.rs`, `head.rs`.
//!
//! To add a model, implement [`Layer`] in a new file (`sage.rs` is one screen) and name it in
//! `build.rs`. A program that uses this crate can train its own layer without changing it;
//! `examples/own_layer.rs` is a complete one in one file:
//!
//! ```no_run
//! use gsplit_trainer::model::{Layer, LayerEdges, OwnLayer};
//! use gsplit_trainer::operator::{Finish, Reduce, Rows, aggregate, linear};
//! use gsplit_trainer::{Hooks, Result};
//! use tch::Tensor;
//!
//! /// h' = W (sum of h(u) over the sampled in-edges u → v)
//! struct Sum {
//!     weight: Tensor,
//!     out: usize,
//! }
//!
//! impl Layer for Sum {
//!     fn forward(&self, edges: &LayerEdges<'_>, input: Rows<'_>, finish: Finish) -> Result<Tensor> {
//!         let sum = aggregate(&edges.edges, Reduce::Sum, input, None, false)?;
//!         linear(edges.place(), &sum, &self.weight, None, finish)
//!     }
//!
//!     fn out_dim(&self) -> usize {
//!         self.out
//!     }
//! }
//!
//! let layer = OwnLayer::new(|named, shape| {
//!     Box::new(Sum { weight: named.glorot("weight", [shape.input, shape.out]), out: shape.out })
//! });
//! let hooks = Hooks { layer: Some(layer), ..Hooks::default() }; // for gsplit_trainer::train
//! ```

mod block;
mod build;
mod columns;
mod edges;
mod embeddings;
mod encoder;
mod gat;
mod gatv2;
mod gcn;
mod gin;
mod head;
pub mod held;
mod infer;
mod input;
mod norm;
mod order;
mod parameters;
mod pool;
mod relational;
mod sage;
mod score;
mod scorer;

use std::sync::Arc;

use gsplit_kernels::Stream;
use gsplit_kernels::schedule::Step;
use tch::{Device, Kind, Tensor};

use crate::Result;
use crate::config::Dtype;
use crate::operator::{Activation, Dropout, Finish, Ids, Moments, Place, ReluAbove, Rows};
use block::{Block, Residual};
pub use columns::ByColumns;
pub use edges::LayerEdges;
pub use embeddings::{Embeddings, LearntValues, LookedUp, Shard};
pub use encoder::{Encoders, Typed};
use head::Head;
pub use input::Input;
use norm::Norm;
pub use order::{Order, order_of_layer};
pub use parameters::{Named, Parameters};
#[cfg(test)]
pub use score::dot;
pub use scorer::{PairScorer, Pairs};

/// One layer of a graph neural network. It can be moved to another thread, but is used by one
/// thread at a time.
pub trait Layer: Send {
    /// Computes the rows of the local frontier, `[num_frontier, out]`, from `input`: the rows of
    /// the frontier's vertices, then of their sampled in-neighbours (the mixed frontier), f32
    /// `[num_sources, in]` ([`Rows::tensor`]), with `finish` applied
    /// ([`finished`](crate::operator::finished)): f32, or rounded as `finish` says. Never called
    /// with an empty frontier.
    fn forward(&self, edges: &LayerEdges<'_>, input: Rows<'_>, finish: Finish) -> Result<Tensor>;

    /// Width of the rows it returns.
    fn out_dim(&self) -> usize;

    /// Activation after a hidden layer of this type.
    fn activation(&self) -> Activation {
        Activation::Relu
    }

    /// True if the layer reads hidden rows by one call of [`aggregate`](crate::operator::aggregate)
    /// or by none, and by nothing else where it does, and if its last step is an operator that is
    /// given `finish`. A GPU then takes gradients back through ReLU while it sums them. A layer
    /// that reads rows twice must not claim this: its gradients would be wrong.
    fn aggregates_once(&self) -> bool {
        false
    }

    /// This layer by columns of its input rows, if its first step is linear in them: for
    /// `--parallelism push-pull`.
    fn by_columns(&self) -> Option<&dyn ByColumns> {
        None
    }
}

/// Shape of a layer, and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// Its number, from 0 at the features.
    pub index: usize,
    /// Width of the rows that it reads.
    pub input: usize,
    /// Width of the rows that it must return.
    pub out: usize,
    /// Whether another layer or a product follows; if not, it returns logits.
    pub hidden: bool,
}

type MakeLayer = dyn Fn(&mut Named<'_>, &LayerShape) -> Box<dyn Layer> + Send + Sync;

/// Constructor of a program's own layers, for [`Hooks::layer`](crate::Hooks::layer).
#[derive(Clone)]
pub struct OwnLayer(Arc<MakeLayer>);

impl OwnLayer {
    /// `make` is called for each layer on each rank, from the features upwards, and once more for
    /// evaluation on each rank except the first. The layer's name is prepended to the names of its
    /// parameters.
    pub fn new(
        make: impl Fn(&mut Named<'_>, &LayerShape) -> Box<dyn Layer> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(make))
    }

    fn make(&self, named: &mut Named<'_>, shape: &LayerShape) -> Box<dyn Layer> {
        (self.0)(named, shape)
    }
}

impl std::fmt::Debug for OwnLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnLayer")
    }
}

/// Parameters of dropout.
#[derive(Clone, Copy, Debug)]
pub struct DropoutKey {
    /// Fraction of zeroed values.
    pub probability: f64,
    /// The mini-batch.
    pub step: Step,
}

/// Vertices whose rows a layer computes.
pub struct Frontier {
    /// The vertices: dropout is drawn by vertex, so it is the same whichever rank computes a row.
    pub vertices: Ids,
    /// Number of rows that the next exchange brings, for which to leave room behind these rows
    /// ([`Finish::room`]).
    pub room: usize,
    /// See [`Finish::above`].
    pub above: Option<Arc<ReluAbove>>,
}

impl<T: Into<Ids>> From<T> for Frontier {
    fn from(vertices: T) -> Self {
        Self { vertices: vertices.into(), room: 0, above: None }
    }
}

/// A stack of layers with its parameters.
pub struct Model {
    place: Place,
    blocks: Vec<Block>,
    /// Whether a block adds to the pre-activation of the block below, not to its rows.
    pre_activation: bool,
    head: Option<Head>,
    classes: usize,
    checkpoint_activations: bool,
    input: Input,
    /// Makes the rows that the lowest layer reads, if there are several types of vertices.
    encoders: Option<Encoders>,
    pair_scorer: PairScorer,
    parameters: Parameters,
}

impl Model {
    /// Place of its parameters and computation.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Number of layers.
    pub fn num_layers(&self) -> usize {
        self.blocks.len()
    }

    /// The parameters, in a fixed order.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Transformation of feature rows before the model reads them, outside training.
    pub(crate) fn input(&self) -> &Input {
        &self.input
    }

    /// Scorer of pairs of the rows that the model returns, for link prediction.
    pub(crate) fn pair_scorer(&self) -> &PairScorer {
        &self.pair_scorer
    }

    /// Makes the rows that the lowest layer reads, if there are several types of vertices.
    pub(crate) fn encoders(&self) -> Option<&Encoders> {
        self.encoders.as_ref()
    }

    /// Width of the rows that the lowest layer reads; `features` is that of feature rows.
    pub(crate) fn in_dim(&self, features: usize) -> usize {
        self.encoders.as_ref().map_or(features, Encoders::width)
    }

    /// Width of the rows of layer `index`, counted from the features upwards.
    pub fn width(&self, index: usize) -> usize {
        self.blocks[index].layer.out_dim()
    }

    /// Whether values inside layers are recomputed in the backward pass instead of kept.
    pub fn checkpoints_activations(&self) -> bool {
        self.checkpoint_activations
    }

    /// Lets the layer above compute the gradient before the ReLU of layer `index`, if ReLU and
    /// dropout make its rows from a sum or product, and if only the layer above reads them (a
    /// residual would read them too).
    pub fn relu_above(&self, index: usize, dropout: Option<DropoutKey>) -> Option<Arc<ReluAbove>> {
        let (block, above) = (&self.blocks[index], self.blocks.get(index + 1)?);
        let is_relu =
            block.activation == Activation::Relu && matches!(block.norm, Norm::None) && !block.tail;
        let layers_agree = [block, above].iter().all(|block| block.layer.aggregates_once());
        let read_once =
            matches!(above.residual, Residual::None) && !self.logits_of().contains(&index);
        let probability =
            dropout.filter(|_| block.dropout).map_or(0.0, |dropout| dropout.probability as f32);
        let may = is_relu && layers_agree && read_once && self.place.gpu().is_some();
        may.then(|| Arc::new(ReluAbove::new(probability)))
    }

    /// Whether [`Model::tail`] must follow the [`Model::body`] of layer `index`.
    pub fn has_tail(&self, index: usize) -> bool {
        self.blocks[index].tail
    }

    /// Whether layer `index` adds the pre-activation of the layer below, of whose rows it uses the
    /// first.
    pub fn adds_sums(&self, index: usize) -> bool {
        matches!(self.blocks[index].residual, Residual::PreActivation)
    }

    /// Whether the tail of layer `index` needs the moments of its pre-activations over all ranks,
    /// during training.
    pub fn needs_moments(&self, index: usize) -> bool {
        self.blocks[index].norm.needs_moments()
    }

    /// Updates the running moments of layer `index`, used outside training, with those of a
    /// mini-batch.
    pub fn observe(&self, index: usize, moments: &Moments) -> Result<()> {
        self.blocks[index].norm.observe(moments)
    }

    /// The rows of layer `index`, counted from the features upwards, `[num_frontier, width]`, or
    /// the pre-activations that its tail takes. They are f32, except that rows for another layer or
    /// product have the type in which a GPU keeps rows. `below` holds the frontier's rows of the
    /// pre-activation of the layer below, if it is added. An empty frontier gives an empty tensor
    /// without gradient.
    pub fn body<'a>(
        &self,
        index: usize,
        edges: &LayerEdges<'_>,
        input: impl Into<Rows<'a>>,
        below: Option<&Tensor>,
        frontier: impl Into<Frontier>,
        dropout: Option<DropoutKey>,
    ) -> Result<Tensor> {
        let input = input.into();
        let trained = dropout.map(|dropout| edges.trained_at(dropout.step, index));
        let edges = trained.as_ref().unwrap_or(edges);
        let body = |finish| self.blocks[index].body(edges, input, below, finish);
        self.body_of(index, frontier.into(), dropout, body)
    }

    /// Result of layer `index`; empty for an empty frontier.
    fn body_of(
        &self,
        index: usize,
        frontier: Frontier,
        dropout: Option<DropoutKey>,
        body: impl FnOnce(Finish) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let rows = match frontier.vertices.is_empty() {
            true => self.no_rows(index)?,
            false => body(self.finish(index, frontier, dropout))?,
        };
        self.rounded(index, !self.has_tail(index), rows)
    }

    /// The rows of layer `index` from its pre-activation, of the same shape. During training, batch
    /// norm uses `moments`.
    pub fn tail(
        &self,
        index: usize,
        pre_activation: &Tensor,
        moments: Option<&Moments>,
        frontier: impl Into<Frontier>,
        dropout: Option<DropoutKey>,
    ) -> Result<Tensor> {
        let frontier = frontier.into();
        if frontier.vertices.is_empty() {
            return self.rounded(index, true, self.no_rows(index)?);
        }
        let rows = self.blocks[index].tail(
            &self.place,
            pre_activation,
            moments,
            self.finish(index, frontier, dropout),
        )?;
        self.rounded(index, true, rows)
    }

    /// The layers from which [`Model::logits`] takes the seeds' rows, from the features upwards.
    pub fn logits_of(&self) -> std::ops::Range<usize> {
        let layers = self.blocks.len();
        match self.head.as_ref().is_some_and(Head::reads_all) {
            true => 0..layers,
            false => layers - 1..layers,
        }
    }

    /// Logits of the seeds, f32 `[seeds, classes]`, from their rows in the layers
    /// [`Model::logits_of`].
    pub fn logits(&self, rows: &[&Tensor]) -> Result<Tensor> {
        match &self.head {
            Some(_) if rows[0].size()[0] == 0 => {
                Ok(Tensor::f_zeros([0, self.classes as i64], self.options())?)
            }
            Some(head) => head.logits(&self.place, rows),
            None => Ok(rows[0].shallow_clone()),
        }
    }

    fn no_rows(&self, index: usize) -> Result<Tensor> {
        Ok(Tensor::f_zeros([0, self.width(index) as i64], self.options())?)
    }

    /// The type of the rows of layer `index`; logits are always f32.
    fn dtype_of(&self, index: usize) -> Dtype {
        match index + 1 < self.blocks.len() || self.head.is_some() {
            true => self.place.row_dtype(),
            false => Dtype::F32,
        }
    }

    /// Converts the `finished` rows of layer `index` to their type, if the layer itself has not
    /// rounded them.
    fn rounded(&self, index: usize, finished: bool, rows: Tensor) -> Result<Tensor> {
        match self.dtype_of(index) {
            dtype @ (Dtype::Bf16 | Dtype::F16) if finished => Ok(rows.f_totype(dtype.kind())?),
            _ => Ok(rows),
        }
    }

    fn options(&self) -> (Kind, Device) {
        (Kind::Float, self.place.device())
    }

    fn finish(&self, index: usize, frontier: Frontier, dropout: Option<DropoutKey>) -> Finish {
        let block = &self.blocks[index];
        let dropout =
            dropout.filter(|dropout| block.dropout && dropout.probability > 0.0).map(|dropout| {
                let key = dropout.step.key(Stream::Dropout, index as u8);
                Dropout { ids: frontier.vertices, probability: dropout.probability as f32, key }
            });
        Finish {
            activation: block.activation,
            dropout,
            dtype: self.dtype_of(index),
            room: frontier.room,
            above: frontier.above,
        }
    }
}
