//! Graph attention (Veličković et al., ICLR 2018), each vertex attending to itself and its sampled in-neighbours:
//! z = W h; score(u → v) = LeakyReLU₀.₂(a_source · z(u) + a_target · z(v)) for each head; h'(v) = Σ softmax(score) z(u) + b.
//! The heads' results are concatenated. In training, dropout may take some of the attention weights (section 3.3).

use std::ops::Range;

use tch::Tensor;

use super::columns::rows_of;
use super::parameters::Named;
use super::{ByColumns, Layer, LayerEdges};
use crate::Result;
use crate::operator::{Activation, Edges, Finish, Rows, attention, linear};

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
    /// drops a fraction `attention_dropout` of the attention weights.
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
        self.complete(edges, &[z], finish)
    }

    fn out_dim(&self) -> usize {
        self.out
    }

    fn activation(&self) -> Activation {
        Activation::Elu
    }

    fn by_columns(&self) -> Option<&dyn ByColumns> {
        Some(self)
    }
}

impl ByColumns for Gat {
    fn shapes(&self, edges: &Edges) -> Vec<[usize; 2]> {
        vec![[edges.num_sources(), self.out]]
    }

    fn partial(&self, edges: &LayerEdges<'_>, mixed: Rows<'_>, columns: Range<usize>) -> Result<Vec<Tensor>> {
        let weight = rows_of(&self.weight, &columns)?;
        Ok(vec![linear(edges.place(), &mixed.held()?, &weight, None, Finish::default())?])
    }

    fn complete(&self, edges: &LayerEdges<'_>, totals: &[Tensor], finish: Finish) -> Result<Tensor> {
        let dropout = edges.attention_dropout(self.attention_dropout);
        attention(&edges.edges, &totals[0], &self.attention_source, &self.attention_target, &self.bias, dropout, finish)
    }
}
