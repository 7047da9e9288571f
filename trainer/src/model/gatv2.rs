//! Dynamic graph attention (Brody, Alon and Yahav, ICLR 2022, "GATv2"), each vertex attending to itself and its sampled
//! in-neighbours: l = W_source h + b_source, r = W_target h + b_target; score(u → v) = a · LeakyReLU₀.₂(l(u) + r(v)) for each head;
//! h'(v) = Σ softmax(score) l(u) + b. The heads' results are concatenated. In training, dropout may take some of the shares.

use tch::Tensor;

use super::parameters::Named;
use super::{Layer, LayerEdges};
use crate::Result;
use crate::operator::{Activation, Finish, Rows, dynamic_attention, linear};

/// One layer of dynamic attention.
pub struct GatV2 {
    weight_source: Tensor,
    bias_source: Tensor,
    weight_target: Tensor,
    bias_target: Tensor,
    attention: Tensor,
    bias: Tensor,
    out: usize,
    attention_dropout: f32,
}

impl GatV2 {
    /// A layer from rows of `input` values to rows of `out`, the concatenation of `heads` heads of `out / heads` values, which
    /// drops a share of `attention_dropout` of the shares.
    pub fn new(named: &mut Named<'_>, input: usize, out: usize, heads: usize, attention_dropout: f32) -> Self {
        Self {
            weight_source: named.glorot("weight_source", [input, out]),
            bias_source: named.zeros("bias_source", out),
            weight_target: named.glorot("weight_target", [input, out]),
            bias_target: named.zeros("bias_target", out),
            attention: named.glorot("attention", [heads, out / heads]),
            bias: named.bias("bias", out),
            out,
            attention_dropout,
        }
    }
}

impl Layer for GatV2 {
    fn forward(&self, edges: &LayerEdges<'_>, mixed: Rows<'_>, finish: Finish) -> Result<Tensor> {
        let mixed = mixed.held()?;
        let own = mixed.f_narrow(0, 0, edges.edges.num_targets() as i64)?;
        let rounded = || Finish::rounding(edges.place());
        let sources = linear(edges.place(), &mixed, &self.weight_source, Some(&self.bias_source), rounded())?;
        let targets = linear(edges.place(), &own, &self.weight_target, Some(&self.bias_target), rounded())?;
        let dropout = edges.attention_dropout(self.attention_dropout);
        dynamic_attention(&edges.edges, &sources, &targets, &self.attention, &self.bias, dropout, finish)
    }

    fn out_dim(&self) -> usize {
        self.out
    }

    fn activation(&self) -> Activation {
        Activation::Elu
    }
}
