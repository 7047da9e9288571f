//! Sums, means and maxima of rows over edges on a GPU.
//!
//! Inputs and results are those of the functions for the host, in memory of the device. Idea:
//! `rows.cuh`; each column of a row is summed in the order of its edges, so that results are the
//! host's bit for bit, except for rows of more than 512 edges, which are summed in pieces. Rows of
//! bf16 and f16 are summed in f32 too, and sums may be rounded to either as they are written: half
//! the bytes. A load takes 16 bytes of a row where its width and address are multiples of that; in
//! rows of 16-bit values of which only four are aligned (100 columns, for example) a thread still
//! sums eight columns, by two loads. Backwards the edges are grouped by source (once), so nothing
//! is scattered. Cost: one read of a row for each edge, one write of each output row; the host does
//! not wait.

use crate::cuda::{
    Argument, DeviceSlice, DeviceSliceMut, Gpu, GpuError, Kernel, Module, arguments, pair,
};
use crate::edges::DeviceEdges;
use crate::error::{KernelError, check_len, check_matrix};
use crate::gather::{DeviceRow, DeviceTable, DeviceValue, four_at_once, row_kernel};

use super::Reduce;
use super::sum::{Factors, Over, Own, RowTable, SumRows, lanes};

pub(crate) static MODULE: Module = Module { name: "spmm", source: include_str!("cuda.cu") };
/// Sums that are rounded.
pub(crate) static NARROW: Module =
    Module { name: "spmm_narrow", source: include_str!("narrow.cu") };
/// Maxima.
pub(crate) static MAX: Module = Module { name: "spmm_max", source: include_str!("max.cu") };

/// Rows to aggregate.
#[derive(Clone, Copy, Debug)]
pub enum DeviceRows<'a, T> {
    /// The rows of the sources, one after the other.
    Matrix(DeviceSlice<'a, T>),
    /// The row of the table at the position of each source, as if it were gathered: values are
    /// multiplied by the scale of the row, and rounded to the type of the output.
    At(DeviceTable<'a, T>, DeviceSlice<'a, u32>),
}

impl<'a, T> From<DeviceSlice<'a, T>> for DeviceRows<'a, T> {
    fn from(table: DeviceSlice<'a, T>) -> Self {
        Self::Matrix(table)
    }
}

/// An aggregation over a layer's edges on a GPU: like [`Aggregation`](super::Aggregation).
#[derive(Clone, Copy, Debug)]
pub struct DeviceAggregation<'a> {
    /// The edges.
    pub edges: &'a DeviceEdges,
    /// Sum or mean.
    pub reduce: Reduce,
    /// A factor for the row of each edge; 1 when `None`.
    pub weights: Option<DeviceSlice<'a, f32>>,
    /// Whether the target's own row comes first.
    pub concat_self: bool,
}

