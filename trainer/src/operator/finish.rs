//! Activation and dropout, which an operator applies to its rows while they are at hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gsplit_kernels::{
    Activation, DeviceEpilogue, DeviceSlice, Epilogue, StreamKey, column_sums as host_column_sums,
    column_sums_on_device,
};
use tch::Tensor;

use super::{Ids, filled, filled_of, filled_on, filled_with_room, widened, with_row};
use crate::Result;
use crate::autograd::{attach, device_values, device_values_mut, device_values_of, values};
use crate::config::Dtype;
use crate::operator::Place;

/// Steps after the pre-activations of a layer.
#[derive(Clone, Debug, Default)]
pub struct Finish {
    /// First.
    pub activation: Activation,
    /// Then.
    pub dropout: Option<Dropout>,
    /// Type that the finished rows are rounded to, on a GPU: in it they pass to the next layer.
    pub dtype: Dtype,
    /// Rows that the next exchange brings, for which room is left behind the finished ones, on the host.
    pub room: usize,
    /// The layer above, where it may make the gradient of the unfinished rows.
    pub above: Option<Arc<ReluAbove>>,
}

/// Agreement of a layer that ends with ReLU and perhaps dropout with the layer above, which alone reads its rows as they are: sums over
/// edges make the gradient of the unfinished rows at once, so that of the finished ones is neither written nor read.
#[derive(Debug)]
pub struct ReluAbove {
    keep: f32,
    taken: AtomicBool,
}

impl ReluAbove {
    /// For a layer with dropout of the probability `dropout`.
    pub fn new(dropout: f32) -> Self {
        Self { keep: 1.0 / (1.0 - dropout), taken: AtomicBool::new(false) }
    }

    /// Lets the layer below pass the gradient that it is given on. Returns the factor of the values that dropout kept.
    pub(super) fn take(&self) -> f32 {
        self.taken.store(true, Ordering::Relaxed);
        self.keep
    }
}

/// Dropout drawn by vertex, so that it is the same whichever rank computes a row, or an attention weight.
#[derive(Clone, Debug)]
pub struct Dropout {
    /// Vertex of each row; for attention, first those of the targets.
    pub ids: Ids,
    /// Fraction of the values that become zero; the others grow by 1 / (1 - fraction).
    pub probability: f32,
    /// Seed, epoch, step and layer.
    pub key: StreamKey,
}

impl Finish {
    /// Nothing but rounding to the type in which rows pass from operator to operator at `place`.
    pub fn rounding(place: &Place) -> Self {
        Self { dtype: place.row_dtype(), ..Self::default() }
    }

    /// Whether nothing follows.
    pub(super) fn is_none(&self) -> bool {
        self.only_rounds() && self.dtype == Dtype::F32
    }

    /// Whether nothing but rounding follows.
    pub(super) fn only_rounds(&self) -> bool {
        self.activation == Activation::Identity && self.dropout.is_none()
    }

    /// For the rows of an operator that adds `bias` too.
    pub(super) fn epilogue<'a>(&'a self, bias: Option<&'a [f32]>) -> Result<Epilogue<'a>> {
        let dropout = match &self.dropout {
            Some(dropout) => Some((dropout.ids.on_host()?, dropout.probability, dropout.key)),
            None => None,
        };
        Ok(Epilogue { bias, activation: self.activation, dropout })
    }

    /// `rows`, f32 `[rows, width]`, contiguous, with `bias`, `[width]`, added to each and finished. On a GPU they are
    /// changed in place, unless they are rounded.
    pub(super) fn apply(&self, place: &Place, rows: Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
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
        let ids = self.dropout.as_ref().map(|dropout| dropout.ids.on_gpu(gpu)).transpose()?;
        let bias = bias.as_ref().map(|bias| device_values(*device, bias)).transpose()?;
        let epilogue = self.epilogue_on_gpu(bias, ids);
        if self.dtype != Dtype::F32 {
            let (rows, shape) = (device_values(*device, &rows)?, [count, columns]);
            return with_row!(self.dtype.kind(), |O| {
                filled_of::<O>(*device, &shape, |out| Ok(epilogue.apply_to(gpu, rows, columns, out)?))
            });
        }
        let mut rows = rows;
        epilogue.apply(gpu, &mut device_values_mut(*device, &mut rows)?, columns)?;
        Ok(rows)
    }

    /// [`Finish::epilogue`] on a GPU, where `ids` are the vertices of the rows.
    fn epilogue_on_gpu<'a>(
        &self,
        bias: Option<DeviceSlice<'a, f32>>,
        ids: Option<DeviceSlice<'a, u32>>,
    ) -> DeviceEpilogue<'a> {
        let dropout = self.dropout.as_ref().zip(ids).map(|(dropout, ids)| (ids, dropout.probability, dropout.key));
        DeviceEpilogue { bias, activation: self.activation, dropout }
    }

    /// Whether the gradient of finished rows is that of the unfinished ones, except for its type.
    pub(super) fn passes_gradients(&self) -> bool {
        self.only_rounds() || self.above.as_ref().is_some_and(|above| above.taken.load(Ordering::Relaxed))
    }

    /// From the gradient of finished rows, `rows`, to that of the unfinished ones, f32.
    pub(super) fn backward(&self, place: &Place, rows: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        if self.passes_gradients() {
            return widened(&gradient.contiguous());
        }
        self.backward_as(place, rows, gradient, false)
    }

    /// The same as a factor of products, `rounded` to the type of the finished rows.
    pub(super) fn backward_as(&self, place: &Place, rows: &Tensor, gradient: &Tensor, rounded: bool) -> Result<Tensor> {
        let given = gradient.contiguous();
        let (count, dim) = super::shape("finished rows", rows)?;
        let shape = [count, dim];
        let Place::Device(gpu, device, ..) = place else {
            return filled(&shape, |out| {
                Ok(self.epilogue(None)?.backward(values(rows)?, values(&given)?, dim, out)?)
            });
        };
        let ids = self.dropout.as_ref().map(|dropout| dropout.ids.on_gpu(gpu)).transpose()?;
        let epilogue = self.epilogue_on_gpu(None, ids);
        with_row!(rows.kind(), |O| {
            let [rows, given] = [rows, &given].map(|tensor| device_values_of::<O>(*device, tensor));
            let (rows, given) = (rows?, given?);
            match rounded {
                true => filled_of(*device, &shape, |out| Ok(epilogue.backward_to::<O>(gpu, rows, given, dim, out)?)),
                false => filled_on(*device, &shape, |out| Ok(epilogue.backward(gpu, rows, given, dim, out)?)),
            }
        })
    }
}

/// `finish` of a matrix, f32 `[rows, width]`, by itself.
///
/// # Errors
/// [`Error::Kernel`](crate::Error::Kernel) if dropout does not fit.
pub fn finished(place: &Place, input: &Tensor, finish: Finish) -> Result<Tensor> {
    biased(place, input, None, finish)
}

/// `finish` of a matrix, f32 `[rows, width]`, to each row of which `bias`, `[width]`, is added first.
///
/// # Errors
/// [`Error::Kernel`](crate::Error::Kernel) if bias or dropout do not fit.
pub fn biased(place: &Place, input: &Tensor, bias: Option<&Tensor>, finish: Finish) -> Result<Tensor> {
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
            with_row!(rows.kind(), |T| filled_on(*device, &[columns], |out| {
                Ok(column_sums_on_device(gpu, device_values_of::<T>(*device, rows)?, out)?)
            }))
        }
    }
}
