//! Layer norm and batch norm, each with what follows it, as nodes of torch's graph.
//!
//! Batch norm needs the moments of all ranks' rows, and its gradient sums over all ranks' rows. No collective may run inside
//! torch's backward pass, so it comes in parts: [`Moments::of`] and [`Moments::correct`] are collective and stand
//! outside the graph, [`standardise`] is a node for which moments are constants.

mod device;

use gsplit_kernels::{
    ColumnNorm, Communicator, column_moments, layer_norm as rows_norm, layer_norm_backward as rows_norm_backward,
};
use tch::Tensor;

use super::{Finish, filled, shape};
use crate::Result;
use crate::autograd::{Buffer, attach, values};
use crate::place::{Place, on_host};
use device::Factors;

/// Added to variances, as in PyTorch.
const EPSILON: f64 = 1e-5;

/// `finish`(`scale` · x̂ + `shift`), f32 `[rows, width]`, with x̂ each row less its mean, over its standard deviation.
///
/// # Errors
/// [`Error::Kernel`](crate::Error::Kernel) if the shapes do not fit.
pub fn layer_norm(place: &Place, input: &Tensor, scale: &Tensor, shift: &Tensor, finish: Finish) -> Result<Tensor> {
    if let Place::Device(gpu, there, ..) = place {
        return device::layer_norm((gpu, *there), [input, scale, shift], finish);
    }
    let [x, a, b] = [input, scale, shift].map(|tensor| tensor.detach().contiguous());
    let (rows, dim) = shape("rows to normalise", &x)?;
    let mut moments = Buffer::new(2 * rows)?;
    let output = filled(&[rows, dim], |out| {
        rows_norm(values(&x)?, [values(&a)?, values(&b)?], EPSILON as f32, moments.as_mut_slice(), out)?;
        Ok(finish.epilogue(None)?.apply(out, dim)?)
    })?;
    let moments = moments.into_tensor(&[2 * rows as i64])?;
    let (result, place) = (output.shallow_clone(), place.clone());
    attach(&[input, scale, shift], &[&x, &a, &moments, &result], output, move |gradient| {
        let [x, a, moments, y] = gradient.saved()?;
        let given = finish.backward(&place, y, &gradient.output)?;
        let mut of_parameters = [Vec::new(), Vec::new()];
        let of_rows = filled(&[rows, dim], |out| {
            of_parameters = rows_norm_backward(values(x)?, values(a)?, values(moments)?, values(&given)?, out)?;
            Ok(())
        })?;
        let [of_scale, of_shift] = of_parameters.map(|values| Tensor::from_slice(&values));
        Ok(vec![Some(of_rows), Some(of_scale), Some(of_shift)])
    })
}

/// Mean and variance of each column over the rows of all ranks.
#[derive(Clone, Debug)]
pub struct Moments {
    /// Rows, those that several ranks hold counted once.
    pub rows: f64,
    /// Of each column.
    pub mean: Vec<f64>,
    /// Of each column; divided by the number of rows.
    pub variance: Vec<f64>,
    /// How much each row of this rank counts; 1 when `None`.
    weights: Option<Vec<f32>>,
}

impl Moments {
    /// The moments of `rows`, f32 `[my rows, width]`, of all ranks together. A row that several ranks hold has `weights` on
    /// them that add up to 1. Collective: a rank without rows calls it too.
    ///
    /// # Errors
    /// [`Error::Comm`](crate::Error::Comm), and [`Error::Kernel`](crate::Error::Kernel) if there is not a weight for every row.
    pub fn of(place: &Place, rows: &Tensor, weights: Option<Vec<f32>>, comm: &dyn Communicator) -> Result<Self> {
        let (_, dim) = shape("rows to normalise", rows)?;
        let mut sums = match place {
            Place::Host(_) => column_moments(values(&rows.detach().contiguous())?, weights.as_deref(), dim)?,
            Place::Device(gpu, there, ..) => device::moments((gpu, *there), rows, weights.as_deref())?,
        };
        comm.all_reduce_sum_f64(&mut sums)?;
        let rows = sums[0];
        let mean: Vec<f64> = sums[1..=dim].iter().map(|sum| sum / rows.max(1.0)).collect();
        let squares = sums[1 + dim..].iter().zip(&mean);
        let variance = squares.map(|(sum, mean)| (sum / rows.max(1.0) - mean * mean).max(0.0)).collect();
        Ok(Self { rows, mean, variance, weights })
    }

