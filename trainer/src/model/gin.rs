//! Graph isomorphism network (Xu et al., ICLR 2019, equation 4.1): h'(v) = MLP((1 + ε) h(v) + Σ h(u)), with ε trained and the
//! MLP of two layers, ReLU between them.
//!
//! The sum over all in-edges is estimated from the sampled ones (see [`LayerEdges`]). The MLP's first product
//! is linear, so it comes before or after the sum, whichever is cheaper.

use gsplit_kernels::Activation;
use tch::Tensor;

use super::order::{Order, cheaper};
use super::parameters::Named;
use super::{Layer, LayerEdges};
use crate::Result;
use crate::operator::{Finish, Rows, aggregate, biased, linear};

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
    /// A layer from rows of `input` values to rows of `out`, which is the MLP's width too.
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
        let (reduce, weights) = edges.mean()?;
        let beside = aggregate(&edges.edges, reduce, rows, weights.as_ref(), true)?;
        let part = |start: usize| beside.f_narrow(1, start as i64, dim as i64);
        Ok(part(0)?.f_mul(&(&self.epsilon + 1.0))?.f_add(&part(dim)?.f_mul(&edges.degrees()?)?)?)
    }
}

impl Layer for Gin {
    fn forward(&self, edges: &LayerEdges<'_>, mixed: Rows<'_>, finish: Finish) -> Result<Tensor> {
        let relu = Finish { activation: Activation::Relu, ..Finish::rounding(edges.place()) };
        let hidden = match cheaper(&edges.edges, mixed, self.out, false)? {
            Order::AggregateFirst => {
                linear(edges.place(), &self.combined(edges, mixed)?, &self.weight_1, Some(&self.bias_1), relu)?
            }
            Order::TransformFirst => {
                let rows =
                    linear(edges.place(), &mixed.held()?, &self.weight_1, None, Finish::rounding(edges.place()))?;
                biased(edges.place(), &self.combined(edges, Rows::Hidden(&rows))?, Some(&self.bias_1), relu)?
            }
        };
        linear(edges.place(), &hidden, &self.weight_2, Some(&self.bias_2), finish)
    }

    fn out_dim(&self) -> usize {
        self.out
    }
}
