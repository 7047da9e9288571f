//! The kernel behind every weighted sum of rows over edges on a GPU: its arguments, and its launch.
//!
//! Aggregation, attention, segments and scatter-add are all `out[r] = own + Σ factor · row` over
//! the edges of `r`; they differ in the sources of factors and rows.

use bytemuck::Pod;

use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu, GpuError, arguments, pair};
use crate::edges::cuda::{DeviceBySource, DeviceSegments};
use crate::gather::{DeviceRow, values_at_once};

use super::cuda::{MODULE, NARROW};

/// Location of the rows. The address of a missing array is 0; without values a row is ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowTable {
    pub values: u64,
    pub value_bytes: usize,
    pub rows: usize,
    pub scales: u64,
    /// Positions in the table of `count` rows, if they are not its rows in order.
    pub positions: u64,
    pub count: usize,
    /// Distance between rows, and the first column that counts, in values.
    pub stride: usize,
    pub offset: usize,
}

impl RowTable {
    /// `rows` rows of `dim` values, one after the other.
    pub(crate) fn matrix<T: Pod>(values: DeviceSlice<'_, T>, rows: usize, dim: usize) -> Self {
        let value_bytes = size_of::<T>();
        Self {
            values: values.address(),
            value_bytes,
            rows,
            count: rows,
            stride: dim,
            ..Self::default()
        }
    }

    fn words(&self, dim: usize) -> [u64; 8] {
        let [rows, count, stride, offset] =
            [self.rows, self.count, self.stride, self.offset].map(|n| n as u64);
        [self.values, rows, self.scales, self.positions, count, stride, offset, dim as u64]
    }
}

/// Part of a target's own row in its sum, as in `cuda.cu`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Own {
    #[default]
    Nothing,
    /// The first of its edges.
    SelfLoop,
    /// It comes before the sum; backwards the sum starts from its gradient.
    Beside,
    /// The sum is added to the output's present values.
    Onto,
}

/// Factors of the rows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Factors {
    /// A value for each edge and head.
    pub weights: u64,
    /// Number of rows with a weight of their own, if any.
    pub num_own: usize,
    /// Number of heads; 0 counts as one.
    pub heads: usize,
    pub own: Own,
    /// Whether to divide by the number of the target's edges.
    pub mean: bool,
    /// Factor of weights that come from attention, where negative ones are dropped; else 0.
    pub keep: f32,
    /// Address of the output rows of ReLU, and the factor of the dropout after it, if sums by
    /// source are to become the gradient of the input of ReLU.
    pub relu: Option<(u64, f32)>,
}

/// Edges that are summed over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Over<'a> {
    /// The targets' edges, with the position of each one's row, or that of the edge itself.
    Targets(&'a DeviceSegments, Option<DeviceSlice<'a, u32>>),
    /// Edges by their sources, with the starts of the targets' edges.
    Sources(&'a DeviceBySource, DeviceSlice<'a, u32>),
}

/// A sum of rows of `dim` values over the edges of each row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SumRows<'a> {
    pub over: Over<'a>,
    /// For the types of the table's values and of the output's.
    pub kernel: &'static str,
    pub table: RowTable,
    pub factors: Factors,
    pub dim: usize,
}

impl SumRows<'_> {
    /// Writes the sums to columns `offset` to `offset + dim` of rows of `stride` values.
    pub(crate) fn launch<O: DeviceRow>(
        &self,
        gpu: &Gpu,
        out: &DeviceSliceMut<'_, O>,
        [stride, offset]: [usize; 2],
    ) -> Result<(), GpuError> {
        let Self { table, factors, dim, .. } = *self;
        let (rows, list, edges, indptr) = match self.over {
            Over::Targets(rows, list) => {
                (rows, list.map_or(0, |list| list.address()), 0, rows.slice())
            }
            Over::Sources(by, indptr) => {
                (&by.rows, by.targets.slice().address(), by.edges.slice().address(), indptr)
            }
        };
        let heads = factors.heads.max(1);
        let head_dim = dim / heads;
        let value_bytes = if table.value_bytes == 0 { size_of::<f32>() } else { table.value_bytes };
        // Columns of a chunk, which has one head. 16-bit rows whose width is a multiple of four but
        // not of eight are loaded in fours.
        let wide = if value_bytes < size_of::<f32>() { 8 } else { 4 };
        let columns = [dim, table.stride, table.offset, stride, offset];
        let (relu, relu_keep) = factors.relu.unwrap_or_default();
        let to = (out.address(), size_of::<O>());
        let part = match heads == 1 || head_dim.is_multiple_of(wide) {
            true => values_at_once(
                &columns,
                &[(table.values, value_bytes)],
                &[to, (relu, size_of::<O>())],
            ),
            false => 1,
        };
        let (heads, own) = (pair(heads, head_dim), pair(factors.own as usize, factors.mean.into()));
        let keep = pair(factors.keep.to_bits() as usize, relu_keep.to_bits() as usize);
        let words = [
            factors.weights,
            edges,
            indptr.address(),
            factors.num_own as u64,
            heads,
            own,
            keep,
            relu,
        ];
        let rest = arguments![table.words(dim), words, list, out, stride, offset, part as u32];
        let width = if part == 1 { 1 } else { wide };
        let plain = table.values != 0 && [table.positions, table.scales, factors.weights] == [0; 3];
        let name = match self.kernel {
            "sum_f32_to_f32" if plain => "sum_f32_to_f32_plain",
            "sum_f16_to_f32" if plain => "sum_f16_to_f32_plain",
            "sum_f16_to_f16" if plain => "sum_f16_to_f16_plain",
            "sum_bf16_to_f32" if plain => "sum_bf16_to_f32_plain",
            "sum_bf16_to_bf16" if plain => "sum_bf16_to_bf16_plain",
            "sum_by_source_f32_to_f32" if plain => "sum_by_source_f32_to_f32_plain",
            other => other,
        };
        rows.sum(
            gpu,
            O::of([&MODULE, &NARROW, &NARROW]).kernel(name),
            dim.div_ceil(width),
            width * size_of::<f32>(),
            &rest,
        )
    }
}

/// The largest power of 2, at most a warp, that has no more lanes than `chunks`, or enough for all
/// of them.
pub(crate) fn lanes(chunks: usize) -> usize {
    chunks.next_power_of_two().clamp(1, 32)
}
