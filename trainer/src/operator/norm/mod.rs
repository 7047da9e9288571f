//! Layer norm and batch norm, each with the finish after it, as nodes of torch's graph.
//!
//! Batch norm needs the moments of all ranks' rows, and its gradient sums over all ranks' rows. No
//! collective may run inside torch's backward pass, so it comes in parts: [`Moments::of`] and
//! [`Moments::correct`] are collective and outside the graph, [`standardise`] is a node that treats
//! moments as constants. A GPU computes both by torch's operations.

mod device;

use gsplit_kernels::{
    ColumnNorm, Communicator, column_moments, layer_norm as rows_norm,
    layer_norm_backward as rows_norm_backward,
};
use tch::Tensor;

use super::{Finish, filled, filled_with_room, shape};
use crate::Result;
use crate::autograd::{Buffer, attach, values};
use crate::operator::Place;
use device::DeviceMoments;

/// Added to variances, as in PyTorch.
const EPSILON: f64 = 1e-5;

/// `finish`(`scale` · x̂ + `shift`), f32 `[rows, width]`; x̂ is each row minus its mean, over its
/// standard deviation.
///
/// # Errors
/// [`Error::Kernel`](crate::Error::Kernel) if the shapes do not match.
pub fn layer_norm(
    place: &Place,
    input: &Tensor,
    scale: &Tensor,
    shift: &Tensor,
    finish: Finish,
) -> Result<Tensor> {
    if place.gpu().is_some() {
        return device::layer_norm(place, [input, scale, shift], finish);
    }
    let [x, a, b] = [input, scale, shift].map(|tensor| tensor.detach().contiguous());
    let (rows, dim) = shape("rows to normalise", &x)?;
    let mut moments = Buffer::new(2 * rows)?;
    let output = filled_with_room([rows, dim], finish.room, |out| {
        rows_norm(
            values(&x)?,
            [values(&a)?, values(&b)?],
            EPSILON as f32,
            moments.as_mut_slice(),
            out,
        )?;
        Ok(finish.epilogue(None)?.apply(out, dim)?)
    })?;
    let moments = moments.into_tensor(&[2 * rows as i64])?;
    let (result, place) = (output.shallow_clone(), place.clone());
    attach(&[input, scale, shift], &[&x, &a, &moments, &result], output, move |gradient| {
        let [x, a, moments, y] = gradient.saved()?;
        let given = finish.backward(&place, y, &gradient.output)?;
        let mut of_parameters = [Vec::new(), Vec::new()];
        let of_rows = filled(&[rows, dim], |out| {
            of_parameters =
                rows_norm_backward(values(x)?, values(a)?, values(moments)?, values(&given)?, out)?;
            Ok(())
        })?;
        let [of_scale, of_shift] = of_parameters.map(|values| Tensor::from_slice(&values));
        Ok(vec![Some(of_rows), Some(of_scale), Some(of_shift)])
    })
}

/// Mean and variance of each column over the rows of all ranks.
#[derive(Debug)]
pub struct Moments {
    columns: ColumnMoments,
    /// Weight of each row of this rank, f32 `[my rows]`; 1 if `None`.
    weights: Option<Tensor>,
}

/// Moments at the place of the rows: a GPU's do not come to the host.
#[derive(Debug)]
enum ColumnMoments {
    OnHost(HostMoments),
    OnGpu(DeviceMoments),
}

#[derive(Debug)]
struct HostMoments {
    /// Number of rows, counting rows on several ranks once.
    rows: f64,
    /// Mean of each column.
    mean: Vec<f64>,
    /// Variance of each column: divided by the number of rows.
    variance: Vec<f64>,
}

impl HostMoments {
    /// Mean and 1 / √(variance + ε) of each column.
    fn factors(&self) -> (Vec<f32>, Vec<f32>) {
        let inverse = |&variance: &f64| (1.0 / (variance + EPSILON).sqrt()) as f32;
        (
            self.mean.iter().map(|&mean| mean as f32).collect(),
            self.variance.iter().map(inverse).collect(),
        )
    }
}

impl Moments {
    /// The moments of `rows`, f32 `[my rows, width]`, of all ranks together. A row on several ranks
    /// has `weights`, f32 `[my rows]` at `place`, that add up to 1 over these ranks. Collective,
    /// also for a rank without rows.
    ///
    /// # Errors
    /// [`Error::Comm`](crate::Error::Comm), and [`Error::Kernel`](crate::Error::Kernel) unless
    /// there is a weight for every row.
    pub fn of(
        place: &Place,
        rows: &Tensor,
        weights: Option<Tensor>,
        comm: &dyn Communicator,
    ) -> Result<Self> {
        if let Place::Device(gpu, device, ..) = place {
            let moments = DeviceMoments::of(gpu, *device, rows, weights.as_ref(), comm)?;
            return Ok(Self { columns: ColumnMoments::OnGpu(moments), weights });
        }
        let (_, dim) = shape("rows to normalise", rows)?;
        let given = weights.as_ref().map(values).transpose()?;
        let mut totals = column_moments(values(&rows.detach().contiguous())?, given, dim)?;
        comm.all_reduce_sum_f64(&mut totals)?;
        let rows = totals[0];
        let mean: Vec<f64> = totals[1..=dim].iter().map(|sum| sum / rows.max(1.0)).collect();
        let squares = totals[1 + dim..].iter().zip(&mean);
        let variance =
            squares.map(|(sum, mean)| (sum / rows.max(1.0) - mean * mean).max(0.0)).collect();
        Ok(Self { columns: ColumnMoments::OnHost(HostMoments { rows, mean, variance }), weights })
    }

