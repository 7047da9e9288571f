//! Layer norm and batch norm on a GPU.
//!
//! Returns what the host does: the same bits where a value is made of its own row and column alone, else up to rounding; sums over
//! rows are taken in f64. Cost: a read and a write of the rows (backwards two reads) where rows fit the nearest cache, and
//! one more read for sums over rows; the host does not wait.

use crate::columns::ColumnSums;
use crate::cuda::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Gpu, GpuError, Kernel, Module, Shape};
use crate::error::KernelError;

use super::check;

pub(crate) static MODULE: Module = Module { name: "norm", source: include_str!("cuda.cu") };

/// Threads of a block.
const THREADS: u32 = 256;

fn kernel(name: &'static str) -> Kernel {
    Kernel { module: &MODULE, name }
}

/// Whether all start where four values can be loaded at once.
fn aligned(addresses: &[u64]) -> bool {
    addresses.iter().all(|address| address.is_multiple_of(16))
}

/// [`layer_norm`](super::layer_norm) on a GPU: `moments` is rows × 2.
///
/// # Errors
/// [`KernelError::Length`] if a buffer has not the right length; what the GPU reports.
pub fn layer_norm_on_device(
    gpu: &Gpu,
    rows: DeviceSlice<'_, f32>,
    [scale, shift]: [DeviceSlice<'_, f32>; 2],
    epsilon: f32,
    moments: &mut DeviceSliceMut<'_, f32>,
    out: &mut DeviceSliceMut<'_, f32>,
) -> Result<(), GpuError> {
    let dim = scale.len();
    let count = check(dim, &[("rows to normalise", rows.len()), ("normalised rows", out.len())])?;
    KernelError::check_len("shift of the norm", dim, shift.len())?;
    KernelError::check_matrix("moments of the rows", count, 2, moments.len())?;
    let wide = dim.is_multiple_of(4) && aligned(&[rows.address(), scale.address(), shift.address(), out.address()]);
    let arguments = [
        rows.into(),
        scale.into(),
        shift.into(),
        epsilon.into(),
        (count as u64).into(),
        (dim as u32).into(),
        (&*moments).into(),
        (&*out).into(),
        u32::from(wide).into(),
    ];
    gpu.launch(kernel("norm_rows"), Shape::per_warp(count, THREADS), &arguments)
}

/// [`layer_norm_backward`](super::layer_norm_backward) on a GPU: the gradients of scale and shift are returned.
///
/// # Errors
/// [`KernelError::Length`] if a buffer has not the right length; what the GPU reports.
pub fn layer_norm_backward_on_device(
    gpu: &Gpu,
    rows: DeviceSlice<'_, f32>,
    scale: DeviceSlice<'_, f32>,
    moments: DeviceSlice<'_, f32>,
    gradient: DeviceSlice<'_, f32>,
    out: &mut DeviceSliceMut<'_, f32>,
) -> Result<[DeviceBuffer<f32>; 2], GpuError> {
    let dim = scale.len();
    let matrices = [
        ("normalised rows", rows.len()),
        ("gradient of the norm", gradient.len()),
        ("gradient of the rows", out.len()),
    ];
    let count = check(dim, &matrices)?;
    KernelError::check_matrix("moments of the rows", count, 2, moments.len())?;
    let wide = dim.is_multiple_of(4) && aligned(&[rows.address(), scale.address(), gradient.address(), out.address()]);
    let sizes = [(count as u64).into(), (dim as u32).into()];
    let matrices = [rows.into(), scale.into(), moments.into(), gradient.into()];
    let last = [(&*out).into(), u32::from(wide).into()];
    let arguments = [&matrices[..], &sizes, &last].concat();
    gpu.launch(kernel("norm_rows_backward"), Shape::per_warp(count, THREADS), &arguments)?;
    let rest = [rows.into(), moments.into(), gradient.into()];
    let sums = ColumnSums { rows: count, dim }.run::<f64>(gpu, kernel("norm_row_sums"), 2, &rest)?;
    Ok([narrow(gpu, sums.slice().part(0, dim)?)?, narrow(gpu, sums.slice().part(dim, 2 * dim)?)?])
}

fn narrow(gpu: &Gpu, values: DeviceSlice<'_, f64>) -> Result<DeviceBuffer<f32>, GpuError> {
    let out = gpu.alloc(values.len())?;
    let arguments = [values.into(), (values.len() as u64).into(), (&out).into()];
    gpu.launch(kernel("norm_narrow"), Shape::per_item(values.len(), THREADS), &arguments)?;
    Ok(out)
}

/// [`column_moments`](super::column_moments) on a GPU: 1 + 2 · `dim` sums.
///
/// # Errors
/// [`KernelError::Length`] if a buffer has not the right length; what the GPU reports.
pub fn column_moments_on_device(
    gpu: &Gpu,
    rows: DeviceSlice<'_, f32>,
    weights: Option<DeviceSlice<'_, f32>>,
    dim: usize,
) -> Result<DeviceBuffer<f64>, GpuError> {
    let count = check(dim, &[("rows to normalise", rows.len())])?;
    if let Some(weights) = weights {
        KernelError::check_len("weights of the rows", count, weights.len())?;
    }
    let given = weights.map_or(0, |weights| weights.address());
    let rest = [rows.into(), given.into()];
    let sums = ColumnSums { rows: count, dim }.run::<f64>(gpu, kernel("norm_moments"), 2, &rest)?;
    let weigh = |weights: DeviceSlice<'_, f32>| {
        ColumnSums { rows: count, dim: 1 }.run::<f64>(gpu, kernel("norm_weights"), 1, &[weights.into()])
    };
    let weight = weights.map(weigh).transpose()?;
    let out = gpu.alloc(1 + 2 * dim)?;
    let total = weight.as_ref().map_or(0, |weight| weight.slice().address());
    let sizes = [(count as u64).into(), (2 * dim as u64).into()];
    let arguments = [total.into(), sizes[0], (&sums).into(), sizes[1], (&out).into()];
    gpu.launch(kernel("norm_join"), Shape::per_item(out.len(), THREADS), &arguments)?;
    Ok(out)
}

