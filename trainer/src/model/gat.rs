//! Graph attention (Veličković et al., ICLR 2018), each vertex attending to itself and its sampled in-neighbours:
//! z = W h; score(u → v) = LeakyReLU₀.₂(a_source · z(u) + a_target · z(v)) for each head; h'(v) = Σ softmax(score) z(u) + b.
//! The heads' results are concatenated. In training, dropout may take some of the shares (section 3.3).

use tch::Tensor;

use super::parameters::Named;
use super::{Layer, LayerEdges};
use crate::Result;
use crate::operator::{Activation, Finish, Rows, attention, linear};

/// One graph-attention layer.
pub struct Gat {
    weight: Tensor,
    attention_source: Tensor,
    attention_target: Tensor,
    bias: Tensor,
    out: usize,
    attention_dropout: f32,
}

impl Gat {
    /// A layer from rows of `input` values to rows of `out`, the concatenation of `heads` heads of `out / heads` values, which
    /// drops a share of `attention_dropout` of the shares.
    pub fn new(named: &mut Named<'_>, input: usize, out: usize, heads: usize, attention_dropout: f32) -> Self {
        let each = out / heads;
        Self {
            weight: named.glorot("weight", [input, out]),
            attention_source: named.glorot("attention_source", [heads, each]),
            attention_target: named.glorot("attention_target", [heads, each]),
            bias: named.bias("bias", out),
            out,
            attention_dropout,
        }
    }
}

impl Layer for Gat {
    fn forward(&self, edges: &LayerEdges<'_>, mixed: Rows<'_>, finish: Finish) -> Result<Tensor> {
        let z = linear(edges.place(), &mixed.held()?, &self.weight, None, Finish::rounding(edges.place()))?;
        let dropout = edges.attention_dropout(self.attention_dropout);
        attention(&edges.edges, &z, &self.attention_source, &self.attention_target, &self.bias, dropout, finish)
    }

    fn out_dim(&self) -> usize {
        self.out
    }

    fn activation(&self) -> Activation {
        Activation::Elu
    }
}
