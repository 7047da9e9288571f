//! Dynamic attention (Brody, Alon and Yahav, ICLR 2022, "GATv2", equation 7) on the host, forwards
//! and backwards.
//!
//! Returns: the weighted sums, and the weights for backward; backwards, the gradients of the
//! sources' rows, the targets' rows and the vector. Input: checked [`HostEdges`](crate::HostEdges),
//! matrices of matching sizes. A score is the product of a vector with LeakyReLU(source's row +
//! target's row) for each head, so every edge needs both rows, but only one number per head is kept
//! for an edge: LeakyReLU's argument is added up again backwards. A pass over the targets gives the
//! gradients of the scores, the targets and the vector; one over the sources, with the edges
//! grouped by source, that of the sources. Nothing is scattered. Cost: forwards one read of a row
//! for each edge, backwards three.

use std::hint::select_unpredictable;

use super::Attention;
use super::cpu::row_of;
use crate::edges::{Part, for_balanced_rows};
use crate::error::{KernelError, check_len, check_matrix};
use crate::prefetch::prefetch_all;
use crate::segment::kept;

/// Inputs of dynamic attention.
#[derive(Clone, Copy, Debug)]
pub struct DynamicRows<'a> {
    /// Sources × [`Attention::dim`]: the rows to sum, and the sources' part of LeakyReLU's
    /// argument.
    pub sources: &'a [f32],
    /// Targets × [`Attention::dim`]: the targets' part.
    pub targets: &'a [f32],
    /// [`Attention::dim`] factors of LeakyReLU's values.
    pub vector: &'a [f32],
}

/// Outputs of [`Attention::backward_dynamic`].
#[derive(Debug)]
pub struct DynamicGradient<'a> {
    /// Gradient of the sources' rows, as long as they are.
    pub sources: &'a mut [f32],
    /// Gradient of the targets' rows, as long as they are.
    pub targets: &'a mut [f32],
    /// Each target's contribution to the gradient of the vector, a row for each: the gradient is
    /// the sum of the rows.
    pub vector: &'a mut [f32],
}

