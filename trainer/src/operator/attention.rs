//! Graph attention as a node of torch's graph.

use std::sync::Arc;

use gsplit_kernels::{Attention, AttentionGradient, head_products, head_products_backward};
use tch::Tensor;

use super::finish::column_sums;
use super::{Edges, Finish, filled, mismatch, shape};
use crate::Result;
use crate::autograd::{Buffer, attach, values};
use crate::place::{all_on_host, on_host};

/// Slope of LeakyReLU below zero.
const NEGATIVE_SLOPE: f32 = 0.2;

/// For each target and head `finish`(Σ share · row + `bias`) over the target itself and its sources, f32 `[targets, heads · width]`, from
/// `rows`, `[sources, heads · width]`. Shares are the softmax over a target's edges of
/// LeakyReLU₀.₂(`by_source` · row of the source + `by_target` · row of the target), both `[heads, width]`.
///
/// # Errors
/// [`Error::Torch`](crate::Error::Torch) if the shapes do not fit each other, [`Error::Kernel`](crate::Error::Kernel) if
/// they do not fit the edges.
pub fn attention(
    edges: &Arc<Edges>,
    rows: &Tensor,
    by_source: &Tensor,
    by_target: &Tensor,
    bias: &Tensor,
    finish: Finish,
) -> Result<Tensor> {
    let [z, a_source, a_target, b] = all_on_host([rows, by_source, by_target, bias])?;
    let ((_, dim), (heads, head_dim)) = (shape("rows", &z)?, shape("attention by source", &a_source)?);
    if heads * head_dim != dim || a_target.size() != a_source.size() {
        let sizes = [a_source.size(), a_target.size()];
        return Err(mismatch(format!("attention by source and target of shapes {sizes:?} for rows of width {dim}")));
    }
    let (op, targets) = (over(edges, heads, head_dim), edges.num_targets());
    // Row t is target t's own; where there are too few rows, the operator says so.
    let own = |values: &'_ [f32]| values.len().min(targets * dim);
    let scores = |a: &Tensor, rows: &[f32]| {
        filled(&[rows.len().checked_div(dim).unwrap_or(0), heads], |out| {
            Ok(head_products(rows, values(a)?, head_dim, out)?)
        })
    };
    let from_source = scores(&a_source, values(&z)?)?;
    let from_target = scores(&a_target, &values(&z)?[..own(values(&z)?)])?;
    let mut shares = Buffer::new(op.num_shares())?;
    let output = filled(&[targets, dim], |out| {
        let scores = [values(&from_source)?, values(&from_target)?];
        op.forward(values(&z)?, scores, out, shares.as_mut_slice())?;
        Ok(finish.epilogue(Some(values(&b)?)).apply(out, dim)?)
    })?;
    let shares = shares.into_tensor(&[op.num_shares() as i64])?;
    let output = edges.place().bring(&output)?;
    let result = output.shallow_clone();
    let saved = [&z, &a_source, &a_target, &from_source, &from_target, &shares, &result];
    let edges = edges.clone();
    attach(&[rows, by_source, by_target, bias], &saved, output, move |gradient| {
        let [z, a_source, a_target, from_source, from_target, shares, y] = gradient.saved()?;
        let given = finish.backward(edges.place(), y, &gradient.output)?;
        let of_bias = column_sums(edges.place(), &given)?;
        let given = on_host(&given)?;
        let (z, op) = (values(z)?, over(&edges, heads, head_dim));
        let mut of_source = Buffer::new(from_source.numel())?;
        let mut of_target = Buffer::new(from_target.numel())?;
        let mut scratch = Buffer::new(op.num_shares())?;
        let of_rows = filled(&[edges.num_sources(), dim], |rows| {
            let out = AttentionGradient {
                rows: &mut *rows,
                from_source: of_source.as_mut_slice(),
                from_target: of_target.as_mut_slice(),
            };
            let scores = [values(from_source)?, values(from_target)?];
            op.backward(z, scores, values(shares)?, values(&given)?, scratch.as_mut_slice(), out)?;
            // Scores are made of the rows too.
            op.add_scores_backward(of_source.as_slice(), values(a_source)?, rows)?;
            op.add_scores_backward(of_target.as_slice(), values(a_target)?, rows)?;
            Ok(())
        })?;
        let of_attention = |rows: &[f32], gradient: &Buffer| {
            filled(&[heads, head_dim], |out| Ok(head_products_backward(rows, gradient.as_slice(), head_dim, out)?))
        };
        let by_source = of_attention(z, &of_source)?;
        let by_target = of_attention(&z[..edges.num_targets() * dim], &of_target)?;
        let found = [of_rows, by_source, by_target].map(|found| edges.place().bring(&found).map(Some));
        found.into_iter().chain([Ok(Some(of_bias))]).collect()
    })
}

pub(super) fn over(edges: &Edges, heads: usize, head_dim: usize) -> Attention<'_> {
    Attention { edges, heads, head_dim, slope: NEGATIVE_SLOPE, self_loops: true }
}