/// Mean and variance of each column over rows of which [`column_moments_on_device`] took the sums, added up over the ranks that
/// share them. The host sees none of it.
#[derive(Debug)]
pub struct DeviceMoments {
    /// Number of rows, then the sums.
    sums: DeviceBuffer<f64>,
    /// Means, 1 / √(variance + ε), and variances of which the rows are a sample (divided by one row less).
    columns: DeviceBuffer<f32>,
}

impl DeviceMoments {
    /// What `sums` say. `epsilon` is added to the variances.
    ///
    /// # Errors
    /// [`KernelError::Length`] unless they are 1 + 2 · columns; what the GPU reports.
    pub fn new(gpu: &Gpu, sums: DeviceBuffer<f64>, epsilon: f64) -> Result<Self, GpuError> {
        let dim = sums.len().saturating_sub(1) / 2;
        KernelError::check_len("sums of the columns", 1 + 2 * dim, sums.len())?;
        let moments = Self { sums, columns: gpu.alloc(3 * dim)? };
        let [mean, inverse, unbiased] = [0, 1, 2].map(|which| moments.column(which).into());
        let arguments =
            [(&moments.sums).into(), (dim as u32).into(), epsilon.to_bits().into(), mean, inverse, unbiased];
        gpu.launch(kernel("norm_factors"), Shape::per_item(dim, THREADS), &arguments)?;
        Ok(moments)
    }

    fn column(&self, which: usize) -> DeviceSlice<'_, f32> {
        let (all, dim) = (self.columns.slice(), self.columns.len() / 3);
        all.part(which * dim, (which + 1) * dim).unwrap_or(all)
    }

    /// To normalise rows by.
    pub fn norm(&self) -> DeviceColumnNorm<'_> {
        DeviceColumnNorm { mean: self.column(0), inverse: self.column(1) }
    }

    /// For running statistics: means, and variances divided by one row less.
    pub fn statistics(&self) -> [DeviceSlice<'_, f32>; 2] {
        [self.column(0), self.column(2)]
    }

    /// Divides sums over the rows of all ranks by the number of these rows.
    ///
    /// # Errors
    /// What the GPU reports.
    pub fn divide(&self, gpu: &Gpu, sums: &mut DeviceSliceMut<'_, f64>) -> Result<(), GpuError> {
        let arguments = [(&self.sums).into(), (&*sums).into(), (sums.len() as u64).into()];
        gpu.launch(kernel("norm_means"), Shape::per_item(sums.len(), THREADS), &arguments)
    }

    /// The number of rows, on the host, which waits for it.
    ///
    /// # Errors
    /// What the GPU reports.
    pub fn num_rows(&self, gpu: &Gpu) -> Result<f64, GpuError> {
        Ok(self.sums.slice().part(0, 1)?.to_vec(gpu)?.first().copied().unwrap_or(0.0))
    }
}

/// Columns of rows on a GPU, with the moments to normalise them by: as [`ColumnNorm`](super::ColumnNorm).
#[derive(Clone, Copy, Debug)]
pub struct DeviceColumnNorm<'a> {
    /// Mean of each column.
    pub mean: DeviceSlice<'a, f32>,
    /// 1 / √(variance + ε) of each column.
    pub inverse: DeviceSlice<'a, f32>,
}

