//! Layer norm and batch norm on a GPU.

use std::sync::Arc;

use gsplit_kernels::{
    Communicator, DeviceBuffer, DeviceColumnNorm, DeviceMoments, DeviceSlice, Gpu, column_moments_on_device,
    device_all_reduce_sum, layer_norm_backward_on_device, layer_norm_on_device,
};
use tch::{Device, Kind, Tensor};

use super::super::{Finish, filled_on, shape};
use super::{Columns, EPSILON};
use crate::Result;
use crate::autograd::{attach, device_values, device_values_mut};
use crate::config::Dtype;
use crate::operator::Place;

/// A GPU and torch's name for it.
pub(super) type There<'a> = (&'a Gpu, Device);

/// [`layer_norm`](super::layer_norm) of rows, scale and shift.
pub(super) fn layer_norm((gpu, device): There<'_>, inputs: [&Tensor; 3], finish: Finish) -> Result<Tensor> {
    let [x, a, b] = inputs.map(|tensor| tensor.detach().contiguous());
    let (rows, dim) = shape("rows to normalise", &x)?;
    let mut moments = Tensor::f_empty([2 * rows as i64], (Kind::Float, device))?;
    let normed = filled_on(device, &[rows, dim], |out| {
        let [x, a, b] = [device_values(device, &x)?, device_values(device, &a)?, device_values(device, &b)?];
        let moments = &mut device_values_mut(device, &mut moments)?;
        Ok(layer_norm_on_device(gpu, x, [a, b], EPSILON as f32, moments, out)?)
    })?;
    let place = Place::Device(gpu.clone(), device, Dtype::F32);
    let output = finish.apply(&place, normed, None)?;
    let (result, gpu) = (output.shallow_clone(), gpu.clone());
    attach(&inputs, &[&x, &a, &moments, &result], output, move |gradient| {
        let [x, a, moments, y] = gradient.saved()?;
        let given = finish.backward(&place, y, &gradient.output)?;
        let mut of_parameters = None;
        let of_rows = filled_on(device, &[rows, dim], |out| {
            let [x, a] = [device_values(device, x)?, device_values(device, a)?];
            let [moments, given] = [device_values(device, moments)?, device_values(device, &given)?];
            of_parameters = Some(layer_norm_backward_on_device(&gpu, x, a, moments, given, out)?);
            Ok(())
        })?;
        with_parameters((&gpu, device), of_rows, of_parameters)
    })
}

/// The gradients of rows, scale and shift.
fn with_parameters(
    there: There<'_>,
    of_rows: Tensor,
    of_parameters: Option<[DeviceBuffer<f32>; 2]>,
) -> Result<Vec<Option<Tensor>>> {
    let tensor = |values: DeviceBuffer<f32>| tensor_of(there, &values).map(Some);
    [Ok(Some(of_rows))].into_iter().chain(of_parameters.into_iter().flatten().map(tensor)).collect()
}

fn tensor_of((gpu, device): There<'_>, values: &DeviceBuffer<f32>) -> Result<Tensor> {
    filled_on(device, &[values.len()], |out| Ok(out.copy_from(gpu, values.slice())?))
}

/// [`Moments::of`](super::Moments::of).
pub(super) fn moments(
    (gpu, device): There<'_>,
    rows: &Tensor,
    weights: Option<&Tensor>,
    comm: &dyn Communicator,
) -> Result<DeviceMoments> {
    let x = rows.detach().contiguous();
    let (_, dim) = shape("rows to normalise", &x)?;
    let weights = weights.map(|weights| device_values(device, weights)).transpose()?;
    let mut sums = column_moments_on_device(gpu, device_values(device, &x)?, weights, dim)?;
    device_all_reduce_sum(comm, gpu, &mut sums.slice_mut())?;
    Ok(DeviceMoments::new(gpu, sums, EPSILON)?)
}

