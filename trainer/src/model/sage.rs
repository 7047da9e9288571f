//! GraphSAGE with the mean aggregator (Hamilton, Ying and Leskovec, NeurIPS 2017):
//! h'(v) = W_self h(v) + W_neigh mean of h(u) over the sampled in-edges u → v + b.
//!
//! The mean is linear, so W_neigh comes before or after it, whichever is cheaper. If it comes
//! after, own row and mean are concatenated and both products are one.

use std::ops::Range;

use tch::Tensor;

use super::columns::rows_of;
use super::order::{Order, cheaper};
use super::parameters::Named;
use super::{ByColumns, Layer, LayerEdges};
use crate::Result;
use crate::operator::{
    Finish, Reduce, Rows, aggregate, aggregate_for_product, biased, finished, linear, projected,
};

/// One GraphSAGE-mean layer.
pub struct Sage {
    weight_self: Tensor,
    weight_neigh: Tensor,
    bias: Tensor,
    out: usize,
}

impl Sage {
    /// Creates a layer from rows of `input` values to rows of `out`.
    pub fn new(named: &mut Named<'_>, input: usize, out: usize) -> Self {
        Self {
            weight_self: named.glorot("weight_self", [input, out]),
            weight_neigh: named.glorot("weight_neigh", [input, out]),
            bias: named.bias("bias", out),
            out,
        }
    }

    /// The two products, with the given weights instead of the layer's own.
    fn products(
        &self,
        edges: &LayerEdges<'_>,
        input: Rows<'_>,
        [weight_self, weight_neigh]: [&Tensor; 2],
        bias: Option<&Tensor>,
        finish: Finish,
    ) -> Result<Tensor> {
        let (counts, edges) = (edges.counts(), &edges.edges);
        match cheaper(counts, input, self.out, true)? {
            Order::AggregateFirst => {
                let beside = aggregate_for_product(edges, Reduce::Mean, input, None, true)?;
                let weight = Tensor::f_cat(&[weight_self, weight_neigh], 0)?;
                linear(edges.place(), &beside, &weight, bias, finish)
            }
            Order::TransformFirst => {
                let input = input.held()?;
                let own = input.f_narrow(0, 0, edges.num_targets() as i64)?;
                let own = linear(edges.place(), &own, weight_self, bias, Finish::default())?;
                let neighbours = projected(edges.place(), &input, weight_neigh)?;
                let mean = aggregate(edges, Reduce::Mean, &neighbours, None, false)?;
                finished(edges.place(), &own.f_add(&mean)?, finish)
            }
        }
    }
}

impl Layer for Sage {
    fn forward(&self, edges: &LayerEdges<'_>, input: Rows<'_>, finish: Finish) -> Result<Tensor> {
        self.products(
            edges,
            input,
            [&self.weight_self, &self.weight_neigh],
            Some(&self.bias),
            finish,
        )
    }

    fn out_dim(&self) -> usize {
        self.out
    }

    fn aggregates_once(&self) -> bool {
        true
    }

    fn by_columns(&self) -> Option<&dyn ByColumns> {
        Some(self)
    }
}

impl ByColumns for Sage {
    fn partial(
        &self,
        edges: &LayerEdges<'_>,
        input: Rows<'_>,
        columns: Range<usize>,
    ) -> Result<Vec<Tensor>> {
        let weights =
            [rows_of(&self.weight_self, &columns)?, rows_of(&self.weight_neigh, &columns)?];
        Ok(vec![self.products(edges, input, weights.each_ref(), None, Finish::default())?])
    }

    fn complete(
        &self,
        edges: &LayerEdges<'_>,
        totals: &[Tensor],
        finish: Finish,
    ) -> Result<Tensor> {
        biased(edges.place(), &totals[0], Some(&self.bias), finish)
    }
}
