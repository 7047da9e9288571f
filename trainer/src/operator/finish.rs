//! Activation and dropout, which an operator applies to its rows while they are at hand.

use std::sync::Arc;

use gsplit_kernels::{Activation, Epilogue, StreamKey, column_sums};
use tch::Tensor;

use super::filled;
use crate::Result;
use crate::autograd::{attach, values};

/// What follows the sums of a layer.
#[derive(Clone, Debug, Default)]
pub struct Finish {
    /// First.
    pub activation: Activation,
    /// Then.
    pub dropout: Option<Dropout>,
}

/// Dropout drawn by vertex, so that it is the same whichever rank computes a row.
#[derive(Clone, Debug)]
pub struct Dropout {
    /// Vertex of each row.
    pub ids: Arc<[u32]>,
    /// Share of the values that become zero; the others grow by 1 / (1 - share).
    pub probability: f32,
    /// Seed, epoch, step and layer.
    pub key: StreamKey,
}

impl Finish {
    /// Whether nothing follows.
    pub(super) fn is_none(&self) -> bool {
        self.activation == Activation::Identity && self.dropout.is_none()
    }

    /// For the rows of an operator that adds `bias` too.
    pub(super) fn epilogue<'a>(&'a self, bias: Option<&'a [f32]>) -> Epilogue<'a> {
        let dropout = self.dropout.as_ref().map(|dropout| (&dropout.ids[..], dropout.probability, dropout.key));
        Epilogue { bias, activation: self.activation, dropout }
    }

    /// From the gradient of finished rows, `rows`, to that of the unfinished ones.
    pub(super) fn backward(&self, rows: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        let given = gradient.contiguous();
        if self.is_none() {
            return Ok(given);
        }
        let shape: Vec<usize> = rows.size().iter().map(|&dim| dim as usize).collect();
        filled(&shape, |out| Ok(self.epilogue(None).backward(values(rows)?, values(&given)?, out)?))
    }
}

/// `finish` of a matrix, f32 `[rows, width]`, by itself.
///
/// # Errors
/// [`Error::Kernel`](crate::Error::Kernel) if dropout does not fit.
pub fn finished(input: &Tensor, finish: Finish) -> Result<Tensor> {
    biased(input, None, finish)
}

/// `finish` of a matrix, f32 `[rows, width]`, to each row of which `bias`, `[width]`, is added first.
///
/// # Errors
/// [`Error::Kernel`](crate::Error::Kernel) if bias or dropout do not fit.
pub fn biased(input: &Tensor, bias: Option<&Tensor>, finish: Finish) -> Result<Tensor> {
    let (x, b) = (input.detach().contiguous(), bias.map(|bias| bias.detach().contiguous()));
    let (rows, columns) = super::shape("rows to finish", &x)?;
    let output = filled(&[rows, columns], |out| {
        out.copy_from_slice(values(&x)?);
        Ok(finish.epilogue(b.as_ref().map(values).transpose()?).apply(out, columns)?)
    })?;
    let inputs: Vec<&Tensor> = [input].into_iter().chain(bias).collect();
    let result = output.shallow_clone();
    attach(&inputs, &[&result], output, move |gradient| {
        let [y] = gradient.saved()?;
        let of_sum = finish.backward(y, &gradient.output)?;
        let mut gradients = vec![Some(of_sum)];
        if gradient.needed.len() > 1 {
            let of_bias = |sum: &Tensor| filled(&[columns], |out| Ok(column_sums(values(sum)?, out)?));
            let found = gradients[0].as_ref().filter(|_| gradient.needed[1]).map(of_bias).transpose()?;
            gradients.push(found);
        }
        Ok(gradients)
    })
}
