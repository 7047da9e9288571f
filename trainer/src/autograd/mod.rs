//! Operators of our own in torch's graph, and memory that they reuse.
//!
//! `tch` offers no custom autograd function. [`attach`] makes a tensor that Rust computed depend on its inputs: when
//! torch's backward pass comes to it, a closure turns the gradient of the output into those of the inputs. Between
//! forward and backward torch keeps the *saved* tensors, as it does for its own operators: it frees them as soon as
//! they are used, refuses a second backward pass over them, and refuses values that were changed in place. (A closure
//! that held its own output would never be freed.) Cost: about 2 µs a call.
//!
//! [`Buffer`]s are what operators write to: their memory is used again once the tensor on it is gone, because fresh
//! pages from the kernel cost more time than the values that are written to them.
//!
//! All unsafe code is in `raw.rs`, with the argument for it.

mod memory;
mod raw;
#[cfg(test)]
mod tests;

use tch::{TchError, Tensor};

use crate::{Error, Result};
pub use memory::{Buffer, Pool, most_values_held};
pub use raw::{
    TensorValue, adopt, adopt_on_device, bytes_held, device_values, device_values_mut, device_values_mut_of,
    device_values_of, extended, forget_gradient, gemm, give_back_memory, round_to_tf32, rounds_to_tf32, share_memory,
    update, upload, values, values_mut, values_of,
};

/// Arguments of a backward function.
pub struct Gradient {
    /// Gradient of the output, of its shape; perhaps not contiguous.
    pub output: Tensor,
    /// The tensors saved by [`attach`], in its order.
    pub saved: Vec<Tensor>,
    /// Inputs whose gradients are asked for.
    pub needed: Vec<bool>,
}

impl Gradient {
    /// The saved tensors, if they are `N`.
    pub fn saved<const N: usize>(&self) -> Result<[&Tensor; N]> {
        let found: Vec<&Tensor> = self.saved.iter().collect();
        let wrong =
            |found: Vec<&Tensor>| Error::Torch(TchError::Torch(format!("{} tensors were saved, not {N}", found.len())));
        found.try_into().map_err(wrong)
    }
}

/// torch's fused optimizers. Lists are in the parameters' order, one tensor of a parameter's shape for each.
pub enum UpdateBy<'a> {
    /// `torch.optim.Adam`, or `AdamW` if `decoupled`.
    Adam {
        decoupled: bool,
        moments: [&'a [&'a Tensor]; 2],
        /// Number of updates, this one included: one f32 where the parameters are.
        step: &'a Tensor,
        rate: f64,
        betas: [f64; 2],
        decay: f64,
        epsilon: f64,
    },
    /// `torch.optim.SGD` without dampening; `momenta` unless `momentum` is 0.
    Sgd { momenta: Option<&'a [&'a Tensor]>, rate: f64, momentum: f64, decay: f64, nesterov: bool },
}

/// From the gradient of an output to those of the inputs, in their order. `None` is zero, and the right answer where the
/// gradient is not needed.
pub type BackwardFn = dyn Fn(Gradient) -> Result<Vec<Option<Tensor>>> + Send;

/// Returns `output` as a function of `inputs`.
///
/// `output` is a new tensor without history. `saved` may hold inputs, the output itself, and others. Where no gradients
/// are recorded (under [`tch::no_grad`], or with no input that requires them) nothing is kept. An error or a panic in
/// `backward` becomes an error of the backward pass.
///
/// # Errors
/// [`Error::Torch`](crate::Error::Torch) if `output` has a history already.
pub fn attach(
    inputs: &[&Tensor],
    saved: &[&Tensor],
    output: Tensor,
    backward: impl Fn(Gradient) -> Result<Vec<Option<Tensor>>> + Send + 'static,
) -> Result<Tensor> {
    raw::attach(inputs, saved, &output, Box::new(backward))?;
    Ok(output)
}

/// Adds to the leaves below `output` their gradients, where that of `output` is `gradient`.
///
/// # Errors
/// [`Error::Torch`](crate::Error::Torch) with the message of the operator that failed, or if there is no graph (any more).
pub fn backward(output: &Tensor, gradient: &Tensor) -> Result<()> {
    raw::backward(output, gradient)
}
