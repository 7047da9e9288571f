//! Adam (Kingma and Ba, ICLR 2015) on one flat vector, so that its state can be checkpointed and gradients are summed over
//! the ranks in one call. Written with tensor operations, because `tch` cannot save its optimizers' state.

use gsplit_kernels::Communicator;
use tch::{Kind, Tensor};

use crate::Result;
use crate::model::Parameters;

const BETA_1: f64 = 0.9;
const BETA_2: f64 = 0.999;
const EPSILON: f64 = 1e-8;

/// Adam's two moments and its step count.
#[derive(Debug)]
pub struct Adam {
    learning_rate: f64,
    /// f32, one value for each parameter value, in the parameters' order.
    pub first_moment: Tensor,
    /// As `first_moment`.
    pub second_moment: Tensor,
    /// Updates made.
    pub steps: u64,
}

impl Adam {
    /// Starts with zero moments.
    pub fn new(parameters: &Parameters, learning_rate: f64) -> Self {
        let zeros = || Tensor::zeros([parameters.num_values() as i64], (Kind::Float, tch::Device::Cpu));
        Self { learning_rate, first_moment: zeros(), second_moment: zeros(), steps: 0 }
    }

    /// Sums the gradients over the ranks, updates the parameters and clears their gradients. Collective.
    pub fn update(&mut self, parameters: &Parameters, comm: &dyn Communicator) -> Result<()> {
        let gradient = summed_gradient(parameters, comm)?;
        self.steps += 1;
        let steps = self.steps as f64;
        let step_size = self.learning_rate / (1.0 - BETA_1.powf(steps));
        let second_bias = 1.0 - BETA_2.powf(steps);
        tch::no_grad(|| {
            self.first_moment = &self.first_moment * BETA_1 + &gradient * (1.0 - BETA_1);
            self.second_moment = &self.second_moment * BETA_2 + gradient.square() * (1.0 - BETA_2);
            let change = &self.first_moment / ((&self.second_moment / second_bias).sqrt() + EPSILON) * step_size;
            let mut start = 0;
            for (_, tensor) in parameters.iter() {
                let length = tensor.numel() as i64;
                let mut tensor = tensor.shallow_clone();
                let _ = tensor.g_sub_(&change.narrow(0, start, length).view_as(&tensor));
                tensor.zero_grad();
                start += length;
            }
        });
        Ok(())
    }
}

/// The gradients of all parameters in one vector, summed over the ranks in rank order: every rank gets the same bits.
/// A parameter without gradient (this rank had nothing to compute) counts as zero.
fn summed_gradient(parameters: &Parameters, comm: &dyn Communicator) -> Result<Tensor> {
    let parts: Vec<Tensor> = parameters
        .iter()
        .map(|(_, tensor)| match tensor.grad() {
            gradient if gradient.defined() => gradient.flatten(0, -1),
            _ => tensor.detach().zeros_like().flatten(0, -1),
        })
        .collect();
    let local = Tensor::cat(&parts, 0);
    if comm.size() == 1 {
        return Ok(local);
    }
    let mut values = vec![0f32; local.numel()];
    local.f_copy_data(&mut values, local.numel())?;
    comm.all_reduce_sum_f32(&mut values)?;
    Ok(Tensor::from_slice(&values))
}
