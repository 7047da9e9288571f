//! GraphSAGE with the mean aggregator (Hamilton, Ying and Leskovec, NeurIPS 2017):
//! h'(v) = W_self h(v) + W_neigh mean of h(u) over the sampled in-edges u → v + b.
//!
//! The mean is linear, so W_neigh may come before or after it, whichever is cheaper. After it, own row and mean stand side
//! by side and both products are one.

use tch::Tensor;

use super::order::{Order, cheaper};
use super::parameters::Named;
use super::{Layer, LayerEdges};
use crate::Result;
use crate::operator::{Finish, Rows, aggregate, aggregate_for_product, finished, linear};

/// One GraphSAGE-mean layer.
pub struct Sage {
    weight_self: Tensor,
    weight_neigh: Tensor,
    bias: Tensor,
    out: usize,
}

impl Sage {
    /// A layer from rows of `input` values to rows of `out`.
    pub fn new(named: &mut Named<'_>, input: usize, out: usize) -> Self {
        Self {
            weight_self: named.glorot("weight_self", [input, out]),
            weight_neigh: named.glorot("weight_neigh", [input, out]),
            bias: named.bias("bias", out),
            out,
        }
    }
}

impl Layer for Sage {
    fn forward(&self, edges: &LayerEdges<'_>, mixed: Rows<'_>, finish: Finish) -> Result<Tensor> {
        let (reduce, weights) = edges.mean()?;
        let (edges, weights) = (&edges.edges, weights.as_ref());
        match cheaper(edges, mixed, self.out, true)? {
            Order::AggregateFirst => {
                let beside = aggregate_for_product(edges, reduce, mixed, weights, true)?;
                let weight = Tensor::f_cat(&[&self.weight_self, &self.weight_neigh], 0)?;
                linear(edges.place(), &beside, &weight, Some(&self.bias), finish)
            }
            Order::TransformFirst => {
                let mixed = mixed.held()?;
                let own = mixed.f_narrow(0, 0, edges.num_targets() as i64)?;
                let own = linear(edges.place(), &own, &self.weight_self, Some(&self.bias), Finish::default())?;
                let rounded = Finish::rounding(edges.place());
                let neighbours = linear(edges.place(), &mixed, &self.weight_neigh, None, rounded)?;
                finished(edges.place(), &own.f_add(&aggregate(edges, reduce, &neighbours, weights, false)?)?, finish)
            }
        }
    }

    fn out_dim(&self) -> usize {
        self.out
    }
}
