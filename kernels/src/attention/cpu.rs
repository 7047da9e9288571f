//! Attention forwards, on the host.
//!
//! Returns: the weighted sums, and the weights for backward. Input: checked [`HostEdges`], matrices
//! of matching sizes. Idea: one task owns a range of targets and does all of it for a target while
//! its scores are in the nearest cache. Cost: one read of a row for each edge, one exponential for
//! each edge and head.

use std::hint::select_unpredictable;
use std::ops::Range;

use rayon::prelude::*;

use crate::dropout::RowMask;
use crate::edges::{HostEdges, Part, for_balanced_rows};
use crate::error::{KernelError, check_len, check_matrix, count_rows};
use crate::gather::StoredRow;
use crate::philox::StreamKey;
use crate::prefetch::prefetch_all;
use crate::segment::{kept, softmax};
use crate::simd::{ahead, dot, vectorised};

/// Attention over a layer's edges.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// The edges.
    pub edges: &'a HostEdges,
    /// Number of heads.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Whether all heads read the same rows, `head_dim` wide; else each its own part of rows as
    /// wide as all heads.
    pub shares_rows: bool,
    /// Slope of LeakyReLU below zero.
    pub slope: f32,
    /// Whether each target attends to itself too. Row `t` of the sources is target `t`'s own.
    pub self_loops: bool,
    /// Vertices of the targets, and rate and key of the dropout of weights.
    pub dropout: Option<(&'a [u32], f32, StreamKey)>,
    /// How often each edge counts, in the order of [`HostEdges::sources`]; 1 when `None`. A weight
    /// is in proportion to it: its logarithm is added to the score, so the gradients are the same
    /// as without factors. A self-loop counts once.
    pub factors: Option<&'a [f32]>,
    /// The relation of each target, and the number of relations, if a source has scores for each
    /// relation: the targets are then rows of vertices of several types
    /// ([`RowLayout`](crate::RowLayout)).
    pub relations: Option<(&'a [u32], usize)>,
}

impl Attention<'_> {
    /// Sets row `t` of `out` (targets × [`Attention::dim`]) to Σ weight · `rows[source]`, and
    /// `weights` ([`Attention::num_weights`] values) to the weights, target after target, edge
    /// after edge, head after head, with a minus sign where they are dropped.
    ///
    /// `rows` is sources × [`Attention::row_dim`], `from_source` sources × relations × heads,
    /// `from_target` targets × heads.
    ///
    /// # Errors
    /// [`KernelError::Length`] if a buffer has the wrong length, [`KernelError::RowOutOfRange`] if
    /// a target has no row of its own or a relation is not among as many,
    /// [`KernelError::DropoutRate`].
    pub fn forward(
        &self,
        rows: &[f32],
        [from_source, from_target]: [&[f32]; 2],
        out: &mut [f32],
        weights: &mut [f32],
    ) -> Result<(), KernelError> {
        self.check(rows, [from_source, from_target])?;
        self.attend(
            rows,
            false,
            #[inline(always)]
            |target, source, offset, scores| {
                let from_source = self.scores_of(from_source, source, target);
                let from_target = row_of(from_target, target, self.heads);
                for ((score, a), b) in scores.iter_mut().zip(from_source).zip(from_target) {
                    *score = self.leaky(a + b) + offset;
                }
            },
            out,
            weights,
        )
    }

    /// The forward pass for any scores: `score` sets the scores of the edge from a source to a
    /// target, given their offset. `reads_rows` if it reads the source's row.
    pub(super) fn attend(
        &self,
        rows: &[f32],
        reads_rows: bool,
        score: impl Fn(usize, u32, f32, &mut [f32]) + Sync,
        out: &mut [f32],
        weights: &mut [f32],
    ) -> Result<(), KernelError> {
        let (edges, dim, width) = (self.edges, self.dim(), self.row_dim());
        check_matrix("output of attention", edges.num_targets(), dim, out.len())?;
        check_len("attention weights", self.num_weights(), weights.len())?;
        let (mask, keep) = (self.mask()?, self.keep());
        if dim == 0 {
            return Ok(());
        }
        let parts =
            (Part::rows(out, dim), Part::edges(weights, self.heads, self.own_edges() * self.heads));
        for_balanced_rows!(edges.indptr(), dim, parts, |targets, (out, weights)| {
            let mut left = weights.values;
            for (target, out) in targets.zip(out.values.chunks_exact_mut(dim)) {
                let (weights, rest) = left.split_at_mut(self.count(target) * self.heads);
                left = rest;
                for (i, scores) in weights.chunks_exact_mut(self.heads).enumerate() {
                    if reads_rows {
                        self.prefetch_after(rows, target, i);
                    }
                    score(target, self.source(target, i), self.offset(target, i), scores);
                }
                softmax(weights, self.heads);
                if let Some((vertices, mask)) = mask {
                    mask.negate(vertices[target], weights);
                }
                out.fill(0.0);
                for (i, weights) in weights.chunks_exact(self.heads).enumerate() {
                    if !reads_rows {
                        self.prefetch_after(rows, target, i);
                    }
                    self.add_weighted(
                        weights,
                        keep,
                        row_of(rows, self.source(target, i) as usize, width),
                        out,
                    );
                }
            }
        });
        Ok(())
    }

    /// Prefetches the row of an edge that is used soon after a target's edge number `i`.
    #[inline(always)]
    pub(super) fn prefetch_after(&self, rows: &[f32], target: usize, i: usize) {
        let width = self.row_dim();
        if let Some(&next) =
            self.edges.sources().get(self.edges.of(target).start + i + ahead(width))
        {
            prefetch_all(row_of(rows, next as usize, width));
        }
    }

    /// Number of relations, 1 without.
    pub(super) fn num_relations(&self) -> usize {
        self.relations.map_or(1, |(_, count)| count)
    }

    /// Relation of a target, 0 without relations.
    #[inline(always)]
    pub(super) fn relation(&self, target: usize) -> usize {
        self.relations.map_or(0, |(of_targets, _)| of_targets[target] as usize)
    }

    /// The scores of a source for an edge to `target`.
    #[inline(always)]
    pub(super) fn scores_of<'s>(&self, scores: &'s [f32], source: u32, target: usize) -> &'s [f32] {
        row_of(scores, source as usize * self.num_relations() + self.relation(target), self.heads)
    }

    /// Width of a target's row: all heads together.
    pub fn dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of a source's row.
    pub fn row_dim(&self) -> usize {
        if self.shares_rows { self.head_dim } else { self.dim() }
    }

    /// The part of a row of `width` values that belongs to a head.
    #[inline(always)]
    pub(super) fn part(&self, head: usize, width: usize) -> Range<usize> {
        part(head, self.head_dim, width)
    }

    /// Number of weights: one for each edge, self-loops included, and head.
    pub fn num_weights(&self) -> usize {
        (self.edges.num_edges() + self.own_edges() * self.edges.num_targets()) * self.heads
    }

    #[inline(always)]
    pub(super) fn own_edges(&self) -> usize {
        usize::from(self.self_loops)
    }

    /// Number of edges of a target, its self-loop included.
    #[inline(always)]
    pub(super) fn count(&self, target: usize) -> usize {
        self.edges.of(target).len() + self.own_edges()
    }

    /// Start of a target's attention weights, in edges.
    #[inline(always)]
    pub(super) fn start(&self, target: usize) -> usize {
        self.edges.of(target).start + self.own_edges() * target
    }

    /// Source of a target's edge number `i`; number 0 is its self-loop, if it has one.
    #[inline(always)]
    pub(super) fn source(&self, target: usize, i: usize) -> u32 {
        match i.checked_sub(self.own_edges()) {
            None => target as u32,
            Some(i) => self.edges.sources()[self.edges.of(target).start + i],
        }
    }

    /// Summand of the score of a target's edge number `i`: the logarithm of its factor.
    #[inline(always)]
    pub(super) fn offset(&self, target: usize, i: usize) -> f32 {
        match (self.factors, i.checked_sub(self.own_edges())) {
            (Some(factors), Some(i)) => factors[self.edges.of(target).start + i].ln(),
            _ => 0.0,
        }
    }

    /// The vertices of the targets, and the mask that drops their weights.
    pub(super) fn mask(&self) -> Result<Option<(&[u32], RowMask)>, KernelError> {
        let Some((vertices, rate, key)) = &self.dropout else { return Ok(None) };
        check_len("vertices of the targets", self.edges.num_targets(), vertices.len())?;
        Ok(Some((vertices, RowMask::new(*rate, 0, key)?)))
    }

    /// Factor of the attention weights that dropout keeps.
    #[inline(always)]
    pub(super) fn keep(&self) -> f32 {
        self.dropout.map_or(1.0, |(_, rate, _)| 1.0 / (1.0 - rate))
    }

    #[inline(always)]
    pub(super) fn leaky(&self, score: f32) -> f32 {
        select_unpredictable(score > 0.0, score, self.slope * score)
    }

    /// Adds each head of `row`, times its factor, to the same head of `sum`.
    #[inline(always)]
    pub(super) fn add_heads(
        &self,
        factors: impl IntoIterator<Item = f32>,
        row: &[f32],
        sum: &mut [f32],
    ) {
        for (head, factor) in factors.into_iter().enumerate() {
            let of_sum = self.part(head, sum.len());
            row[self.part(head, row.len())].add_to(factor, &mut sum[of_sum]);
        }
    }

    /// Adds each head of `row`, times its weight after dropout, to the same head of `sum`.
    #[inline(always)]
    pub(super) fn add_weighted(&self, weights: &[f32], keep: f32, row: &[f32], sum: &mut [f32]) {
        self.add_heads(weights.iter().map(|&weight| kept(weight, keep)), row, sum);
    }

    pub(super) fn check_edges(&self) -> Result<(), KernelError> {
        if let Some(factors) = self.factors {
            check_len("edge factors", self.edges.num_edges(), factors.len())?;
        }
        if let Some((of_targets, rows)) = self.relations {
            check_len("relations of the targets", self.edges.num_targets(), of_targets.len())?;
            let most = of_targets.iter().max().filter(|&&most| most as usize >= rows);
            most.map_or(Ok(()), |&position| Err(KernelError::RowOutOfRange { position, rows }))?;
        }
        self.edges.check_own_rows(self.self_loops)
    }

    pub(super) fn check(
        &self,
        rows: &[f32],
        [from_source, from_target]: [&[f32]; 2],
    ) -> Result<(), KernelError> {
        let (sources, targets) = (self.edges.num_sources(), self.edges.num_targets());
        check_matrix("rows of the sources", sources, self.row_dim(), rows.len())?;
        let of_source = self.num_relations() * self.heads;
        check_matrix("scores of the sources", sources, of_source, from_source.len())?;
        check_matrix("scores of the targets", targets, self.heads, from_target.len())?;
        self.check_edges()
    }
}

