//! Attention on a GPU, forwards and backwards, and products of heads.
//!
//! Returns the host's results, up to rounding. Idea: the scores and their softmax in one kernel, a
//! number for each edge and head, then the weighted sum of `spmm`; backwards the products of the
//! rows at both ends of each edge, the gradient of the softmax, and two sums over the edges of each
//! source. No row is made for an edge. Rows may be bf16 or f16: scores, weights, sums and the
//! gradient from the layer above stay f32, and the gradient of a row is rounded once, after
//! everything was added up. Cost: one read of a row for each edge, backwards two; the host does not
//! wait.

use crate::columns::ColumnSums;
use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu, GpuError, Module, arguments, pair};
use crate::edges::DeviceEdges;
use crate::error::{KernelError, check_len, check_matrix, count_rows};
use crate::gather::{DeviceRow, four_at_once, row_kernel};
use crate::philox::StreamKey;
use crate::segment::cuda::{ScoreParts, SegmentSoftmax};
use crate::spmm::cuda::{EndProducts, products_of};
use crate::spmm::sum::{Factors, Over, Own, RowTable, SumRows, lanes};

pub(crate) static MODULE: Module = Module { name: "attention", source: include_str!("cuda.cu") };

/// Attention over a layer's edges on a GPU: like [`Attention`](super::Attention).
#[derive(Clone, Copy, Debug)]
pub struct DeviceAttention<'a> {
    /// The edges.
    pub edges: &'a DeviceEdges,
    /// Number of heads.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Slope of LeakyReLU below zero.
    pub slope: f32,
    /// Whether each target attends to itself too. Row `t` of the sources is target `t`'s own.
    pub self_loops: bool,
    /// Vertices of the targets, and rate and key of the dropout of weights.
    pub dropout: Option<(DeviceSlice<'a, u32>, f32, StreamKey)>,
}

/// Outputs of [`DeviceAttention::backward`]: like [`AttentionGradient`](super::AttentionGradient).
#[derive(Debug)]
pub struct DeviceAttentionGradient<'a, T> {
    /// Gradient of the rows: sources × [`DeviceAttention::dim`].
    pub rows: DeviceSliceMut<'a, T>,
    /// Gradient of the sources' part of the scores: sources × heads.
    pub from_source: DeviceSliceMut<'a, f32>,
    /// Gradient of the targets' part: targets × heads.
    pub from_target: DeviceSliceMut<'a, f32>,
}

