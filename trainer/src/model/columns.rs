//! The bottom layer by columns of the features, for push-pull parallelism (P3, OSDI 2021, section
//! 3.2).
//!
//! If a layer's first step is linear in the feature rows, each rank can compute it for some columns
//! of them, and the results add up to that of all columns. P3 asks a model author for six
//! functions; here they are two besides [`Layer::forward`]:
//!
//! | P3 | here |
//! | --- | --- |
//! | partition | the columns of a rank: equal consecutive ranges |
//! | scatter, gather, transform | [`ByColumns::partial`]: rows times weights, aggregated, as far as this is linear; no bias |
//! | sync | the sum over ranks, which layers do not compute |
//! | apply | [`ByColumns::complete`]: the nonlinear part, and the bias, once |
//!
//! Attention layers sum up the projection of rows, before any score: a sum of softmaxes is not a
//! softmax of sums.

use std::ops::Range;

use tch::{Kind, Tensor};

use super::block::{Block, Residual};
use super::{DropoutKey, Frontier, Layer, LayerEdges, Model};
use crate::operator::{Edges, Finish, Rows, linear};
use crate::{Error, Result};

/// A layer whose first step is linear in the rows that it reads.
pub trait ByColumns: Layer {
    /// Shapes of the matrices that [`ByColumns::partial`] returns for `edges`: one of the layer's
    /// rows by default.
    fn shapes(&self, edges: &Edges) -> Vec<[usize; 2]> {
        vec![[edges.num_targets(), self.out_dim()]]
    }

    /// Summands of the linear step from the `columns` of the rows of the mixed frontier; `input`
    /// has only these columns. Never called without rows or columns.
    fn partial(
        &self,
        edges: &LayerEdges<'_>,
        input: Rows<'_>,
        columns: Range<usize>,
    ) -> Result<Vec<Tensor>>;

    /// The rows of the local frontier, as [`Layer::forward`] returns them,
    /// from `totals`: the results of [`ByColumns::partial`] summed over all columns.
    fn complete(&self, edges: &LayerEdges<'_>, totals: &[Tensor], finish: Finish)
    -> Result<Tensor>;
}

/// The rows of `weight`, `[input, output]`, that belong to `columns` of the input.
pub fn rows_of(weight: &Tensor, columns: &Range<usize>) -> Result<Tensor> {
    Ok(weight.f_narrow(0, columns.start as i64, columns.len() as i64)?)
}

/// Pads `part`, f32 `[rows, columns]`, with zeros to `[rows, width]`, so that it covers `columns`.
pub fn in_place(part: &Tensor, columns: &Range<usize>, width: usize) -> Result<Tensor> {
    let all = Tensor::f_zeros([part.size()[0], width as i64], (Kind::Float, part.device()))?;
    all.f_narrow(1, columns.start as i64, columns.len() as i64)?.f_copy_(part)?;
    Ok(all)
}

impl Block {
    fn by_columns(&self) -> Result<&dyn ByColumns> {
        self.layer.by_columns().ok_or_else(|| {
            let problem = "these layers cannot be computed by columns (ByColumns): choose another parallelism";
            Error::Option(format!("--parallelism push-pull: {problem}"))
        })
    }

    /// Width of the residual, if it is computed from the rows below.
    fn residual_width(&self) -> Option<usize> {
        matches!(self.residual, Residual::Identity | Residual::Projection(_))
            .then(|| self.layer.out_dim())
    }
}

impl Model {
    /// Fails if the bottom layer cannot be computed by columns.
    pub(crate) fn check_by_columns(&self) -> Result<()> {
        self.blocks[0].by_columns().map(|_| ())
    }

    /// Shapes of the matrices that add up to the bottom layer's linear step over all columns of the
    /// features.
    pub(crate) fn partial_shapes(&self, edges: &Edges) -> Result<Vec<[usize; 2]>> {
        let block = &self.blocks[0];
        let mut shapes = block.by_columns()?.shapes(edges);
        shapes.extend(block.residual_width().map(|width| [edges.num_targets(), width]));
        Ok(shapes)
    }

    /// Summands of these matrices from `columns` of the features, concatenated: f32, one dimension.
    /// `input` are the rows of the mixed frontier with only these columns, of which there is at
    /// least one.
    pub(crate) fn partial(
        &self,
        edges: &LayerEdges<'_>,
        input: Rows<'_>,
        columns: Range<usize>,
    ) -> Result<Tensor> {
        let block = &self.blocks[0];
        let mut parts = block.by_columns()?.partial(edges, input, columns.clone())?;
        let own = || input.first(edges.edges.num_targets());
        match &block.residual {
            Residual::Identity => parts.push(in_place(&own()?, &columns, block.layer.out_dim())?),
            Residual::Projection(weight) => {
                let weight = rows_of(weight, &columns)?;
                parts.push(linear(edges.place(), &own()?, &weight, None, Finish::default())?);
            }
            Residual::None | Residual::PreActivation => {}
        }
        let flat = parts
            .iter()
            .map(|part| part.f_flatten(0, -1))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(if flat.len() == 1 { flat[0].shallow_clone() } else { Tensor::f_cat(&flat, 0)? })
    }

    /// Like [`Model::body`] of the bottom layer, from `totals`: results of [`Model::partial`]
    /// summed over all columns.
    pub(crate) fn complete(
        &self,
        edges: &LayerEdges<'_>,
        totals: &Tensor,
        frontier: impl Into<Frontier>,
        dropout: Option<DropoutKey>,
    ) -> Result<Tensor> {
        let (frontier, block) = (frontier.into(), &self.blocks[0]);
        let edges = match dropout {
            Some(dropout) => &edges.trained_at(dropout.step, 0),
            None => edges,
        };
        self.body_of(0, frontier, dropout, |finish| {
            let (mut parts, mut start) = (Vec::new(), 0);
            for [rows, width] in self.partial_shapes(&edges.edges)? {
                let part = totals.f_narrow(0, start, (rows * width) as i64)?;
                parts.push(part.f_view([rows as i64, width as i64])?);
                start += (rows * width) as i64;
            }
            let own = block.residual_width().and_then(|_| parts.pop());
            block.surround(
                edges.place(),
                finish,
                |finish| block.by_columns()?.complete(edges, &parts, finish),
                || Ok(own),
            )
        })
    }
}