#[inline(always)]
pub(super) fn row_of(matrix: &[f32], row: usize, width: usize) -> &[f32] {
    &matrix[row * width..][..width]
}

/// The part of a row of `width` values that belongs to a head: all of it if heads share rows.
#[inline(always)]
fn part(head: usize, head_dim: usize, width: usize) -> Range<usize> {
    let start = if width == head_dim { 0 } else { head * head_dim };
    start..start + head_dim
}

/// Rows of one parallel task, and of one partial sum.
const ROWS: usize = 256;

/// Sets value `h` of row `r` of `out` (rows × heads) to the product of head `h` of row `r` of
/// `rows` with head `h` of `vector` (heads · `head_dim` values). Rows are as wide as `vector`, or
/// `head_dim` wide where heads share them.
pub fn head_products(
    rows: &[f32],
    vector: &[f32],
    head_dim: usize,
    out: &mut [f32],
) -> Result<(), KernelError> {
    let (heads, width) = heads_and_width(rows, vector, head_dim, out)?;
    if vector.is_empty() {
        return Ok(());
    }
    rows.par_chunks(ROWS * width).zip(out.par_chunks_mut(ROWS * heads)).for_each(|(rows, out)| {
        vectorised!({
            for (row, out) in rows.chunks_exact(width).zip(out.chunks_exact_mut(heads)) {
                for (head, (out, vector)) in
                    out.iter_mut().zip(vector.chunks_exact(head_dim)).enumerate()
                {
                    *out = dot(&row[part(head, head_dim, width)], vector);
                }
            }
        });
    });
    Ok(())
}