impl DeviceAggregation<'_> {
    /// Sets row `t` of `out` (targets × [`DeviceAggregation::out_dim`]) to the aggregate of the
    /// rows of the sources of the edges into `t`, widened to `f32`; the result is rounded to the
    /// type of `out`. A missing row counts as NaNs.
    pub fn forward<'r, T: DeviceValue, O: DeviceRow>(
        &self,
        gpu: &Gpu,
        rows: impl Into<DeviceRows<'r, T>>,
        dim: usize,
        out: &mut DeviceSliceMut<'_, O>,
    ) -> Result<(), GpuError> {
        let (edges, rows) = (self.edges, rows.into());
        self.check()?;
        let stride = self.out_dim(dim);
        check_matrix("output of aggregation", edges.num_targets(), stride, out.len())?;
        if dim == 0 {
            return Ok(());
        }
        let sum = SumRows {
            over: Over::Targets(edges.by_target(), Some(edges.sources())),
            kernel: O::of(T::SUM),
            table: table_of(rows, edges.num_sources(), dim)?,
            factors: self.factors(edges.num_targets()),
            dim,
        };
        sum.launch(gpu, out, [stride, self.own_dim(dim)])
    }

    /// Sets row `s` of `out` (sources × `dim`) to the gradient of source row `s`. `gradient`
    /// (targets × [`DeviceAggregation::out_dim`]) is the gradient of the output. If the source rows
    /// are the output of ReLU and of dropout, `relu` may have them, and the factor of the values
    /// that dropout kept: the gradient is then that of the input of ReLU.
    pub fn backward<T: DeviceRow, O: DeviceRow>(
        &self,
        gpu: &Gpu,
        gradient: DeviceSlice<'_, T>,
        relu: Option<(DeviceSlice<'_, O>, f32)>,
        dim: usize,
        out: &mut DeviceSliceMut<'_, O>,
    ) -> Result<(), GpuError> {
        if let Some((rows, _)) = relu {
            check_len("rows of the sources", out.len(), rows.len())?;
        }
        let (edges, stride) = (self.edges, self.out_dim(dim));
        self.check()?;
        check_matrix("gradient of aggregation", edges.num_targets(), stride, gradient.len())?;
        check_matrix("gradient of the sources", edges.num_sources(), dim, out.len())?;
        if dim == 0 {
            return Ok(());
        }
        let sum = SumRows {
            over: Over::Sources(edges.by_source(gpu)?, edges.indptr()),
            kernel: O::of(T::SUM_BY_SOURCE),
            table: RowTable {
                offset: self.own_dim(dim),
                ..RowTable::matrix(gradient, edges.num_targets(), stride)
            },
            factors: Factors {
                relu: relu.map(|(rows, keep)| (rows.address(), keep)),
                ..self.factors(edges.num_targets())
            },
            dim,
        };
        sum.launch(gpu, out, [dim, 0])
    }

    /// Sets `out[e]` to the gradient of edge `e`'s weight: the product of its source's row with its
    /// target's gradient, divided by the number of edges for the mean.
    pub fn weights_backward(
        &self,
        gpu: &Gpu,
        rows: DeviceSlice<'_, f32>,
        gradient: DeviceSlice<'_, f32>,
        dim: usize,
        out: &mut DeviceSliceMut<'_, f32>,
    ) -> Result<(), GpuError> {
        let (edges, stride) = (self.edges, self.out_dim(dim));
        self.check()?;
        check_matrix("rows of the sources", edges.num_sources(), dim, rows.len())?;
        check_matrix("gradient of aggregation", edges.num_targets(), stride, gradient.len())?;
        check_len("gradient of the weights", edges.num_edges(), out.len())?;
        let ends = EndProducts {
            edges,
            heads: 1,
            head_dim: dim,
            own: false,
            mean: self.reduce == Reduce::Mean,
        };
        let aligned = [rows.address(), gradient.address(), self.own_dim(dim) as u64 * 4];
        let rest = arguments![rows, gradient, stride, self.own_dim(dim)];
        ends.launch(gpu, products_of::<f32>(), &aligned, &rest, out)
    }

    /// Width of an output row for sources of width `dim`.
    pub fn out_dim(&self, dim: usize) -> usize {
        dim + self.own_dim(dim)
    }

    fn own_dim(&self, dim: usize) -> usize {
        if self.concat_self { dim } else { 0 }
    }

    fn factors(&self, num_own: usize) -> Factors {
        let own = if self.concat_self { Own::Beside } else { Own::Nothing };
        let weights = self.weights.map_or(0, |weights| weights.address());
        Factors { weights, num_own, own, mean: self.reduce == Reduce::Mean, ..Factors::default() }
    }

    fn check(&self) -> Result<(), KernelError> {
        if let Some(weights) = self.weights {
            check_len("edge weights", self.edges.num_edges(), weights.len())?;
        }
        self.edges.check_own_rows(self.concat_self)
    }
}

/// `rows`, one for each of `sources` sources, as the kernel takes them.
fn table_of<T: DeviceValue>(
    rows: DeviceRows<'_, T>,
    sources: usize,
    dim: usize,
) -> Result<RowTable, KernelError> {
    match rows {
        DeviceRows::Matrix(values) => {
            check_matrix("rows to aggregate", sources, dim, values.len())?;
            Ok(RowTable::matrix(values, sources, dim))
        }
        DeviceRows::At(table, positions) => {
            check_len("values of a row to aggregate", dim, table.dim)?;
            check_len("rows to aggregate", sources, positions.len())?;
            Ok(RowTable {
                scales: table.scales.map_or(0, |scales| scales.address()),
                positions: positions.address(),
                count: sources,
                ..RowTable::matrix(table.values, table.rows()?, dim)
            })
        }
    }
}