impl DeviceAttention<'_> {
    /// Sets row `t` of `out` (targets × [`DeviceAttention::dim`]) to Σ weight · `rows[source]`, and
    /// `weights` ([`DeviceAttention::num_weights`] values) to the weights, target after target,
    /// edge after edge, head after head, with a minus sign where they are dropped.
    ///
    /// `rows` is sources × [`DeviceAttention::dim`], `from_source` sources × heads, `from_target`
    /// targets × heads.
    pub fn forward<T: DeviceRow>(
        &self,
        gpu: &Gpu,
        rows: DeviceSlice<'_, T>,
        [from_source, from_target]: [DeviceSlice<'_, f32>; 2],
        out: &mut DeviceSliceMut<'_, f32>,
        weights: &mut DeviceSliceMut<'_, f32>,
    ) -> Result<(), GpuError> {
        self.check(rows.len(), [from_source.len(), from_target.len()])?;
        self.check_outputs(out.len(), weights.len())?;
        if self.dim() == 0 {
            return Ok(());
        }
        self.softmax(Some([from_source, from_target])).forward(gpu, weights)?;
        self.sum_weighted(gpu, rows, weights.as_slice(), out)
    }

    /// Fills `out` with the gradients of the inputs of [`DeviceAttention::forward`]. `gradient`
    /// (targets × [`DeviceAttention::dim`]) is the gradient of its output, `weights` the weights
    /// that it returned. The gradient of the rows covers the weighted sum, and with `vectors` the
    /// scores too: they are then [`head_products_on_device`] of the rows with the first, and of the
    /// targets' own rows with the second.
    pub fn backward<T: DeviceRow>(
        &self,
        gpu: &Gpu,
        rows: DeviceSlice<'_, T>,
        vectors: Option<[DeviceSlice<'_, f32>; 2]>,
        scores: [DeviceSlice<'_, f32>; 2],
        weights: DeviceSlice<'_, f32>,
        gradient: DeviceSlice<'_, f32>,
        out: DeviceAttentionGradient<'_, T>,
    ) -> Result<(), GpuError> {
        self.check(rows.len(), scores.map(|scores| scores.len()))?;
        self.check(out.rows.len(), [out.from_source.len(), out.from_target.len()])?;
        self.check_outputs(gradient.len(), weights.len())?;
        for vector in vectors.iter().flatten() {
            check_len("vector of the heads", self.dim(), vector.len())?;
        }
        if self.dim() == 0 {
            return Ok(());
        }
        let mut of_scores = gpu.alloc(self.num_weights())?;
        self.end_products(gpu, rows, gradient, &of_scores.slice_mut())?;
        self.softmax(Some(scores)).backward(
            gpu,
            weights,
            &of_scores.slice_mut(),
            Some(&out.from_target),
        )?;
        let by = self.edges.by_source(gpu)?;
        let sum = SumRows {
            over: Over::Sources(by, self.edges.indptr()),
            kernel: f32::of(f32::SUM_BY_SOURCE),
            table: RowTable::default(),
            factors: self.factors(of_scores.slice(), 0.0),
            dim: self.heads,
        };
        sum.launch(gpu, &out.from_source, [self.heads, 0])?;

        let vectors = vectors.map_or([0; 2], |vectors| vectors.map(|vector| vector.address()));
        let read = [
            gradient.address(),
            weights.address(),
            out.from_source.address(),
            out.from_target.address(),
        ];
        let counts = pair(self.edges.num_targets(), self.heads);
        let shape = pair(self.head_dim, self.self_loops.into());
        let of = [read[0], read[1], read[2], read[3], vectors[0], vectors[1], counts, shape];
        let whole = [read[0], vectors[0], vectors[1], out.rows.address()];
        let width = four_at_once(self.head_dim, &whole);
        let (indptr, keep, wide) = (self.edges.indptr(), self.keep(), u32::from(width > 1));
        let rest = arguments![of, indptr, &by.targets, &by.edges, keep, &out.rows, wide];
        by.rows.sum(
            gpu,
            row_kernel!(MODULE, "attended_sources", T),
            self.dim() / width,
            4 * width,
            &rest,
        )
    }

    /// Width of a row: all heads together.
    pub fn dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Number of weights: one for each edge, self-loops included, and head.
    pub fn num_weights(&self) -> usize {
        (self.edges.num_edges() + if self.self_loops { self.edges.num_targets() } else { 0 })
            * self.heads
    }

    /// The softmax over the scores of each target's edges; the scores are made of `parts`, or
    /// present already.
    pub(super) fn softmax<'s>(
        &'s self,
        parts: Option<[DeviceSlice<'s, f32>; 2]>,
    ) -> SegmentSoftmax<'s> {
        let scores = parts.map(|[from_source, from_target]| ScoreParts {
            sources: self.edges.sources(),
            num_sources: self.edges.num_sources(),
            from_source,
            from_target,
            slope: self.slope,
        });
        let (segments, columns, own) = (self.edges.by_target(), self.heads, self.self_loops);
        SegmentSoftmax { segments, columns, own, scores, dropout: self.dropout }
    }

    /// Factor of the attention weights that dropout keeps.
    pub(super) fn keep(&self) -> f32 {
        self.softmax(None).keep()
    }

    /// Sets `out` to Σ weight after dropout · source's row over each target's edges.
    pub(super) fn sum_weighted<T: DeviceRow>(
        &self,
        gpu: &Gpu,
        rows: DeviceSlice<'_, T>,
        weights: DeviceSlice<'_, f32>,
        out: &DeviceSliceMut<'_, f32>,
    ) -> Result<(), GpuError> {
        let over = Over::Targets(self.edges.by_target(), Some(self.edges.sources()));
        let table = RowTable::matrix(rows, self.edges.num_sources(), self.dim());
        let kernel = f32::of(T::SUM);
        let factors = self.factors(weights, self.keep());
        SumRows { over, kernel, table, factors, dim: self.dim() }.launch(gpu, out, [self.dim(), 0])
    }

    /// Sets `out`, for each edge and head, to the product of the source's row with the target's
    /// gradient.
    pub(super) fn end_products<T: DeviceRow>(
        &self,
        gpu: &Gpu,
        rows: DeviceSlice<'_, T>,
        gradient: DeviceSlice<'_, f32>,
        out: &DeviceSliceMut<'_, f32>,
    ) -> Result<(), GpuError> {
        let rest = arguments![rows, gradient, self.dim(), 0u64];
        self.ends().launch(
            gpu,
            products_of::<T>(),
            &[rows.address(), gradient.address()],
            &rest,
            out,
        )
    }

    pub(super) fn ends(&self) -> EndProducts<'_> {
        let Self { edges, heads, head_dim, self_loops, .. } = *self;
        EndProducts { edges, heads, head_dim, own: self_loops, mean: false }
    }

    fn factors(&self, weights: DeviceSlice<'_, f32>, keep: f32) -> Factors {
        let own = if self.self_loops { Own::SelfLoop } else { Own::Nothing };
        let num_own = self.edges.num_targets();
        let (weights, heads) = (weights.address(), self.heads);
        Factors { weights, num_own, heads, own, keep, ..Factors::default() }
    }

    fn check(
        &self,
        rows: usize,
        [from_source, from_target]: [usize; 2],
    ) -> Result<(), KernelError> {
        let (sources, targets) = (self.edges.num_sources(), self.edges.num_targets());
        check_matrix("rows of the sources", sources, self.dim(), rows)?;
        check_matrix("scores of the sources", sources, self.heads, from_source)?;
        check_matrix("scores of the targets", targets, self.heads, from_target)?;
        self.edges.check_own_rows(self.self_loops)
    }

    /// Checks the outputs, or their gradients.
    pub(super) fn check_outputs(&self, out: usize, weights: usize) -> Result<(), KernelError> {
        check_matrix("output of attention", self.edges.num_targets(), self.dim(), out)?;
        check_len("attention weights", self.num_weights(), weights)
    }
}

