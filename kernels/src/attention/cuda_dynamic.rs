//! Dynamic attention on a GPU, forwards and backwards.
//!
//! Returns the host's results, up to rounding. Idea: as on the host; LeakyReLU's argument is added
//! up again backwards. A pass over the edges gives their scores, one over the targets the gradients
//! of targets and vector, one over the sources that of the sources. Rows may be bf16 or f16, as in
//! `cuda.rs`. Cost: forwards two reads of a row for each edge, backwards four; the host does not
//! wait.

use super::cuda::MODULE;
use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu, GpuError, arguments, pair};
use crate::error::{KernelError, check_len, check_matrix};
use crate::gather::{DeviceRow, four_at_once, row_kernel};

use super::DeviceAttention;

/// Inputs of dynamic attention: like [`DynamicRows`](super::DynamicRows).
#[derive(Clone, Copy, Debug)]
pub struct DeviceDynamicRows<'a, T> {
    /// Sources × [`DeviceAttention::dim`]: the rows to sum, and the sources' part of LeakyReLU's
    /// argument.
    pub sources: DeviceSlice<'a, T>,
    /// Targets × [`DeviceAttention::dim`]: the targets' part.
    pub targets: DeviceSlice<'a, T>,
    /// [`DeviceAttention::dim`] factors of LeakyReLU's values.
    pub vector: DeviceSlice<'a, f32>,
}

/// Outputs of [`DeviceAttention::backward_dynamic`]: like
/// [`DynamicGradient`](super::DynamicGradient).
#[derive(Debug)]
pub struct DeviceDynamicGradient<'a, T> {
    /// Gradient of the sources' rows, as long as they are.
    pub sources: DeviceSliceMut<'a, T>,
    /// Gradient of the targets' rows, as long as they are.
    pub targets: DeviceSliceMut<'a, T>,
    /// Each target's contribution to the gradient of the vector, a row for each: the gradient is
    /// the sum of the rows.
    pub vector: DeviceSliceMut<'a, f32>,
}

impl DeviceAttention<'_> {
    /// Sets row `t` of `out` (targets × [`DeviceAttention::dim`]) to Σ weight · source's row, and
    /// `weights` ([`DeviceAttention::num_weights`] values) to the weights, target after target,
    /// edge after edge, head after head, with a minus sign where they are dropped.
    pub fn forward_dynamic<T: DeviceRow>(
        &self,
        gpu: &Gpu,
        rows: DeviceDynamicRows<'_, T>,
        out: &mut DeviceSliceMut<'_, f32>,
        weights: &mut DeviceSliceMut<'_, f32>,
    ) -> Result<(), GpuError> {
        self.check_dynamic(rows.sources.len(), rows.targets.len(), rows.vector.len())?;
        self.check_outputs(out.len(), weights.len())?;
        if self.dim() == 0 {
            return Ok(());
        }
        let DeviceDynamicRows { sources, targets, vector } = rows;
        let rest = arguments![sources, targets, vector, self.slope];
        let aligned = [sources.address(), targets.address(), vector.address()];
        self.ends().launch(
            gpu,
            row_kernel!(MODULE, "dynamic_scores", T),
            &aligned,
            &rest,
            weights,
        )?;
        self.softmax(None).forward(gpu, weights)?;
        self.sum_weighted(gpu, sources, weights.as_slice(), out)
    }

    /// Fills `out` with the gradients of the inputs of [`DeviceAttention::forward_dynamic`].
    /// `gradient` (targets × [`DeviceAttention::dim`]) is the gradient of its output, `weights` the
    /// weights that it returned.
    pub fn backward_dynamic<T: DeviceRow>(
        &self,
        gpu: &Gpu,
        rows: DeviceDynamicRows<'_, T>,
        weights: DeviceSlice<'_, f32>,
        gradient: DeviceSlice<'_, f32>,
        out: DeviceDynamicGradient<'_, T>,
    ) -> Result<(), GpuError> {
        let edges = self.edges;
        self.check_dynamic(rows.sources.len(), rows.targets.len(), rows.vector.len())?;
        self.check_dynamic(out.sources.len(), out.targets.len(), rows.vector.len())?;
        self.check_outputs(gradient.len(), weights.len())?;
        check_matrix("gradient of the vector", edges.num_targets(), self.dim(), out.vector.len())?;
        if self.dim() == 0 {
            return Ok(());
        }
        let mut of_scores = gpu.alloc(self.num_weights())?;
        self.end_products(gpu, rows.sources, gradient, &of_scores.slice_mut())?;
        self.softmax(None).backward(gpu, weights, &of_scores.slice_mut(), None)?;

        let ends = [rows.sources, rows.targets].map(|slice| slice.address());
        let others =
            [rows.vector, weights, of_scores.slice(), gradient].map(|slice| slice.address());
        let read = [ends[0], ends[1], others[0], others[1], others[2], others[3]];
        let counts = pair(edges.num_sources(), edges.num_targets());
        let heads = pair(self.heads, self.head_dim);
        let of = [read[0], read[1], read[2], read[3], read[4], read[5], counts, heads];
        let outs = [out.sources.address(), out.targets.address(), out.vector.address()];
        // Arrays with one value per head are not read four at a time.
        let whole = [&[read[0], read[1], read[2], read[5]][..], &outs].concat();
        let width = four_at_once(self.head_dim, &whole);
        let [slope, keep] = [self.slope, self.keep()].map(|factor| factor.to_bits() as usize);
        let last = [pair(slope, self.self_loops.into()), pair((width > 1).into(), keep)];
        let indptr = edges.indptr().address();
        let shape = |list: u64, order: u64| [indptr, list, order, last[0], last[1], 0, 0, 0];
        let (by, chunks) = (edges.by_source(gpu)?, self.dim() / width);
        let targets =
            arguments![of, shape(edges.sources().address(), 0), &out.targets, &out.vector];
        let kernel = row_kernel!(MODULE, "dynamic_targets_backward", T);
        edges.by_target().sum(gpu, kernel, chunks, 8 * width, &targets)?;
        let order = [&by.targets, &by.edges].map(|list| list.slice().address());
        let sources = arguments![of, shape(order[0], order[1]), &out.sources];
        by.rows.sum(
            gpu,
            row_kernel!(MODULE, "dynamic_sources_backward", T),
            chunks,
            4 * width,
            &sources,
        )
    }

    fn check_dynamic(
        &self,
        sources: usize,
        targets: usize,
        vector: usize,
    ) -> Result<(), KernelError> {
        check_matrix("rows of the sources", self.edges.num_sources(), self.dim(), sources)?;
        check_matrix("rows of the targets", self.edges.num_targets(), self.dim(), targets)?;
        check_len("vector of the heads", self.dim(), vector)?;
        self.edges.check_own_rows(self.self_loops)
    }
}
