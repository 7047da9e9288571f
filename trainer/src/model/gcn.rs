//! Graph convolution (Kipf and Welling, ICLR 2017): h' = Â h W + b with Â = D⁻¹ᐟ² (A + I) D⁻¹ᐟ².
//!
//! Degrees are the whole graph's, and sampled neighbours are scaled up to represent all neighbours:
//! [`LayerEdges::symmetric`]. Why not the sampled degrees, as in DGL's blocks: a source's sampled
//! out-degree depends on the mini-batch and on the rank that asks, and so would the result. Â is
//! linear, so W comes before or after it, whichever is cheaper.
//!
//! S-GCN (Wu et al., ICML 2019, "SGC") is a stack of these without activations, of which only one
//! has W and only the last has b: Â^k X W + b.

use std::ops::Range;

use gsplit_kernels::Reduce;
use tch::Tensor;

use super::columns::{in_place, rows_of};
use super::order::{Order, cheaper};
use super::parameters::Named;
use super::{ByColumns, Layer, LayerEdges};
use crate::Result;
use crate::operator::{Finish, Rows, aggregate, aggregate_for_product, biased, linear, projected};

/// One graph convolution; without a weight it only propagates.
pub struct Gcn {
    weight: Option<Tensor>,
    bias: Option<Tensor>,
    out: usize,
}

impl Gcn {
    /// Creates a layer from rows of `input` values to rows of `out`.
    pub fn new(named: &mut Named<'_>, input: usize, out: usize) -> Self {
        Self {
            weight: Some(named.glorot("weight", [input, out])),
            bias: Some(named.bias("bias", out)),
            out,
        }
    }

    /// Creates layer `index` of `layers` of S-GCN, from features of `input` values to `classes`. W
    /// is in the layer that makes rows narrowest: at the bottom unless there are more classes than
    /// features.
    pub fn simplified(
        named: &mut Named<'_>,
        index: usize,
        layers: usize,
        input: usize,
        classes: usize,
    ) -> Self {
        let with_weight = if classes <= input { 0 } else { layers - 1 };
        let weight = (index == with_weight).then(|| named.glorot("weight", [input, classes]));
        let bias = (index + 1 == layers).then(|| named.bias("bias", classes));
        Self { weight, bias, out: if index < with_weight { input } else { classes } }
    }

    /// Â h W + b, with `weight` and `bias` instead of the layer's own.
    fn convolved(
        &self,
        edges: &LayerEdges<'_>,
        input: Rows<'_>,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        finish: Finish,
    ) -> Result<Tensor> {
        let [targets, sources, among] = edges.counts();
        let (edges, weights) = edges.symmetric()?;
        let propagated =
            |rows: Rows<'_>| aggregate(&edges, Reduce::Sum, rows, Some(&weights), false);
        let Some(weight) = weight else {
            return biased(edges.place(), &propagated(input)?, bias, finish);
        };
        match cheaper([targets, sources, among + targets], input, self.out, false)? {
            Order::AggregateFirst => {
                let rows =
                    aggregate_for_product(&edges, Reduce::Sum, input, Some(&weights), false)?;
                linear(edges.place(), &rows, weight, bias, finish)
            }
            Order::TransformFirst => {
                let rows = projected(edges.place(), &input.held()?, weight)?;
                biased(edges.place(), &propagated(Rows::Hidden(&rows))?, bias, finish)
            }
        }
    }
}

impl Layer for Gcn {
    fn forward(&self, edges: &LayerEdges<'_>, input: Rows<'_>, finish: Finish) -> Result<Tensor> {
        self.convolved(edges, input, self.weight.as_ref(), self.bias.as_ref(), finish)
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

impl ByColumns for Gcn {
    fn partial(
        &self,
        edges: &LayerEdges<'_>,
        input: Rows<'_>,
        columns: Range<usize>,
    ) -> Result<Vec<Tensor>> {
        let weight = self.weight.as_ref().map(|weight| rows_of(weight, &columns)).transpose()?;
        let part = self.convolved(edges, input, weight.as_ref(), None, Finish::default())?;
        // Without a weight, the result covers the same columns.
        Ok(vec![if weight.is_some() { part } else { in_place(&part, &columns, self.out)? }])
    }

    fn complete(
        &self,
        edges: &LayerEdges<'_>,
        totals: &[Tensor],
        finish: Finish,
    ) -> Result<Tensor> {
        biased(edges.place(), &totals[0], self.bias.as_ref(), finish)
    }
}
