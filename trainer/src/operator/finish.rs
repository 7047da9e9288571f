//! Activation and dropout, applied by an operator to its rows while they are in the cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gsplit_kernels::{
    Activation, DeviceEpilogue, DeviceSlice, Epilogue, Gpu, StreamKey,
    column_sums as host_column_sums, column_sums_on_device,
};
use tch::Tensor;

use super::{Ids, filled, filled_of, filled_with_room, widened, with_row};
use crate::Result;
use crate::autograd::{attach, device_values, device_values_mut, values};
use crate::config::Dtype;
use crate::operator::Place;

/// Steps after a layer's pre-activations.
#[derive(Clone, Debug, Default)]
pub struct Finish {
    /// Applied first.
    pub activation: Activation,
    /// Applied after the activation.
    pub dropout: Option<Dropout>,
    /// On a GPU, the type to which the finished rows are rounded and in which the next layer reads
    /// them.
    pub dtype: Dtype,
    /// On the host, the number of rows that the next exchange brings, for which to leave room
    /// behind the finished rows.
    pub room: usize,
    /// The layer above, if it may compute the gradient of the unfinished rows.
    pub above: Option<Arc<ReluAbove>>,
}

/// Lets the layer above a layer that ends with ReLU, and perhaps dropout, compute the gradient of
/// the unfinished rows. Only that layer may read the rows: its sums over edges then yield this
/// gradient directly, and that of the finished rows is never stored.
#[derive(Debug)]
pub struct ReluAbove {
    keep: f32,
    taken: AtomicBool,
}

impl ReluAbove {
    /// For a layer with dropout of probability `dropout`.
    pub fn new(dropout: f32) -> Self {
        Self { keep: 1.0 / (1.0 - dropout), taken: AtomicBool::new(false) }
    }

    /// Makes the layer below pass its gradient on unchanged. Returns the factor of the values that
    /// dropout kept.
    pub(super) fn take(&self) -> f32 {
        self.taken.store(true, Ordering::Relaxed);
        self.keep
    }
}

/// Dropout drawn by vertex, so that it is the same on whichever rank a row or an attention weight
/// is computed.
#[derive(Clone, Debug)]
pub struct Dropout {
    /// Vertex of each row; for attention, starting with the targets.
    pub ids: Ids,
    /// Fraction of the values that become zero; the others are multiplied by 1 / (1 - fraction).
    pub probability: f32,
    /// Seed, epoch, step and layer.
    pub key: StreamKey,
}

impl Finish {
    /// Only rounds, to the type in which rows pass from operator to operator at `place`.
    pub fn rounding(place: &Place) -> Self {
        Self { dtype: place.row_dtype(), ..Self::default() }
    }

    /// Whether it does nothing.
    pub(super) fn is_none(&self) -> bool {
        self.only_rounds() && self.dtype == Dtype::F32
    }

    /// Whether it does nothing except rounding.
    pub(super) fn only_rounds(&self) -> bool {
        self.activation == Activation::Identity && self.dropout.is_none()
    }

    /// The epilogue for rows of an operator that also adds `bias`.
    pub(super) fn epilogue<'a>(&'a self, bias: Option<&'a [f32]>) -> Result<Epilogue<'a>> {
        let dropout = match &self.dropout {
            Some(dropout) => Some((dropout.ids.on_host()?, dropout.probability, dropout.key)),
            None => None,
        };
        Ok(Epilogue { bias, activation: self.activation, dropout })
    }

    /// Adds `bias`, `[width]`, to each of `rows`, f32 `[rows, width]`, contiguous, and finishes
    /// them. On a GPU they are changed in place, unless they are rounded.
    pub(super) fn apply(
        &self,
        place: &Place,
        rows: Tensor,
        bias: Option<&Tensor>,
    ) -> Result<Tensor> {
        if self.is_none() && bias.is_none() {
            return Ok(rows);
        }
        let (count, columns) = super::shape("rows to finish", &rows)?;
        let bias = bias.map(|bias| bias.detach().contiguous());
        let Place::Device(gpu, device, ..) = place else {
            let bias = bias.as_ref().map(values).transpose()?;
            return filled_with_room([count, columns], self.room, |out| {
                out.copy_from_slice(values(&rows)?);
                Ok(self.epilogue(bias)?.apply(out, columns)?)
            });
        };
        let bias = bias.as_ref().map(|bias| device_values(*device, bias)).transpose()?;
        let epilogue = self.epilogue_on_gpu(gpu, bias)?;
        if self.dtype != Dtype::F32 {
            let (rows, shape) = (device_values(*device, &rows)?, [count, columns]);
            return with_row!(self.dtype.kind(), |O| {
                filled_of::<O>(*device, &shape, |out| {
                    Ok(epilogue.apply_to(gpu, rows, columns, out)?)
                })
            });
        }
        let mut rows = rows;
        epilogue.apply(gpu, &mut device_values_mut(*device, &mut rows)?, columns)?;
        Ok(rows)
    }

