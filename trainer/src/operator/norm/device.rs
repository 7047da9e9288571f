//! Layer norm and batch norm on a GPU, by torch's operations.
//!
//! Sums over the rows of a rank are computed in f32, of rows minus their mean, so a large mean
//! costs no precision. Over ranks they are added up in f64. The host does not wait.

use gsplit_kernels::{Communicator, Gpu, device_all_reduce_sum};
use tch::{Device, Kind, TchError, Tensor};

use super::super::{Finish, finished, shape};
use super::EPSILON;
use crate::Result;
use crate::autograd::device_values_mut;
use crate::operator::Place;

/// [`layer_norm`](super::layer_norm) of rows, scale and shift.
pub(super) fn layer_norm(
    place: &Place,
    [rows, scale, shift]: [&Tensor; 3],
    finish: Finish,
) -> Result<Tensor> {
    let width = [scale.numel() as i64];
    finished(place, &rows.f_layer_norm(width, Some(scale), Some(shift), EPSILON, false)?, finish)
}

/// Mean and variance of each column over the rows of all ranks.
#[derive(Debug)]
pub(super) struct DeviceMoments {
    gpu: Gpu,
    device: Device,
    /// Number of rows, counting rows on several ranks once, f64 `[1]`.
    rows: Tensor,
    /// f64 `[width]`.
    mean: Tensor,
    /// f64 `[width]`, divided by the number of rows.
    variance: Tensor,
}

impl DeviceMoments {
    /// [`Moments::of`](super::Moments::of).
    pub fn of(
        gpu: &Gpu,
        device: Device,
        rows: &Tensor,
        weights: Option<&Tensor>,
        comm: &dyn Communicator,
    ) -> Result<Self> {
        let (count, dim) = shape("rows to normalise", rows)?;
        let mut totals = local_sums(&rows.detach(), count, weights)?;
        device_all_reduce_sum(comm, gpu, &mut device_values_mut::<f64>(device, &mut totals)?)?;
        let (rows, dim) = (totals.f_narrow(0, 0, 1)?, dim as i64);
        let means = totals.f_narrow(0, 1, 2 * dim)?.f_div(&rows.f_clamp_min(1.0)?)?;
        let mean = means.f_narrow(0, 0, dim)?;
        let variance = means.f_narrow(0, dim, dim)?.f_sub(&mean.f_square()?)?.f_clamp_min(0.0)?;
        Ok(Self { gpu: gpu.clone(), device, rows, mean, variance })
    }

    /// [`Moments::running`](super::Moments::running).
    pub fn running(gpu: &Gpu, device: Device, mean: &Tensor, variance: &Tensor) -> Result<Self> {
        let [mean, variance] = [mean.f_to_kind(Kind::Double)?, variance.f_to_kind(Kind::Double)?];
        let rows = Tensor::f_zeros([1], (Kind::Double, device))?;
        Ok(Self { gpu: gpu.clone(), device, rows, mean, variance })
    }

    /// [`Moments::statistics`](super::Moments::statistics).
    pub fn statistics(&self) -> Result<[Tensor; 2]> {
        // The variance of one row is 0.
        let others = self.rows.f_sub_scalar(1.0)?.f_clamp_min(0.5)?;
        let unbiased = self.variance.f_mul(&self.rows)?.f_div(&others)?;
        Ok([self.mean.f_to_kind(Kind::Float)?, unbiased.f_to_kind(Kind::Float)?])
    }

    /// [`Moments::correct`](super::Moments::correct) of rows and gradient, with weights.
    pub fn correct(
        &self,
        [rows, gradient]: [&Tensor; 2],
        weights: Option<&Tensor>,
        comm: &dyn Communicator,
    ) -> Result<Tensor> {
        let (rows, gradient, dim) = (rows.detach(), gradient.detach(), self.mean.numel() as i64);
        let inverse = self.variance.f_add_scalar(EPSILON)?.f_rsqrt()?.f_to_kind(Kind::Float)?;
        let normed = rows.f_sub(&self.mean.f_to_kind(Kind::Float)?)?.f_mul(&inverse)?;
        let totals = [column_sums(&gradient)?, column_sums(&gradient.f_mul(&normed)?)?];
        let mut totals = Tensor::f_cat(&totals, 0)?;
        device_all_reduce_sum(
            comm,
            &self.gpu,
            &mut device_values_mut::<f64>(self.device, &mut totals)?,
        )?;
        let means = totals.f_div(&self.rows.f_clamp_min(1.0)?)?.f_to_kind(Kind::Float)?;
        let spread = normed.f_mul(&means.f_narrow(0, dim, dim)?)?;
        let change = weighted(spread.f_add(&means.f_narrow(0, 0, dim)?)?, weights)?;
        Ok(gradient.f_sub(&change)?)
    }

    /// [`standardise`](super::standardise) of rows, scale and shift.
    pub fn standardise(
        &self,
        place: &Place,
        [rows, scale, shift]: [&Tensor; 3],
        finish: Finish,
    ) -> Result<Tensor> {
        let [mean, variance] =
            [self.mean.f_to_kind(Kind::Float)?, self.variance.f_to_kind(Kind::Float)?];
        // As if not training: torch treats the moments as constants.
        let columns = [scale, shift, &mean, &variance].map(Some);
        let [scale, shift, mean, variance] = columns;
        let normed = rows.f_batch_norm(scale, shift, mean, variance, false, 0.0, EPSILON, false)?;
        finished(place, &normed, finish)
    }
}

/// The number of rows, the sum of each column, and the sum of its squares, f64 `[1 + 2 · width]`.
fn local_sums(rows: &Tensor, count: usize, weights: Option<&Tensor>) -> Result<Tensor, TchError> {
    let centre = rows
        .f_sum_dim_intlist(&[0i64][..], false, Kind::Float)?
        .f_div_scalar(count.max(1) as f64)?;
    let apart = rows.f_sub(&centre)?;
    let total = match weights {
        Some(weights) => weights.f_sum(Kind::Double)?.f_view([1])?,
        None => Tensor::f_full([1], count as f64, (Kind::Double, rows.device()))?,
    };
    let given = weighted(apart.shallow_clone(), weights)?;
    let (sum, squares, centre) = (
        column_sums(&given)?,
        column_sums(&given.f_mul(&apart)?)?,
        centre.f_to_kind(Kind::Double)?,
    );
    let of_centre = total.f_mul(&centre)?;
    let square = sum.f_mul_scalar(2.0)?.f_add(&of_centre)?.f_mul(&centre)?.f_add(&squares)?;
    Tensor::f_cat(&[total, sum.f_add(&of_centre)?, square], 0)
}

/// The sum of each column, f64.
fn column_sums(rows: &Tensor) -> Result<Tensor, TchError> {
    rows.f_sum_dim_intlist(&[0i64][..], false, Kind::Float)?.f_to_kind(Kind::Double)
}

/// Each row times its weight.
fn weighted(rows: Tensor, weights: Option<&Tensor>) -> Result<Tensor, TchError> {
    match weights {
        Some(weights) => rows.f_mul(&weights.f_unsqueeze(1)?),
        None => Ok(rows),
    }
}