impl Attention<'_> {
    /// Sets row `t` of `out` (targets × [`Attention::dim`]) to Σ weight · source's row, and
    /// `weights` ([`Attention::num_weights`] values) to the weights, target after target, edge
    /// after edge, head after head, with a minus sign where they are dropped.
    pub fn forward_dynamic(
        &self,
        rows: DynamicRows<'_>,
        out: &mut [f32],
        weights: &mut [f32],
    ) -> Result<(), KernelError> {
        let this = Attention { shares_rows: false, ..*self };
        this.check_dynamic(rows.sources, rows.targets, rows.vector.len())?;
        let (dim, head_dim) = (this.dim(), this.head_dim);
        this.attend(
            rows.sources,
            true,
            #[inline(always)]
            |target, source, offset, scores| {
                let source = row_of(rows.sources, source as usize, dim).chunks_exact(head_dim);
                let pairs = source.zip(row_of(rows.targets, target, dim).chunks_exact(head_dim));
                let heads = pairs.zip(rows.vector.chunks_exact(head_dim));
                for (score, ((source, of_target), vector)) in scores.iter_mut().zip(heads) {
                    *score = leaky_product(source, of_target, vector, this.slope) + offset;
                }
            },
            out,
            weights,
        )
    }

    /// Fills `out` with the gradients of the inputs of [`Attention::forward_dynamic`]. `gradient`
    /// (targets × [`Attention::dim`]) is the gradient of its output, `weights` the weights that it
    /// returned. `scratch` has the length of `weights`.
    pub fn backward_dynamic(
        &self,
        rows: DynamicRows<'_>,
        weights: &[f32],
        gradient: &[f32],
        scratch: &mut [f32],
        out: DynamicGradient<'_>,
    ) -> Result<(), KernelError> {
        let this = Attention { shares_rows: false, ..*self };
        this.check_dynamic(rows.sources, rows.targets, rows.vector.len())?;
        this.check_dynamic(out.sources, out.targets, rows.vector.len())?;
        this.check_backward(gradient, weights, scratch)?;
        let targets = this.edges.num_targets();
        check_matrix("gradient of the vector", targets, this.dim(), out.vector.len())?;
        if this.dim() == 0 {
            return Ok(());
        }
        this.targets_backward(rows, weights, gradient, scratch, out.targets, out.vector);
        this.sources_backward(rows, weights, scratch, gradient, out.sources);
        Ok(())
    }

    /// Computes the gradient of every edge's score, and from it the gradients of the targets and of
    /// the vector.
    fn targets_backward(
        &self,
        rows: DynamicRows<'_>,
        weights: &[f32],
        gradient: &[f32],
        of_scores: &mut [f32],
        of_targets: &mut [f32],
        of_vector: &mut [f32],
    ) {
        let (edges, dim, heads) = (self.edges, self.dim(), self.heads);
        let parts = (
            (Part::rows(of_targets, dim), Part::rows(of_vector, dim)),
            Part::edges(of_scores, heads, self.own_edges() * heads),
        );
        for_balanced_rows!(
            edges.indptr(),
            dim,
            parts,
            |targets, ((of_targets, of_vector), of_scores)| {
                let mut left = of_scores.values;
                let outs = of_targets
                    .values
                    .chunks_exact_mut(dim)
                    .zip(of_vector.values.chunks_exact_mut(dim));
                for (target, (of_target, of_vector)) in targets.zip(outs) {
                    let (mine, rest) = left.split_at_mut(self.count(target) * heads);
                    left = rest;
                    self.edges_backward(rows.sources, weights, gradient, target, mine);
                    of_target.fill(0.0);
                    of_vector.fill(0.0);
                    let own = row_of(rows.targets, target, dim);
                    for (i, mine) in mine.chunks_exact(heads).enumerate() {
                        let source = row_of(rows.sources, self.source(target, i) as usize, dim);
                        for (head, &of_score) in mine.iter().enumerate() {
                            let at = head * self.head_dim..(head + 1) * self.head_dim;
                            let pairs = source[at.clone()]
                                .iter()
                                .zip(&own[at.clone()])
                                .zip(&rows.vector[at.clone()]);
                            let outs = of_target[at.clone()].iter_mut().zip(&mut of_vector[at]);
                            for (((source, own), vector), (of_target, of_vector)) in pairs.zip(outs)
                            {
                                let sum = source + own;
                                let slope =
                                    of_score * select_unpredictable(sum > 0.0, 1.0, self.slope);
                                *of_target += slope * vector;
                                *of_vector += slope * sum;
                            }
                        }
                    }
                }
            }
        );
    }

    /// Sums over each source's edges: weight × gradient of the target's row, and the gradient
    /// through the scores.
    fn sources_backward(
        &self,
        rows: DynamicRows<'_>,
        weights: &[f32],
        of_scores: &[f32],
        gradient: &[f32],
        of_sources: &mut [f32],
    ) {
        let (by_source, dim, heads, keep) =
            (self.edges.by_source(), self.dim(), self.heads, self.keep());
        let of = |matrix, target: u32| row_of(matrix, target as usize, dim);
        for_balanced_rows!(
            &by_source.indptr,
            dim,
            Part::rows(of_sources, dim),
            |sources, of_sources| {
                for (source, of_source) in sources.zip(of_sources.values.chunks_exact_mut(dim)) {
                    of_source.fill(0.0);
                    let own = row_of(rows.sources, source, dim);
                    let out_edges = self.out_edges(
                        by_source,
                        source,
                        #[inline(always)]
                        |next| {
                            prefetch_all(of(gradient, next));
                            prefetch_all(of(rows.targets, next));
                        },
                    );
                    for (target, edge) in out_edges {
                        let (theirs, gradient) = (of(rows.targets, target), of(gradient, target));
                        for head in 0..heads {
                            let weight = kept(weights[edge * heads + head], keep);
                            let of_score = of_scores[edge * heads + head];
                            let at = head * self.head_dim..(head + 1) * self.head_dim;
                            let pairs = own[at.clone()]
                                .iter()
                                .zip(&theirs[at.clone()])
                                .zip(&rows.vector[at.clone()]);
                            let outs = of_source[at.clone()].iter_mut().zip(&gradient[at]);
                            for (((own, theirs), vector), (out, gradient)) in pairs.zip(outs) {
                                let slope = of_score
                                    * select_unpredictable(own + theirs > 0.0, 1.0, self.slope);
                                *out += weight * gradient + slope * vector;
                            }
                        }
                    }
                }
            }
        );
    }

    fn check_dynamic(
        &self,
        sources: &[f32],
        targets: &[f32],
        vector: usize,
    ) -> Result<(), KernelError> {
        let (num_sources, num_targets) = (self.edges.num_sources(), self.edges.num_targets());
        check_matrix("rows of the sources", num_sources, self.dim(), sources.len())?;
        check_matrix("rows of the targets", num_targets, self.dim(), targets.len())?;
        check_len("vector of the heads", self.dim(), vector)?;
        self.check_edges()
    }
}

/// The product of `vector` with LeakyReLU of the sum of two rows, summed in the same order on every
/// device.
#[inline(always)]
fn leaky_product(a: &[f32], b: &[f32], vector: &[f32], slope: f32) -> f32 {
    const LANES: usize = 16;
    let term = |a: f32, b: f32, factor: f32| {
        let sum = a + b;
        factor * if sum > 0.0 { sum } else { slope * sum }
    };
    let mut sums = [0f32; LANES];
    let whole = a.len() - a.len() % LANES;
    let rest: f32 = (whole..a.len()).map(|i| term(a[i], b[i], vector[i])).sum();
    let chunks = a.chunks_exact(LANES).zip(b.chunks_exact(LANES)).zip(vector.chunks_exact(LANES));
    for ((a, b), vector) in chunks {
        for lane in 0..LANES {
            sums[lane] += term(a[lane], b[lane], vector[lane]);
        }
    }
    sums.iter().sum::<f32>() + rest
}
