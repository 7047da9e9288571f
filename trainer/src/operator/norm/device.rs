//! Layer norm and batch norm on a GPU.

use gsplit_kernels::{
    DeviceBuffer, DeviceColumnNorm, Gpu, column_moments_on_device, layer_norm_backward_on_device, layer_norm_on_device,
};
use tch::{Device, Kind, Tensor};

use super::super::{Finish, filled_on, shape};
use super::{EPSILON, Moments};
use crate::Result;
use crate::autograd::{attach, device_values, device_values_mut};
use crate::config::Dtype;
use crate::place::Place;

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

/// The sums that [`Moments::of`] begins with.
pub(super) fn moments((gpu, device): There<'_>, rows: &Tensor, weights: Option<&[f32]>) -> Result<Vec<f64>> {
    let x = rows.detach().contiguous();
    let (_, dim) = shape("rows to normalise", &x)?;
    let weights = weights.map(|weights| gpu.upload(weights)).transpose()?;
    let weights = weights.as_ref().map(DeviceBuffer::slice);
    Ok(column_moments_on_device(gpu, device_values(device, &x)?, weights, dim)?.to_vec()?)
}

/// Mean and inverse deviation of each column.
pub(super) struct Factors {
    mean: DeviceBuffer<f32>,
    inverse: DeviceBuffer<f32>,
}

impl Factors {
    pub(super) fn of(gpu: &Gpu, moments: &Moments) -> Result<Self> {
        let (mean, inverse) = moments.factors();
        Ok(Self { mean: gpu.upload(&mean)?, inverse: gpu.upload(&inverse)? })
    }

    fn norm(&self) -> DeviceColumnNorm<'_> {
        DeviceColumnNorm { mean: self.mean.slice(), inverse: self.inverse.slice() }
    }

    /// The sums over this rank's rows that the gradient is corrected by.
    pub(super) fn products(&self, (gpu, device): There<'_>, rows: &Tensor, gradient: &Tensor) -> Result<Vec<f64>> {
        let [x, direct] = [rows, gradient].map(|tensor| tensor.detach().contiguous());
        let [x, direct] = [device_values(device, &x)?, device_values(device, &direct)?];
        Ok(self.norm().products(gpu, x, direct)?.to_vec()?)
    }

    /// The gradient of `rows` less what `means`, the products over all ranks' rows, say.
    pub(super) fn correct(
        &self,
        (gpu, device): There<'_>,
        rows: &Tensor,
        weights: Option<&[f32]>,
        means: &[f64],
        gradient: &Tensor,
    ) -> Result<Tensor> {
        let [x, direct] = [rows, gradient].map(|tensor| tensor.detach().contiguous());
        let (count, dim) = shape("rows to normalise", &x)?;
        let weights = weights.map(|weights| gpu.upload(weights)).transpose()?;
        let (weights, means) = (weights.as_ref().map(DeviceBuffer::slice), gpu.upload(means)?);
        filled_on(device, &[count, dim], |out| {
            out.copy_from(gpu, device_values(device, &direct)?)?;
            Ok(self.norm().correct(gpu, device_values(device, &x)?, weights, means.slice(), out)?)
        })
    }
}

/// [`standardise`](super::standardise) of rows, scale and shift.
pub(super) fn standardise(
    (gpu, device): There<'_>,
    moments: &Moments,
    inputs: [&Tensor; 3],
    finish: Finish,
) -> Result<Tensor> {
    let [x, a, b] = inputs.map(|tensor| tensor.detach().contiguous());
    let (rows, dim) = shape("rows to normalise", &x)?;
    let factors = Factors::of(gpu, moments)?;
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