/// Sets `out` to the gradient of the vector of [`head_products`]: for each head Σ `gradient[r, h]`
/// · head `h` of row `r`. Sums pieces of fixed size, so the result does not depend on the number of
/// threads.
pub fn head_products_backward(
    rows: &[f32],
    gradient: &[f32],
    head_dim: usize,
    out: &mut [f32],
) -> Result<(), KernelError> {
    let (heads, width) = heads_and_width(rows, out, head_dim, gradient)?;
    let dim = out.len();
    out.fill(0.0);
    if dim == 0 {
        return Ok(());
    }
    let pieces = rows.par_chunks(ROWS * width).zip(gradient.par_chunks(ROWS * heads)).map(
        |(rows, gradient)| {
            let mut sums = vec![0f32; dim];
            vectorised!({
                for (row, gradient) in rows.chunks_exact(width).zip(gradient.chunks_exact(heads)) {
                    for (head, (&factor, sum)) in
                        gradient.iter().zip(sums.chunks_exact_mut(head_dim)).enumerate()
                    {
                        row[part(head, head_dim, width)].add_to(factor, sum);
                    }
                }
            });
            sums
        },
    );
    for piece in pieces.collect::<Vec<_>>() {
        piece.as_slice().add_to(1.0, out);
    }
    Ok(())
}

/// Number of heads of a vector, and width of `rows`, for as many `products` of the two.
fn heads_and_width(
    rows: &[f32],
    vector: &[f32],
    head_dim: usize,
    products: &[f32],
) -> Result<(usize, usize), KernelError> {
    let heads = count_rows("vector of the heads", head_dim, vector.len())?;
    let count = count_rows("products of the heads", heads, products.len())?;
    let width = if rows.len() == count * head_dim { head_dim } else { vector.len() };
    check_matrix("rows of the heads", count, width, rows.len())?;
    Ok((heads, width))
}
