//! Custom operators in torch's graph, and memory that they reuse.
//!
//! `tch` offers no custom autograd function. [`attach`] makes a tensor that Rust computed depend on
//! its inputs: when torch's backward pass comes to it, a closure turns the gradient of the output
//! into those of the inputs. Between forward and backward torch keeps the *saved* tensors, as it
//! does for its own operators: it frees them as soon as they are used, refuses a second backward
//! pass over them, and refuses values that were changed in place. (A closure that held its own
//! output would never be freed.) Cost: about 2 µs per call.
//!
//! Operators write to [`Buffer`]s: their memory is reused once the tensor on it is gone, because
//! fresh pages from the kernel cost more time than writing the values to them.
//!
//! All unsafe code is in `raw.rs`, with the reasons why it is sound.

mod memory;
mod raw;
#[cfg(test)]
mod tests;

use tch::{TchError, Tensor};

use crate::{Error, Result};
pub use memory::{Buffer, Pool, most_values_held};
pub use raw::{
    TensorValue, adopt, adopt_on_device, attach, backward, bytes_held, device_values,
    device_values_mut, extended, forget_gradient, gemm, give_back_memory, round_to_tf32,
    rounds_to_tf32, share_memory, update, upload, values, values_mut,
};

/// Arguments of a backward function.
pub struct Gradient {
    /// Gradient of the output, of the output's shape; perhaps not contiguous.
    pub output: Tensor,
    /// The tensors saved by [`attach`], in the same order.
    pub saved: Vec<Tensor>,
    /// For each input, whether its gradient is needed.
    pub needed: Vec<bool>,
}

impl Gradient {
    /// The saved tensors, if there are `N` of them.
    pub fn saved<const N: usize>(&self) -> Result<[&Tensor; N]> {
        let found: Vec<&Tensor> = self.saved.iter().collect();
        let wrong = |found: Vec<&Tensor>| {
            Error::Torch(TchError::Torch(format!("{} tensors were saved, not {N}", found.len())))
        };
        found.try_into().map_err(wrong)
    }
}

/// torch's fused optimizers. Each list has one tensor per parameter, of its shape, in the
/// parameters' order.
pub enum UpdateBy<'a> {
    /// `torch.optim.Adam`, or `AdamW` if `decoupled`.
    Adam {
        decoupled: bool,
        moments: [&'a [&'a Tensor]; 2],
        /// Number of updates including this one: one f32 on the parameters' device.
        step: &'a Tensor,
        rate: f64,
        betas: [f64; 2],
        decay: f64,
        epsilon: f64,
    },
    /// `torch.optim.SGD` without dampening; `momenta` unless `momentum` is 0.
    Sgd { momenta: Option<&'a [&'a Tensor]>, rate: f64, momentum: f64, decay: f64, nesterov: bool },
}

/// Turns the gradient of an output into the gradients of the inputs, in their order. `None` means
/// zero, and is the right answer for an input whose gradient is not needed.
pub type BackwardFn = dyn Fn(Gradient) -> Result<Vec<Option<Tensor>>> + Send;
