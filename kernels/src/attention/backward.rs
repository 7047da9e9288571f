//! Attention backwards, on the host.
//!
//! Returns: gradients of the rows and of both kinds of scores. Idea: a pass over the targets turns
//! the gradient of the output into the gradient of every score (one number for each edge and head);
//! a pass over the sources, with the edges grouped by source, sums rows. Nothing is scattered.
//! Cost: two reads of a row for each edge.

use rayon::prelude::*;

use super::Attention;
use super::cpu::row_of;
use crate::edges::{BySource, Part, for_balanced_rows};
use crate::error::{KernelError, check_len, check_matrix, count_rows};
use crate::prefetch::prefetch_all;
use crate::segment::softmax_backward;
use crate::simd::{ahead, dot, vectorised};

/// Outputs of [`Attention::backward`].
#[derive(Debug)]
pub struct AttentionGradient<'a> {
    /// Gradient of the rows: sources × [`Attention::row_dim`].
    pub rows: &'a mut [f32],
    /// Gradient of the sources' part of the scores: sources × relations × heads.
    pub from_source: &'a mut [f32],
    /// Gradient of the targets' part: targets × heads.
    pub from_target: &'a mut [f32],
}

impl Attention<'_> {
    /// Fills `out` with the gradients of the inputs of [`Attention::forward`]. `gradient` (targets
    /// × [`Attention::dim`]) is the gradient of its output; `weights` are the weights that it
    /// returned, whose signs mark the dropped ones; `scratch` has the length of `weights`. The
    /// gradient of the rows covers only the weighted sum: scores may come from anywhere.
    pub fn backward(
        &self,
        rows: &[f32],
        scores: [&[f32]; 2],
        weights: &[f32],
        gradient: &[f32],
        scratch: &mut [f32],
        out: AttentionGradient<'_>,
    ) -> Result<(), KernelError> {
        self.check(rows, scores)?;
        self.check(out.rows, [out.from_source, out.from_target])?;
        self.check_backward(gradient, weights, scratch)?;
        if self.dim() == 0 {
            return Ok(());
        }
        self.scores_backward(rows, scores, weights, gradient, scratch, out.from_target);
        self.rows_backward(weights, scratch, gradient, out.rows, out.from_source);
        Ok(())
    }

    /// Adds to `rows` (at least as many rows as `of_scores`, × [`Attention::row_dim`]) their
    /// gradient through scores that are their [`head_products`](super::head_products) with
    /// `vector`: value `h` of a row of `of_scores` times head `h`.
    pub fn add_scores_backward(
        &self,
        of_scores: &[f32],
        vector: &[f32],
        rows: &mut [f32],
    ) -> Result<(), KernelError> {
        let (dim, heads) = (self.row_dim(), self.heads);
        let count = count_rows("gradient of the scores", heads, of_scores.len())?;
        check_len("vector of the heads", self.dim(), vector.len())?;
        let Some(rows) = rows.get_mut(..count * dim) else {
            return Err(KernelError::Length {
                what: "rows of the scores",
                expected: count * dim,
                got: rows.len(),
            });
        };
        if dim == 0 {
            return Ok(());
        }
        rows.par_chunks_mut(dim).zip(of_scores.par_chunks(heads)).with_min_len(128).for_each(
            |(row, of_scores)| {
                vectorised!(self.add_heads(of_scores.iter().copied(), vector, row));
            },
        );
        Ok(())
    }

    pub(super) fn check_backward(
        &self,
        gradient: &[f32],
        weights: &[f32],
        scratch: &[f32],
    ) -> Result<(), KernelError> {
        let targets = self.edges.num_targets();
        check_matrix("gradient of attention", targets, self.dim(), gradient.len())?;
        check_len("attention weights", self.num_weights(), weights.len())?;
        check_len("scratch of attention", self.num_weights(), scratch.len())
    }

    /// Sets `of_scores` to the gradient of the scores of a target's edges.
    #[inline(always)]
    pub(super) fn edges_backward(
        &self,
        rows: &[f32],
        weights: &[f32],
        gradient: &[f32],
        target: usize,
        of_scores: &mut [f32],
    ) {
        let (dim, width, heads) = (self.dim(), self.row_dim(), self.heads);
        let gradient = row_of(gradient, target, dim);
        for (i, of_scores) in of_scores.chunks_exact_mut(heads).enumerate() {
            self.prefetch_after(rows, target, i);
            let source = row_of(rows, self.source(target, i) as usize, width);
            for (head, of_score) in of_scores.iter_mut().enumerate() {
                *of_score = dot(&source[self.part(head, width)], &gradient[self.part(head, dim)]);
            }
        }
        let weights = &weights[self.start(target) * heads..][..of_scores.len()];
        softmax_backward(weights, of_scores, heads, self.keep());
    }

    /// Gradient of every edge's sum of scores, before LeakyReLU, and their totals by target.
    fn scores_backward(
        &self,
        rows: &[f32],
        [from_source, from_target]: [&[f32]; 2],
        weights: &[f32],
        gradient: &[f32],
        of_scores: &mut [f32],
        of_targets: &mut [f32],
    ) {
        let (edges, dim, heads) = (self.edges, self.dim(), self.heads);
        let parts = (
            Part::rows(of_targets, heads),
            Part::edges(of_scores, heads, self.own_edges() * heads),
        );
        for_balanced_rows!(edges.indptr(), dim, parts, |targets, (of_targets, of_scores)| {
            let mut left = of_scores.values;
            for (target, total) in targets.zip(of_targets.values.chunks_exact_mut(heads)) {
                let (mine, rest) = left.split_at_mut(self.count(target) * heads);
                left = rest;
                self.edges_backward(rows, weights, gradient, target, mine);
                total.fill(0.0);
                for (i, mine) in mine.chunks_exact_mut(heads).enumerate() {
                    let from_source = self.scores_of(from_source, self.source(target, i), target);
                    let from_target = row_of(from_target, target, heads);
                    for (head, mine) in mine.iter_mut().enumerate() {
                        let rises = from_source[head] + from_target[head] > 0.0;
                        *mine *= if rises { 1.0 } else { self.slope };
                        total[head] += *mine;
                    }
                }
            }
        });
    }

    /// Target, and position of the weights (in edges), of each edge out of `source`, its self-loop
    /// first. Calls `fetch` for later targets.
    #[inline(always)]
    pub(super) fn out_edges<'a>(
        &self,
        by_source: &'a BySource,
        source: usize,
        fetch: impl Fn(u32) + 'a,
    ) -> impl Iterator<Item = (u32, usize)> + 'a {
        let (own_edges, ahead) = (self.own_edges(), ahead(self.dim()));
        let own = self.self_loops && source < self.edges.num_targets();
        let own = own.then(|| (source as u32, self.start(source)));
        let others = by_source.of(source).map(
            #[inline(always)]
            move |place| {
                if let Some(&next) = by_source.targets.get(place + ahead) {
                    fetch(next);
                }
                let target = by_source.targets[place];
                // Self-loops precede the edges of their target and of all targets before it.
                (target, by_source.edges[place] as usize + own_edges * (target as usize + 1))
            },
        );
        own.into_iter().chain(others)
    }

    /// Sums over each source's edges: weight × gradient of the target's row, and the gradients of
    /// the scores.
    fn rows_backward(
        &self,
        weights: &[f32],
        of_scores: &[f32],
        gradient: &[f32],
        of_rows: &mut [f32],
        of_sources: &mut [f32],
    ) {
        let (by_source, dim, heads, keep) =
            (self.edges.by_source(), self.dim(), self.heads, self.keep());
        let width = self.row_dim();
        let row = |target: u32| &gradient[target as usize * dim..][..dim];
        let of_source = self.num_relations() * heads;
        let parts = (Part::rows(of_rows, width), Part::rows(of_sources, of_source));
        for_balanced_rows!(&by_source.indptr, dim, parts, |sources, (of_rows, of_sources)| {
            let pairs = of_rows
                .values
                .chunks_exact_mut(width)
                .zip(of_sources.values.chunks_exact_mut(of_source));
            for (source, (of_row, of_source)) in sources.zip(pairs) {
                of_row.fill(0.0);
                of_source.fill(0.0);
                let out_edges = self.out_edges(
                    by_source,
                    source,
                    #[inline(always)]
                    |next| prefetch_all(row(next)),
                );
                for (target, edge) in out_edges {
                    self.add_weighted(&weights[edge * heads..][..heads], keep, row(target), of_row);
                    let sums = &mut of_source[self.relation(target as usize) * heads..];
                    for (sum, value) in sums.iter_mut().zip(&of_scores[edge * heads..][..heads]) {
                        *sum += value;
                    }
                }
            }
        });
    }
}
