//! Rows that a layer reads: hidden rows, or stored or cached features.

use bytemuck::cast_slice;
use gsplit_kernels::{
    Aggregation, DeviceAggregation, Gpu, ScaledRow, StoredRow, check_len, gather_rows,
};
use gsplit_store::{FeatureDtype, FeatureTable, RowsRead};
use half::{bf16, f16};
use tch::{Kind, Tensor};

use super::{ReluAbove, filled, shape, widened};
use crate::Result;
use crate::autograd::values;

/// One row for each vertex of a mixed frontier.
#[derive(Clone, Copy)]
pub enum Rows<'a> {
    /// `[rows, width]`, f32, or the type in which the place keeps rows
    /// ([`Place::row_dtype`](super::Place::row_dtype)).
    Hidden(&'a Tensor),
    /// Like `Hidden`, for rows that nothing else reads.
    AfterRelu(&'a Tensor, &'a ReluAbove),
    /// Rows of `features`, which have no gradient and are not copied before use.
    Stored {
        /// The table.
        features: &'a FeatureTable,
        /// The rows to take, in order.
        vertices: &'a [u32],
    },
    /// Feature rows that the GPU keeps, which have no gradient and are not copied before use.
    Kept(&'a dyn KeptRows),
}

/// Rows anywhere in the memory of the GPU that computes.
pub trait KeptRows: Send {
    /// Number of rows and their width.
    fn shape(&self) -> (usize, usize);
    /// Type in which the rows are read.
    fn kind(&self) -> Kind;
    /// The first `count` rows, `[count, width]`.
    fn first(&self, count: usize) -> Result<Tensor>;
    /// [`DeviceAggregation::forward`] of these rows, in their type.
    fn aggregate(&self, op: &DeviceAggregation<'_>) -> Result<Tensor>;
    /// Lets the list of their positions be freed in the order of the stream of `gpu`.
    fn give_to(&self, gpu: &Gpu);
}

impl<'a> From<&'a Tensor> for Rows<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self::Hidden(tensor)
    }
}

/// Calls `$body` with `$row` bound to a function from a vertex to its stored row, in the type of
/// the table.
macro_rules! with_rows {
    ($features:expr, |$row:ident| $body:expr) => {{
        let features: &FeatureTable = $features;
        match features.dtype() {
            FeatureDtype::F32 => {
                let $row = |v: u32| features.row::<f32>(v);
                $body
            }
            FeatureDtype::F16 => {
                let $row = |v: u32| features.row::<f16>(v);
                $body
            }
            FeatureDtype::Bf16 => {
                let $row = |v: u32| features.row::<bf16>(v);
                $body
            }
            FeatureDtype::I8 => {
                let $row = |v: u32| ScaledRow { scale: features.scale(v), values: features.row(v) };
                $body
            }
        }
    }};
}

impl Rows<'_> {
    /// Number of rows and their width.
    ///
    /// # Errors
    /// [`Error::Torch`](crate::Error::Torch) if the hidden rows are not a matrix.
    pub fn shape(&self) -> Result<(usize, usize)> {
        match self {
            Self::Hidden(tensor) | Self::AfterRelu(tensor, _) => shape("rows of a layer", tensor),
            Self::Stored { features, vertices } => Ok((vertices.len(), features.dim())),
            Self::Kept(kept) => Ok(kept.shape()),
        }
    }

    /// Whether the rows have a gradient.
    pub fn requires_grad(&self) -> bool {
        match self {
            Self::Hidden(tensor) | Self::AfterRelu(tensor, _) => tensor.requires_grad(),
            Self::Stored { .. } | Self::Kept(_) => false,
        }
    }

    /// All rows, f32 `[rows, width]`; stored and kept ones are gathered.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) if the table lacks a vertex.
    pub fn tensor(&self) -> Result<Tensor> {
        widened(&self.held()?)
    }

    /// All rows, `[rows, width]`, in their own type: f32, or the type in which the place keeps
    /// rows. For aggregation, attention and [`linear`](super::linear), which read either.
    ///
    /// # Errors
    /// Errors of [`Rows::tensor`].
    pub fn held(&self) -> Result<Tensor> {
        match *self {
            Self::Hidden(tensor) | Self::AfterRelu(tensor, _) => Ok(tensor.shallow_clone()),
            Self::Stored { features, vertices } => {
                filled(&[vertices.len(), features.dim()], |out| {
                    gather_features(features, vertices, out).map(drop)
                })
            }
            Self::Kept(kept) => kept.first(kept.shape().0),
        }
    }

    /// The first `count` rows, f32 `[count, width]`: a layer's own rows, if `count` is the size of
    /// its frontier.
    ///
    /// # Errors
    /// [`Error::Torch`](crate::Error::Torch) if there are fewer.
    pub fn first(&self, count: usize) -> Result<Tensor> {
        match *self {
            Self::Hidden(tensor) | Self::AfterRelu(tensor, _) => {
                widened(&tensor.f_narrow(0, 0, count as i64)?)
            }
            Self::Stored { features, vertices } => match vertices.get(..count) {
                Some(vertices) => Rows::Stored { features, vertices }.tensor(),
                None => {
                    Err(super::mismatch(format!("the first {count} of {} rows", vertices.len())))
                }
            },
            Self::Kept(kept) => widened(&kept.first(count)?),
        }
    }

    /// [`Aggregation::forward`] of these rows.
    pub(super) fn aggregate(&self, op: &Aggregation<'_>, out: &mut [f32]) -> Result<()> {
        let (rows, dim) = self.shape()?;
        check_len("rows to aggregate", op.edges.num_sources(), rows)?;
        match *self {
            Self::Stored { features, vertices } => with_rows!(features, |row| op.forward(
                |source| row(vertices[source as usize]),
                dim,
                out
            ))?,
            held => op.forward_f32(values(&held.held()?)?, dim, out)?,
        }
        Ok(())
    }
}

/// Gathers the rows of `vertices` into `out`, as f32; returns where they were read from, if the
/// table is read from its file.
pub(crate) fn gather_features(
    features: &FeatureTable,
    vertices: &[u32],
    out: &mut [f32],
) -> Result<RowsRead> {
    if features.read_by().is_none() {
        with_rows!(features, |row| gather_rows(row, vertices, features.dim(), out))?;
        return Ok(RowsRead::default());
    }
    let (dim, dtype) = (features.dim(), features.dtype());
    check_len("output of gather", vertices.len() * dim, out.len())?;
    let mut write = |at: usize, bytes: &[u8], scale: f32| {
        let out = &mut out[at * dim..][..dim];
        match dtype {
            FeatureDtype::F32 => cast_slice::<u8, f32>(bytes).write_to(out),
            FeatureDtype::F16 => cast_slice::<u8, f16>(bytes).write_to(out),
            FeatureDtype::Bf16 => cast_slice::<u8, bf16>(bytes).write_to(out),
            FeatureDtype::I8 => ScaledRow { scale, values: cast_slice(bytes) }.write_to(out),
        }
    };
    Ok(features.read_rows(vertices, &mut write)?)
}