/// [`head_products`](super::head_products) on a GPU.
pub fn head_products_on_device<T: DeviceRow>(
    gpu: &Gpu,
    rows: DeviceSlice<'_, T>,
    vector: DeviceSlice<'_, f32>,
    head_dim: usize,
    out: &mut DeviceSliceMut<'_, f32>,
) -> Result<(), GpuError> {
    let (heads, count) = check_heads(rows.len(), vector.len(), head_dim)?;
    check_matrix("products of the heads", count, heads, out.len())?;
    let at_once = four_at_once(head_dim, &[rows.address(), vector.address()]);
    let lanes = lanes(head_dim / at_once);
    let [per_row, width, together] = [heads, head_dim, lanes].map(|number| number as u32);
    let wide = u32::from(at_once > 1);
    let of = arguments![rows, vector, count, per_row, width, together, wide, &*out];
    gpu.run(row_kernel!(MODULE, "head_products", T), count * heads * lanes, &of)
}

/// [`head_products_backward`](super::head_products_backward) on a GPU.
pub fn head_products_backward_on_device<T: DeviceRow>(
    gpu: &Gpu,
    rows: DeviceSlice<'_, T>,
    gradient: DeviceSlice<'_, f32>,
    head_dim: usize,
    out: &mut DeviceSliceMut<'_, f32>,
) -> Result<(), GpuError> {
    let (heads, count) = check_heads(rows.len(), out.len(), head_dim)?;
    check_matrix("gradient of the products", count, heads, gradient.len())?;
    let kernel = row_kernel!(MODULE, "head_products_backward", T);
    let rest = arguments![rows, gradient, heads as u32];
    ColumnSums { rows: count, dim: out.len() }.run_into(gpu, kernel, 1, &rest, out)
}

/// Returns the number of heads and of rows.
fn check_heads(rows: usize, vector: usize, head_dim: usize) -> Result<(usize, usize), KernelError> {
    let heads = count_rows("vector of the heads", head_dim, vector)?;
    let count = count_rows("rows of the heads", vector, rows)?;
    Ok((heads, count))
}
