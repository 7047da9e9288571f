//! GraphSAGE with the max-pooling aggregator (Hamilton, Ying and Leskovec, NeurIPS 2017, equation
//! 3): h'(v) = W_self h(v) + W_neigh max of ReLU(W_pool h(u) + b_pool) over the sampled in-edges u
//! → v + b; zeros without edges.

use gsplit_kernels::Activation;
use tch::Tensor;

use super::parameters::Named;
use super::{Layer, LayerEdges};
use crate::Result;
use crate::operator::{Finish, Rows, aggregate_max, finished, linear};

/// One GraphSAGE-pool layer.
pub struct SagePool {
    weight_pool: Tensor,
    bias_pool: Tensor,
    weight_self: Tensor,
    weight_neigh: Tensor,
    bias: Tensor,
    out: usize,
}

impl SagePool {
    /// Creates a layer from rows of `input` values, pooled at that width, to rows of `out`.
    pub fn new(named: &mut Named<'_>, input: usize, out: usize) -> Self {
        Self {
            weight_pool: named.glorot("weight_pool", [input, input]),
            bias_pool: named.zeros("bias_pool", input),
            weight_self: named.glorot("weight_self", [input, out]),
            weight_neigh: named.glorot("weight_neigh", [input, out]),
            bias: named.bias("bias", out),
            out,
        }
    }
}

impl Layer for SagePool {
    fn forward(&self, edges: &LayerEdges<'_>, input: Rows<'_>, finish: Finish) -> Result<Tensor> {
        let edges = &edges.edges;
        let input = input.held()?;
        let relu = Finish { activation: Activation::Relu, ..Finish::rounding(edges.place()) };
        let pooled = linear(edges.place(), &input, &self.weight_pool, Some(&self.bias_pool), relu)?;
        let pooled = aggregate_max(edges, &pooled)?;
        let own = input.f_narrow(0, 0, edges.num_targets() as i64)?;
        let own =
            linear(edges.place(), &own, &self.weight_self, Some(&self.bias), Finish::default())?;
        let neighbours =
            linear(edges.place(), &pooled, &self.weight_neigh, None, Finish::default())?;
        finished(edges.place(), &own.f_add(&neighbours)?, finish)
    }

    fn out_dim(&self) -> usize {
        self.out
    }
}