impl DeviceColumnNorm<'_> {
    /// Row `r` of `out` becomes `scale · (row - mean) · inverse + shift` of row `r` of `rows`.
    ///
    /// # Errors
    /// [`KernelError::Length`] if a buffer has not the right length; what the GPU reports.
    pub fn forward(
        &self,
        gpu: &Gpu,
        rows: DeviceSlice<'_, f32>,
        [scale, shift]: [DeviceSlice<'_, f32>; 2],
        out: &mut DeviceSliceMut<'_, f32>,
    ) -> Result<(), GpuError> {
        let dim = self.check(&[("rows to normalise", rows.len()), ("normalised rows", out.len())])?;
        KernelError::check_len("scale of the norm", dim, scale.len())?;
        KernelError::check_len("shift of the norm", dim, shift.len())?;
        let columns = [self.mean.into(), self.inverse.into(), scale.into(), shift.into()];
        let last = [(rows.len() as u64).into(), (dim as u32).into(), (&*out).into()];
        let arguments = [&[rows.into()], &columns[..], &last].concat();
        gpu.launch(kernel("norm_columns"), Shape::per_item(rows.len(), THREADS), &arguments)
    }

    /// `out` becomes the gradient of `rows` as if the moments were constants, and the result that of scale and shift, where
    /// `gradient` is that of what [`DeviceColumnNorm::forward`] returned.
    ///
    /// # Errors
    /// [`KernelError::Length`] if a buffer has not the right length; what the GPU reports.
    pub fn backward(
        &self,
        gpu: &Gpu,
        rows: DeviceSlice<'_, f32>,
        scale: DeviceSlice<'_, f32>,
        gradient: DeviceSlice<'_, f32>,
        out: &mut DeviceSliceMut<'_, f32>,
    ) -> Result<[DeviceBuffer<f32>; 2], GpuError> {
        let dim = self.check(&[
            ("normalised rows", rows.len()),
            ("gradient of the norm", gradient.len()),
            ("gradient of the rows", out.len()),
        ])?;
        KernelError::check_len("scale of the norm", dim, scale.len())?;
        let sums = self.products(gpu, rows, gradient)?;
        let last = [(rows.len() as u64).into(), (dim as u32).into(), (&*out).into()];
        let arguments = [&[self.inverse.into(), scale.into(), gradient.into()], &last[..]].concat();
        gpu.launch(kernel("norm_columns_backward"), Shape::per_item(rows.len(), THREADS), &arguments)?;
        Ok([narrow(gpu, sums.slice().part(dim, 2 * dim)?)?, narrow(gpu, sums.slice().part(0, dim)?)?])
    }

    /// The sums of each column of `gradient`, then those of its products with x̂: 2 · columns.
    ///
    /// # Errors
    /// [`KernelError::Length`] if a buffer has not the right length; what the GPU reports.
    pub fn products(
        &self,
        gpu: &Gpu,
        rows: DeviceSlice<'_, f32>,
        gradient: DeviceSlice<'_, f32>,
    ) -> Result<DeviceBuffer<f64>, GpuError> {
        let dim = self.check(&[("normalised rows", rows.len()), ("gradient of the rows", gradient.len())])?;
        let count = rows.len().checked_div(dim).unwrap_or(0);
        let rest = [rows.into(), self.mean.into(), self.inverse.into(), gradient.into()];
        ColumnSums { rows: count, dim }.run(gpu, kernel("norm_products"), 2, &rest)
    }

    /// Turns `gradient`, as [`DeviceColumnNorm::backward`] returned it, into that of rows that the moments depend on: takes away
    /// `weight · (plain + x̂ · spread)`, with `means` what [`DeviceColumnNorm::products`] returned, over all ranks and rows.
    ///
    /// # Errors
    /// [`KernelError::Length`] if a buffer has not the right length; what the GPU reports.
    pub fn correct(
        &self,
        gpu: &Gpu,
        rows: DeviceSlice<'_, f32>,
        weights: Option<DeviceSlice<'_, f32>>,
        means: DeviceSlice<'_, f64>,
        gradient: &mut DeviceSliceMut<'_, f32>,
    ) -> Result<(), GpuError> {
        let dim = self.check(&[("normalised rows", rows.len()), ("gradient of the rows", gradient.len())])?;
        KernelError::check_len("means of the products", 2 * dim, means.len())?;
        if let Some(weights) = weights {
            KernelError::check_len("weights of the rows", rows.len().checked_div(dim).unwrap_or(0), weights.len())?;
        }
        let weights = weights.map_or(0, |weights| weights.address());
        let columns = [self.mean.into(), self.inverse.into(), weights.into(), means.into()];
        let last = [(rows.len() as u64).into(), (dim as u32).into(), (&*gradient).into()];
        let arguments = [&[rows.into()], &columns[..], &last].concat();
        gpu.launch(kernel("norm_correct"), Shape::per_item(rows.len(), THREADS), &arguments)
    }

    fn check(&self, matrices: &[(&'static str, usize)]) -> Result<usize, KernelError> {
        KernelError::check_len("moments of the columns", self.mean.len(), self.inverse.len())?;
        check(self.mean.len(), matrices)?;
        Ok(self.mean.len())
    }
}