/// The kernel of [`EndProducts`] for rows of `T` and gradients of f32.
pub(crate) fn products_of<T: DeviceRow>() -> Kernel {
    row_kernel!(MODULE, "end_products", T)
}

/// Products of the rows at both ends of each edge, a number for each head: `Ends` of `rows.cuh`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndProducts<'a> {
    pub edges: &'a DeviceEdges,
    pub heads: usize,
    pub head_dim: usize,
    /// Whether each target has an edge from its own row, before its others.
    pub own: bool,
    pub mean: bool,
}

impl EndProducts<'_> {
    /// Runs `kernel`, whose arguments are `Ends` and `rest`; `aligned` are the addresses, with
    /// bytes per value, that decide whether it may load four values at once.
    pub(crate) fn launch(
        &self,
        gpu: &Gpu,
        kernel: Kernel,
        aligned: &[u64],
        rest: &[Argument],
        out: &DeviceSliceMut<'_, f32>,
    ) -> Result<(), GpuError> {
        let Self { edges, heads, head_dim, own, mean } = *self;
        let at_once = four_at_once(head_dim, aligned);
        let lanes = lanes(head_dim / at_once);
        let words = [
            edges.indptr().address(),
            edges.sources().address(),
            edges.targets(gpu)?.address(),
            edges.num_edges() as u64,
            pair(edges.num_targets(), edges.num_sources()),
            pair(heads, head_dim),
            pair(own.into(), mean.into()),
            pair(lanes, (at_once > 1).into()),
        ];
        let items = (edges.num_edges() + if own { edges.num_targets() } else { 0 }) * heads;
        let arguments = [&arguments![words, out][..], rest].concat();
        gpu.run(kernel, items * lanes, &arguments)
    }
}

/// [`aggregate_max`](super::aggregate_max) on a GPU. Maxima have the rows' type: each is a value of
/// a row.
pub fn aggregate_max_on_device<T: DeviceRow>(
    gpu: &Gpu,
    edges: &DeviceEdges,
    rows: DeviceSlice<'_, T>,
    dim: usize,
    out: &mut DeviceSliceMut<'_, T>,
    picked: &mut DeviceSliceMut<'_, u32>,
) -> Result<(), GpuError> {
    check_matrix("rows of the sources", edges.num_sources(), dim, rows.len())?;
    check_matrix("output of aggregation", edges.num_targets(), dim, out.len())?;
    check_matrix("edges of the maxima", edges.num_targets(), dim, picked.len())?;
    let width = four_at_once(dim, &[rows.address(), out.address(), picked.address()]);
    let (num_sources, sources, wide) = (edges.num_sources(), edges.sources(), u32::from(width > 1));
    let rest = arguments![rows, num_sources, dim, sources, &*out, &*picked, wide];
    edges.by_target().sum(gpu, row_kernel!(MAX, "max_forward", T), dim / width, 8 * width, &rest)
}

/// [`aggregate_max_backward`](super::aggregate_max_backward) on a GPU; summed in f32, and rounded
/// once to the gradient's type.
pub fn aggregate_max_backward_on_device<T: DeviceRow>(
    gpu: &Gpu,
    edges: &DeviceEdges,
    picked: DeviceSlice<'_, u32>,
    gradient: DeviceSlice<'_, T>,
    dim: usize,
    out: &mut DeviceSliceMut<'_, T>,
) -> Result<(), GpuError> {
    check_matrix("edges of the maxima", edges.num_targets(), dim, picked.len())?;
    check_matrix("gradient of aggregation", edges.num_targets(), dim, gradient.len())?;
    check_matrix("gradient of the sources", edges.num_sources(), dim, out.len())?;
    let width = four_at_once(dim, &[picked.address(), gradient.address(), out.address()]);
    let (by, wide) = (edges.by_source(gpu)?, u32::from(width > 1));
    let rest = arguments![picked, gradient, dim, &by.targets, &by.edges, &*out, wide];
    by.rows.sum(gpu, row_kernel!(MAX, "max_backward", T), dim / width, 4 * width, &rest)
}