    /// [`Finish::epilogue`] on a GPU.
    fn epilogue_on_gpu<'a>(
        &'a self,
        gpu: &Gpu,
        bias: Option<DeviceSlice<'a, f32>>,
    ) -> Result<DeviceEpilogue<'a>> {
        let dropout = match &self.dropout {
            Some(dropout) => Some((dropout.ids.on_gpu(gpu)?, dropout.probability, dropout.key)),
            None => None,
        };
        Ok(DeviceEpilogue { bias, activation: self.activation, dropout })
    }

    /// Whether the gradient of finished rows is that of the unfinished ones, except for its type.
    pub(super) fn passes_gradients(&self) -> bool {
        self.only_rounds()
            || self.above.as_ref().is_some_and(|above| above.taken.load(Ordering::Relaxed))
    }

    /// Computes the gradient of the unfinished rows, f32, from that of the finished `rows`.
    pub(super) fn backward(
        &self,
        place: &Place,
        rows: &Tensor,
        gradient: &Tensor,
    ) -> Result<Tensor> {
        if self.passes_gradients() {
            return widened(&gradient.contiguous());
        }
        self.backward_as(place, rows, gradient, false)
    }

    /// Like [`Finish::backward`], for use as a factor of products; with `rounded` in the type of
    /// the finished rows.
    pub(super) fn backward_as(
        &self,
        place: &Place,
        rows: &Tensor,
        gradient: &Tensor,
        rounded: bool,
    ) -> Result<Tensor> {
        let given = gradient.contiguous();
        let (count, dim) = super::shape("finished rows", rows)?;
        let shape = [count, dim];
        let Place::Device(gpu, device, ..) = place else {
            return filled(&shape, |out| {
                Ok(self.epilogue(None)?.backward(values(rows)?, values(&given)?, dim, out)?)
            });
        };
        let epilogue = self.epilogue_on_gpu(gpu, None)?;
        with_row!(rows.kind(), |O| {
            let [rows, given] = [rows, &given].map(|tensor| device_values::<O>(*device, tensor));
            let (rows, given) = (rows?, given?);
            match rounded {
                true => filled_of(*device, &shape, |out| {
                    Ok(epilogue.backward_to::<O>(gpu, rows, given, dim, out)?)
                }),
                false => filled_of::<f32>(*device, &shape, |out| {
                    Ok(epilogue.backward(gpu, rows, given, dim, out)?)
                }),
            }
        })
    }
}

/// Applies `finish` to a matrix, f32 `[rows, width]`.
///
/// # Errors
/// [`Error::Kernel`](crate::Error::Kernel) if dropout does not match.
pub fn finished(place: &Place, input: &Tensor, finish: Finish) -> Result<Tensor> {
    biased(place, input, None, finish)
}

/// Adds `bias`, `[width]`, to each row of a matrix, f32 `[rows, width]`, and applies `finish`.
///
/// # Errors
/// [`Error::Kernel`](crate::Error::Kernel) if bias or dropout do not match.
pub fn biased(
    place: &Place,
    input: &Tensor,
    bias: Option<&Tensor>,
    finish: Finish,
) -> Result<Tensor> {
    super::shape("rows to finish", input)?;
    let input = &widened(input)?;
    let rows = input.detach().contiguous();
    let nothing = finish.is_none() && bias.is_none();
    let in_place = place.gpu().is_some() && finish.dtype == Dtype::F32;
    let rows = if nothing || in_place { rows.copy() } else { rows };
    let output = finish.apply(place, rows, bias)?;
    let inputs: Vec<&Tensor> = [input].into_iter().chain(bias).collect();
    let (result, place) = (output.shallow_clone(), place.clone());
    attach(&inputs, &[&result], output, move |gradient| {
        let [y] = gradient.saved()?;
        let of_sum = finish.backward(&place, y, &gradient.output)?;
        let of_bias = gradient.needed.get(1) == Some(&true);
        let of_bias = of_bias.then(|| column_sums(&place, &of_sum)).transpose()?;
        Ok([Some(of_sum), of_bias].into_iter().take(gradient.needed.len()).collect())
    })
}

/// The sum of the rows of a contiguous matrix, `[columns]`.
pub(super) fn column_sums(place: &Place, rows: &Tensor) -> Result<Tensor> {
    let (_, columns) = super::shape("rows to sum", rows)?;
    match place {
        Place::Host(_) => filled(&[columns], |out| Ok(host_column_sums(values(rows)?, out)?)),
        Place::Device(gpu, device, ..) => {
            with_row!(rows.kind(), |T| filled_of::<f32>(*device, &[columns], |out| {
                Ok(column_sums_on_device(gpu, device_values::<T>(*device, rows)?, out)?)
            }))
        }
    }
}