    /// Wraps known moments: `mean` and `variance`, f32 `[width]` at `place`.
    ///
    /// # Errors
    /// [`Error::Torch`](crate::Error::Torch) unless they are dense f32 tensors.
    pub fn running(place: &Place, mean: &Tensor, variance: &Tensor) -> Result<Self> {
        let wide = |tensor: &Tensor| {
            Ok::<_, crate::Error>(
                values::<f32>(tensor)?.iter().map(|&value| value.into()).collect(),
            )
        };
        let columns = match place {
            Place::Device(gpu, device, ..) => {
                ColumnMoments::OnGpu(DeviceMoments::running(gpu, *device, mean, variance)?)
            }
            Place::Host(_) => ColumnMoments::OnHost(HostMoments {
                rows: 0.0,
                mean: wide(mean)?,
                variance: wide(variance)?,
            }),
        };
        Ok(Self { columns, weights: None })
    }

    /// Means and variances for running statistics, f32 `[width]` each at the place of the rows;
    /// variances are divided by the number of rows minus one.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn statistics(&self) -> Result<[Tensor; 2]> {
        match &self.columns {
            ColumnMoments::OnGpu(moments) => moments.statistics(),
            ColumnMoments::OnHost(HostMoments { rows, mean, variance }) => {
                let unbiased = if *rows > 1.0 { rows / (rows - 1.0) } else { 1.0 };
                let narrow = |values: &[f64], factor: f64| {
                    Tensor::from_slice(
                        &values.iter().map(|value| (value * factor) as f32).collect::<Vec<_>>(),
                    )
                };
                Ok([narrow(mean, 1.0), narrow(variance, unbiased)])
            }
        }
    }

    /// Corrects the gradient of `rows` from [`standardise`], f32 `[my rows, width]`, for the fact
    /// that the moments depend on the rows. Collective.
    ///
    /// # Errors
    /// Errors of [`Moments::of`].
    pub fn correct(
        &self,
        rows: &Tensor,
        gradient: &Tensor,
        comm: &dyn Communicator,
    ) -> Result<Tensor> {
        let moments = match &self.columns {
            ColumnMoments::OnHost(moments) => moments,
            ColumnMoments::OnGpu(moments) => {
                return moments.correct([rows, gradient], self.weights.as_ref(), comm);
            }
        };
        let [x, direct] = [rows, gradient].map(|tensor| tensor.detach().contiguous());
        let (count, dim) = shape("rows to normalise", &x)?;
        let (mean, inverse) = moments.factors();
        let norm = ColumnNorm { mean: &mean, inverse: &inverse };
        let mut means = norm.products(values(&x)?, values(&direct)?)?;
        comm.all_reduce_sum_f64(&mut means)?;
        means.iter_mut().for_each(|sum| *sum /= moments.rows.max(1.0));
        let weights = self.weights.as_ref().map(values).transpose()?;
        filled(&[count, dim], |out| {
            out.copy_from_slice(values(&direct)?);
            Ok(norm.correct(values(&x)?, weights, &means, out)?)
        })
    }
}

/// `finish`(`scale` · x̂ + `shift`), f32 `[rows, width]`, where x̂ are the columns normalised by
/// `moments`. The gradient treats moments as constants: if they depend on the rows,
/// [`Moments::correct`] adds the rest.
///
/// # Errors
/// [`Error::Kernel`](crate::Error::Kernel) if the shapes do not match.
pub fn standardise(
    place: &Place,
    input: &Tensor,
    moments: &Moments,
    scale: &Tensor,
    shift: &Tensor,
    finish: Finish,
) -> Result<Tensor> {
    let moments = match &moments.columns {
        ColumnMoments::OnHost(moments) => moments,
        ColumnMoments::OnGpu(moments) => {
            return moments.standardise(place, [input, scale, shift], finish);
        }
    };
    let [x, a, b] = [input, scale, shift].map(|tensor| tensor.detach().contiguous());
    let (rows, dim) = shape("rows to normalise", &x)?;
    let (mean, inverse) = moments.factors();
    let output = filled_with_room([rows, dim], finish.room, |out| {
        let norm = ColumnNorm { mean: &mean, inverse: &inverse };
        norm.forward(values(&x)?, [values(&a)?, values(&b)?], out)?;
        Ok(finish.epilogue(None)?.apply(out, dim)?)
    })?;
    let (result, place) = (output.shallow_clone(), place.clone());
    attach(&[input, scale, shift], &[&x, &a, &result], output, move |gradient| {
        let [x, a, y] = gradient.saved()?;
        let given = finish.backward(&place, y, &gradient.output)?;
        let norm = ColumnNorm { mean: &mean, inverse: &inverse };
        let mut of_parameters = [Vec::new(), Vec::new()];
        let of_rows = filled(&[rows, dim], |out| {
            of_parameters = norm.backward(values(x)?, values(a)?, values(&given)?, out)?;
            Ok(())
        })?;
        let [of_scale, of_shift] = of_parameters.map(|values| Tensor::from_slice(&values));
        Ok(vec![Some(of_rows), Some(of_scale), Some(of_shift)])
    })
}
