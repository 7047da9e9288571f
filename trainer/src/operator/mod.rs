//! Operators with gradients, from which model authors build layers: each computes where its tensors
//! are, on the host with `gsplit-kernels` or the `gemm` crate, on a GPU with the kernels of
//! `gsplit-kernels` and torch's products, writes to reused memory, and is a node of torch's graph.
//!
//! All take and return f32 tensors at one [`Place`], that of the [`Edges`] or of the first
//! argument. Inputs need not be contiguous (they are copied if they are not), and gradients that
//! are not needed are not computed. Under [`tch::no_grad`] nothing is kept for backward.
//!
//! On a GPU that computes in bf16 or f16, rows and their gradients have that type from the features
//! to the last layer: half the bytes. [`Finish`] rounds them, aggregation, attention and [`linear`]
//! read them unchanged ([`Rows::held`]), norms and [`Rows::tensor`] widen them. Sums are always
//! computed in f32, and only stored values are rounded; weights and their gradients stay f32.

mod aggregate;
mod attention;
mod calibrate;
mod dynamic;
mod edges;
mod engine;
mod finish;
mod floor;
mod ids;
mod linear;
mod norm;
mod permuted;
mod place;
mod rows;
#[cfg(test)]
mod tests;
mod tiles;

pub use gsplit_kernels::{Activation, Reduce};

pub use aggregate::{aggregate, aggregate_for_product, aggregate_max};
pub use attention::{attention, relational_attention};
pub use calibrate::{Calibration, both_ways, calibrated};
pub use dynamic::dynamic_attention;
pub use edges::Edges;
pub use engine::Engine;
pub(crate) use engine::set_torch_threads;
pub use finish::{Dropout, Finish, ReluAbove, biased, finished};
pub use floor::{Product, recorded_products};
pub use ids::Ids;
pub use linear::{linear, projected};
pub use norm::{Moments, layer_norm, standardise};
pub use permuted::{put, taken};
pub use place::{OwnPlaces, Place};
pub(crate) use place::{from_rows, link, on_host, sharing, to_rows};
pub(crate) use rows::gather_features;
pub use rows::{KeptRows, Rows};

use gsplit_kernels::{DeviceRow, DeviceSliceMut};
use tch::{Kind, Tensor};

use crate::autograd::{Buffer, TensorValue, device_values_mut, extended, values};
use crate::{Error, Result};

/// Number of rows and columns of a matrix.
fn shape(what: &str, tensor: &Tensor) -> Result<(usize, usize)> {
    match tensor.size()[..] {
        [rows, columns] => Ok((rows as usize, columns as usize)),
        ref size => {
            Err(mismatch(format!("{what}: expected a matrix, got a tensor of shape {size:?}")))
        }
    }
}

/// An error about shapes.
fn mismatch(problem: String) -> Error {
    Error::Torch(tch::TchError::Shape(problem))
}

/// A new tensor of `shape` on the host, filled by `fill`.
pub(crate) fn filled(
    shape: &[usize],
    fill: impl FnOnce(&mut [f32]) -> Result<()>,
) -> Result<Tensor> {
    let mut buffer = Buffer::new(shape.iter().product())?;
    fill(buffer.as_mut_slice())?;
    buffer.into_tensor(&shape.iter().map(|&dim| dim as i64).collect::<Vec<_>>())
}

/// Like [`filled`], for a matrix with room for `room` rows behind it ([`with_rows_behind`]).
pub(crate) fn filled_with_room(
    [rows, width]: [usize; 2],
    room: usize,
    fill: impl FnOnce(&mut [f32]) -> Result<()>,
) -> Result<Tensor> {
    let mut buffer = Buffer::new((rows + room) * width)?;
    fill(&mut buffer.as_mut_slice()[..rows * width])?;
    buffer.into_tensor(&[rows as i64, width as i64])
}

/// Appends `count` uninitialised rows, for the caller to write, to the matrix `rows`: in the same
/// memory if it has room ([`Finish::room`]), otherwise in new memory.
pub(crate) fn with_rows_behind(rows: &Tensor, count: usize) -> Result<Tensor> {
    let (own, width) = shape("rows to exchange", rows)?;
    if let Some(both) = extended(rows, own + count)? {
        return Ok(both);
    }
    let rows = rows.detach().contiguous();
    let (options, shape) = ((rows.kind(), rows.device()), [own + count, width]);
    if options == (Kind::Float, tch::Device::Cpu) {
        return filled(&shape, |out| {
            out[..own * width].copy_from_slice(values(&rows)?);
            Ok(())
        });
    }
    let both = Tensor::f_empty(shape.map(|dim| dim as i64), options)?;
    both.f_narrow(0, 0, own as i64)?.f_copy_(&rows)?;
    Ok(both)
}

/// A type of rows on a GPU.
pub(crate) trait Row: TensorValue + DeviceRow {}

impl<T: TensorValue + DeviceRow> Row for T {}

/// Calls `$body` with `$T` the type of the values of rows of the kind `$kind`: f32, bf16 or f16.
macro_rules! with_row {
    ($kind:expr, |$T:ident| $body:expr) => {
        match $kind {
            tch::Kind::BFloat16 => {
                type $T = half::bf16;
                $body
            }
            tch::Kind::Half => {
                type $T = half::f16;
                $body
            }
            _ => {
                type $T = f32;
                $body
            }
        }
    };
}
pub(crate) use with_row;

/// A new tensor of `shape` on a GPU, filled by `fill`.
pub(crate) fn filled_of<T: TensorValue>(
    device: tch::Device,
    shape: &[usize],
    fill: impl FnOnce(&mut DeviceSliceMut<'_, T>) -> Result<()>,
) -> Result<Tensor> {
    let shape: Vec<i64> = shape.iter().map(|&dim| dim as i64).collect();
    let mut tensor = Tensor::f_empty(&shape[..], (T::KIND, device))?;
    fill(&mut device_values_mut(device, &mut tensor)?)?;
    Ok(tensor)
}

/// Converts `tensor` to f32 if it is bf16 or f16.
fn widened(tensor: &Tensor) -> Result<Tensor> {
    match tensor.kind() {
        Kind::BFloat16 | Kind::Half => Ok(tensor.f_totype(Kind::Float)?),
        _ => Ok(tensor.shallow_clone()),
    }
}
