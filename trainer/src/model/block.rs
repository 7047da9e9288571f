//! One layer of a model with its surroundings: residual, normalisation, activation, dropout.
//!
//! A block computes in two parts, between which batch norm takes its statistics over all ranks:
//!
//! ```text
//! body   pre_activation = layer(input rows) + residual
//! tail   rows = dropout(activation(norm(pre_activation)))
//! ```
//!
//! If nothing has to happen between them, the tail is part of the body and fused into it as far as
//! possible. In pre-activation models (ResGCN+: Li et al., "DeeperGCN", 2020, section 4.2: norm →
//! ReLU → dropout → convolution → addition) the residual is the *pre-activation* of the block
//! below; in other models it is the rows of that block.

use tch::Tensor;

use super::norm::Norm;
use super::{Layer, LayerEdges};
use crate::Result;
use crate::operator::{Activation, Finish, Moments, Place, Rows, linear};

/// Rows that are added to a layer's result.
pub enum Residual {
    /// Nothing.
    None,
    /// The row that the layer reads for the vertex.
    Identity,
    /// The row that the layer reads, times a matrix `[in, out]`, if widths differ.
    Projection(Tensor),
    /// The pre-activation of the block below.
    PreActivation,
}

/// A layer and its surroundings.
pub struct Block {
    /// Aggregates and transforms.
    pub layer: Box<dyn Layer>,
    /// Added to the layer's result.
    pub residual: Residual,
    /// Normalisation.
    pub norm: Norm,
    /// Activation function.
    pub activation: Activation,
    /// Whether dropout follows the activation.
    pub dropout: bool,
    /// Whether the tail runs separately, because its input has other readers or has to be inspected
    /// first.
    pub tail: bool,
}

impl Block {
    /// The rows of the frontier, f32 `[num_frontier, out]`, or their pre-activations if the tail
    /// runs separately. `below` are the pre-activations of the block below, `[num_frontier, out]`,
    /// if they are the residual.
    pub fn body(
        &self,
        edges: &LayerEdges<'_>,
        input: Rows<'_>,
        below: Option<&Tensor>,
        finish: Finish,
    ) -> Result<Tensor> {
        let own = || -> Result<Option<Tensor>> {
            let own = || input.first(edges.num_frontier());
            Ok(match (&self.residual, below) {
                (Residual::Identity, _) => Some(own()?),
                (Residual::Projection(weight), _) => {
                    Some(linear(edges.place(), &own()?, weight, None, Finish::default())?)
                }
                (Residual::PreActivation, Some(below)) => Some(below.shallow_clone()),
                _ => None,
            })
        };
        self.surround(edges.place(), finish, |finish| self.layer.forward(edges, input, finish), own)
    }

    /// Like [`Block::body`], given functions that compute the layer (with the finish passed to it)
    /// and the residual.
    pub fn surround(
        &self,
        place: &Place,
        finish: Finish,
        layer: impl FnOnce(Finish) -> Result<Tensor>,
        residual: impl FnOnce() -> Result<Option<Tensor>>,
    ) -> Result<Tensor> {
        let plain = matches!(self.residual, Residual::None) && matches!(self.norm, Norm::None);
        if plain && !self.tail {
            return layer(finish);
        }
        let mut pre_activation = layer(Finish::default())?;
        if let Some(residual) = residual()? {
            pre_activation = pre_activation.f_add(&residual)?;
        }
        if self.tail {
            Ok(pre_activation)
        } else {
            self.norm.apply(place, &pre_activation, None, finish)
        }
    }

    /// Turns `pre_activation`, which is at `place`, into rows. Batch norm uses `moments`, or else
    /// its running ones.
    pub fn tail(
        &self,
        place: &Place,
        pre_activation: &Tensor,
        moments: Option<&Moments>,
        finish: Finish,
    ) -> Result<Tensor> {
        self.norm.apply(place, pre_activation, moments, finish)
    }
}
