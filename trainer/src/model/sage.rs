//! GraphSAGE with the mean aggregator (Hamilton, Ying and Leskovec, NeurIPS 2017):
//! h'(v) = W_self h(v) + W_neigh mean of h(u) over the sampled in-edges u → v + b.

use tch::Tensor;

use super::parameters::Named;
use super::{Layer, LayerEdges, aggregate};

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
            bias: named.zeros("bias", out),
            out,
        }
    }
}

impl Layer for Sage {
    fn forward(&self, edges: &LayerEdges, mixed: &Tensor) -> Tensor {
        let own = mixed.narrow(0, 0, edges.num_frontier);
        let mean = aggregate(mixed, &edges.sources, &edges.indptr, None);
        self.bias.addmm(&own, &self.weight_self) + mean.matmul(&self.weight_neigh)
    }

    fn out_dim(&self) -> usize {
        self.out
    }
}
