//! Graph isomorphism network (Xu et al., ICLR 2019, equation 4.1): h'(v) = MLP((1 + ε) h(v) + Σ
//! h(u)), with trained ε and an MLP of two layers, with ReLU between them.
//!
//! The sum over all in-edges is estimated from the sampled ones (see [`LayerEdges`]). The MLP's
//! first product is linear, so it comes before or after the sum, whichever is cheaper.

use std::ops::Range;

use gsplit_kernels::Activation;
use tch::Tensor;

use super::columns::rows_of;
use super::order::{Order, cheaper};
use super::parameters::Named;
use super::{ByColumns, Layer, LayerEdges};
use crate::Result;
use crate::operator::{Finish, Reduce, Rows, aggregate, biased, linear, projected};

/// One GIN layer.
pub struct Gin {
    epsilon: Tensor,
    weight_1: Tensor,
    bias_1: Tensor,
    weight_2: Tensor,
    bias_2: Tensor,
    out: usize,
}

impl Gin {
    /// Creates a layer from rows of `input` values to rows of `out`, which is also the MLP's width.
    pub fn new(named: &mut Named<'_>, input: usize, out: usize) -> Self {
        Self {
            epsilon: named.zeros("epsilon", 1),
            weight_1: named.glorot("weight_1", [input, out]),
            bias_1: named.zeros("bias_1", out),
            weight_2: named.glorot("weight_2", [out, out]),
            bias_2: named.bias("bias_2", out),
            out,
        }
    }

    /// (1 + ε) · own row + sum of the neighbours' rows.
    fn combined(&self, edges: &LayerEdges<'_>, rows: Rows<'_>) -> Result<Tensor> {
        let (_, dim) = rows.shape()?;
        let beside = aggregate(&edges.edges, Reduce::Mean, rows, None, true)?;
        let part = |start: usize| beside.f_narrow(1, start as i64, dim as i64);
        Ok(part(0)?.f_mul(&(&self.epsilon + 1.0))?.f_add(&part(dim)?.f_mul(&edges.degrees()?)?)?)
    }

    /// The combined rows times `weight_1`, with `bias`.
    fn first_product(
        &self,
        edges: &LayerEdges<'_>,
        input: Rows<'_>,
        weight_1: &Tensor,
        bias: Option<&Tensor>,
        finish: Finish,
    ) -> Result<Tensor> {
        match cheaper(edges.counts(), input, self.out, false)? {
            Order::AggregateFirst => {
                linear(edges.place(), &self.combined(edges, input)?, weight_1, bias, finish)
            }
            Order::TransformFirst => {
                let rows = projected(edges.place(), &input.held()?, weight_1)?;
                biased(edges.place(), &self.combined(edges, Rows::Hidden(&rows))?, bias, finish)
            }
        }
    }
}

/// ReLU, between the products.
fn relu(edges: &LayerEdges<'_>) -> Finish {
    Finish { activation: Activation::Relu, ..Finish::rounding(edges.place()) }
}

impl Layer for Gin {
    fn forward(&self, edges: &LayerEdges<'_>, input: Rows<'_>, finish: Finish) -> Result<Tensor> {
        let hidden =
            self.first_product(edges, input, &self.weight_1, Some(&self.bias_1), relu(edges))?;
        linear(edges.place(), &hidden, &self.weight_2, Some(&self.bias_2), finish)
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

impl ByColumns for Gin {
    fn partial(
        &self,
        edges: &LayerEdges<'_>,
        input: Rows<'_>,
        columns: Range<usize>,
    ) -> Result<Vec<Tensor>> {
        let weight = rows_of(&self.weight_1, &columns)?;
        Ok(vec![self.first_product(edges, input, &weight, None, Finish::default())?])
    }

    fn complete(
        &self,
        edges: &LayerEdges<'_>,
        totals: &[Tensor],
        finish: Finish,
    ) -> Result<Tensor> {
        let hidden = biased(edges.place(), &totals[0], Some(&self.bias_1), relu(edges))?;
        linear(edges.place(), &hidden, &self.weight_2, Some(&self.bias_2), finish)
    }
}