/// [`Moments::statistics`](super::Moments::statistics).
pub(super) fn statistics((gpu, device): There<'_>, moments: &DeviceMoments) -> Result<[Tensor; 2]> {
    let [mean, variance] = moments.statistics();
    let tensor =
        |values: DeviceSlice<'_, f32>| filled_on(device, &[values.len()], |out| Ok(out.copy_from(gpu, values)?));
    Ok([tensor(mean)?, tensor(variance)?])
}

/// [`Moments::correct`](super::Moments::correct) of rows and gradient, with weights.
pub(super) fn correct(
    (gpu, device): There<'_>,
    moments: &DeviceMoments,
    [rows, gradient]: [&Tensor; 2],
    weights: Option<&Tensor>,
    comm: &dyn Communicator,
) -> Result<Tensor> {
    let [x, direct] = [rows, gradient].map(|tensor| tensor.detach().contiguous());
    let (count, dim) = shape("rows to normalise", &x)?;
    let (norm, weights) = (moments.norm(), weights.map(|weights| device_values(device, weights)).transpose()?);
    let [x, direct] = [device_values(device, &x)?, device_values(device, &direct)?];
    let mut means = norm.products(gpu, x, direct)?;
    device_all_reduce_sum(comm, gpu, &mut means.slice_mut())?;
    moments.divide(gpu, &mut means.slice_mut())?;
    filled_on(device, &[count, dim], |out| {
        out.copy_from(gpu, direct)?;
        Ok(norm.correct(gpu, x, weights, means.slice(), out)?)
    })
}

/// Mean and inverse deviation of each column.
pub(super) enum Factors {
    /// Of the mini-batch.
    Found(Arc<DeviceMoments>),
    /// Known to the host before.
    Given { mean: DeviceBuffer<f32>, inverse: DeviceBuffer<f32> },
}

impl Factors {
    pub(super) fn of(gpu: &Gpu, columns: &Columns) -> Result<Self> {
        Ok(match columns {
            Columns::There(moments) => Self::Found(moments.clone()),
            Columns::Here(moments) => {
                let (mean, inverse) = moments.factors();
                Self::Given { mean: gpu.upload(&mean)?, inverse: gpu.upload(&inverse)? }
            }
        })
    }

    fn norm(&self) -> DeviceColumnNorm<'_> {
        match self {
            Self::Found(moments) => moments.norm(),
            Self::Given { mean, inverse } => DeviceColumnNorm { mean: mean.slice(), inverse: inverse.slice() },
        }
    }
}

/// [`standardise`](super::standardise) of rows, scale and shift.
pub(super) fn standardise(
    (gpu, device): There<'_>,
    factors: Factors,
    inputs: [&Tensor; 3],
    finish: Finish,
) -> Result<Tensor> {
    let [x, a, b] = inputs.map(|tensor| tensor.detach().contiguous());
    let (rows, dim) = shape("rows to normalise", &x)?;
    let normed = filled_on(device, &[rows, dim], |out| {
        let [x, a, b] = [device_values(device, &x)?, device_values(device, &a)?, device_values(device, &b)?];
        Ok(factors.norm().forward(gpu, x, [a, b], out)?)
    })?;
    let place = Place::Device(gpu.clone(), device, Dtype::F32);
    let output = finish.apply(&place, normed, None)?;
    let (result, gpu) = (output.shallow_clone(), gpu.clone());
    attach(&inputs, &[&x, &a, &result], output, move |gradient| {
        let [x, a, y] = gradient.saved()?;
        let given = finish.backward(&place, y, &gradient.output)?;
        let mut of_parameters = None;
        let of_rows = filled_on(device, &[rows, dim], |out| {
            let [x, a] = [device_values(device, x)?, device_values(device, a)?];
            of_parameters = Some(factors.norm().backward(&gpu, x, a, device_values(device, &given)?, out)?);
            Ok(())
        })?;
        with_parameters((&gpu, device), of_rows, of_parameters)
    })
}
