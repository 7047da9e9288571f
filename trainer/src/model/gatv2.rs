//! Dynamic graph attention (Brody, Alon and Yahav, ICLR 2022, "GATv2"), each vertex attending to
//! itself and its sampled in-neighbours: l = W_source h + b_source, r = W_target h + b_target;
//! score(u → v) = a · LeakyReLU₀.₂(l(u) + r(v)) for each head; h'(v) = Σ softmax(score) l(u) + b.
//! The heads' results are concatenated. In training, dropout may take some of the attention
//! weights.

use std::ops::Range;

use tch::Tensor;

use super::columns::rows_of;
use super::parameters::Named;
use super::{ByColumns, Layer, LayerEdges};
use crate::Result;
use crate::operator::{Activation, Edges, Finish, Rows, biased, dynamic_attention, linear};

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
    /// Creates a layer from rows of `input` values to rows of `out`, the concatenation of `heads`
    /// heads of `out / heads` values, which drops a fraction `attention_dropout` of the attention
    /// weights.
    pub fn new(
        named: &mut Named<'_>,
        input: usize,
        out: usize,
        heads: usize,
        attention_dropout: f32,
    ) -> Self {
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

    /// Attention over the projections of sources and targets.
    fn attended(
        &self,
        edges: &LayerEdges<'_>,
        [sources, targets]: [&Tensor; 2],
        finish: Finish,
    ) -> Result<Tensor> {
        let dropout = edges.attention_dropout(self.attention_dropout);
        dynamic_attention(
            &edges.edges,
            sources,
            targets,
            &self.attention,
            &self.bias,
            dropout,
            finish,
        )
    }
}

impl Layer for GatV2 {
    fn forward(&self, edges: &LayerEdges<'_>, input: Rows<'_>, finish: Finish) -> Result<Tensor> {
        let input = input.held()?;
        let own = input.f_narrow(0, 0, edges.edges.num_targets() as i64)?;
        let rounded = || Finish::rounding(edges.place());
        let sources =
            linear(edges.place(), &input, &self.weight_source, Some(&self.bias_source), rounded())?;
        let targets =
            linear(edges.place(), &own, &self.weight_target, Some(&self.bias_target), rounded())?;
        self.attended(edges, [&sources, &targets], finish)
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

impl ByColumns for GatV2 {
    fn shapes(&self, edges: &Edges) -> Vec<[usize; 2]> {
        vec![[edges.num_sources(), self.out], [edges.num_targets(), self.out]]
    }

    fn partial(
        &self,
        edges: &LayerEdges<'_>,
        input: Rows<'_>,
        columns: Range<usize>,
    ) -> Result<Vec<Tensor>> {
        let input = input.held()?;
        let own = input.f_narrow(0, 0, edges.edges.num_targets() as i64)?;
        let product = |rows: &Tensor, weight| {
            linear(edges.place(), rows, &rows_of(weight, &columns)?, None, Finish::default())
        };
        Ok(vec![product(&input, &self.weight_source)?, product(&own, &self.weight_target)?])
    }

    fn complete(
        &self,
        edges: &LayerEdges<'_>,
        totals: &[Tensor],
        finish: Finish,
    ) -> Result<Tensor> {
        let rounded = || Finish::rounding(edges.place());
        let sources = biased(edges.place(), &totals[0], Some(&self.bias_source), rounded())?;
        let targets = biased(edges.place(), &totals[1], Some(&self.bias_target), rounded())?;
        self.attended(edges, [&sources, &targets], finish)
    }
}