    /// Moments that are known: `mean` and `variance`, f32 `[width]`.
    ///
    /// # Errors
    /// [`Error::Torch`](crate::Error::Torch) unless they are dense f32 tensors.
    pub fn running(mean: &Tensor, variance: &Tensor) -> Result<Self> {
        let wide = |tensor: &Tensor| {
            Ok::<_, crate::Error>(values(&on_host(tensor)?)?.iter().map(|&value| value.into()).collect())
        };
        Ok(Self { rows: 0.0, mean: wide(mean)?, variance: wide(variance)?, weights: None })
    }

    /// Turns the gradient, at `place`, of `rows` that [`standardise`] gave, f32 `[my rows, width]`, into the one that knows that the moments
    /// are theirs. Collective.
    ///
    /// # Errors
    /// As [`Moments::of`].
    pub fn correct(&self, place: &Place, rows: &Tensor, gradient: &Tensor, comm: &dyn Communicator) -> Result<Tensor> {
        let over_all = |mut sums: Vec<f64>| -> Result<Vec<f64>> {
            comm.all_reduce_sum_f64(&mut sums)?;
            sums.iter_mut().for_each(|sum| *sum /= self.rows.max(1.0));
            Ok(sums)
        };
        if let Place::Device(gpu, there, ..) = place {
            let (there, factors) = ((gpu, *there), Factors::of(gpu, self)?);
            let means = over_all(factors.products(there, rows, gradient)?)?;
            return factors.correct(there, rows, self.weights.as_deref(), &means, gradient);
        }
        let [x, direct] = [rows, gradient].map(|tensor| tensor.detach().contiguous());
        let (count, dim) = shape("rows to normalise", &x)?;
        let (mean, inverse) = self.factors();
        let norm = ColumnNorm { mean: &mean, inverse: &inverse };
        let means = over_all(norm.products(values(&x)?, values(&direct)?)?)?;
        filled(&[count, dim], |out| {
            out.copy_from_slice(values(&direct)?);
            Ok(norm.correct(values(&x)?, self.weights.as_deref(), &means, out)?)
        })
    }

    /// Mean and 1 / √(variance + ε) of each column.
    fn factors(&self) -> (Vec<f32>, Vec<f32>) {
        let inverse = |&variance: &f64| (1.0 / (variance + EPSILON).sqrt()) as f32;
        (self.mean.iter().map(|&mean| mean as f32).collect(), self.variance.iter().map(inverse).collect())
    }
}

/// `finish`(`scale` · x̂ + `shift`), f32 `[rows, width]`, with x̂ the columns normalised by `moments`, which are constants
/// for its gradient: [`Moments::correct`] does the rest where they are the rows' own.
///
/// # Errors
/// [`Error::Kernel`](crate::Error::Kernel) if the shapes do not fit.
pub fn standardise(
    place: &Place,
    input: &Tensor,
    moments: &Moments,
    scale: &Tensor,
    shift: &Tensor,
    finish: Finish,
) -> Result<Tensor> {
    if let Place::Device(gpu, there, ..) = place {
        return device::standardise((gpu, *there), moments, [input, scale, shift], finish);
    }
    let [x, a, b] = [input, scale, shift].map(|tensor| tensor.detach().contiguous());
    let (rows, dim) = shape("rows to normalise", &x)?;
    let (mean, inverse) = moments.factors();
    let output = filled(&[rows, dim], |out| {
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
