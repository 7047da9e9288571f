//! The update on a GPU: one kernel for all parameters, after those that take the norm of all gradients. Where these are of a scaled
//! loss (`scale.rs`) the host reads the norm, and where it is not finite nothing is updated.

use gsplit_kernels::{DeviceSliceMut, DeviceUpdate, Gpu, UpdateRule, squared_norm_on_device};
use tch::{Device, Tensor};

use super::{GradientNorm, Optimizer, Update, norm_of};
use crate::Result;
use crate::autograd::{device_values, device_values_mut, forget_gradient};
use crate::config::{OptimizerConfig, OptimizerKind};
use crate::model::Parameters;

impl Optimizer {
    /// As [`Optimizer::update`], from the gradient of all ranks. The host waits for nothing, unless losses are scaled.
    pub(super) fn update_there(
        &mut self,
        (gpu, device): (&Gpu, Device),
        parameters: &Parameters,
        mut gradient: Tensor,
    ) -> Result<Update> {
        if self.scaling.is_some() {
            let _ = gradient.f_mul_scalar_(1.0 / f64::from(self.loss_scale()))?;
        }
        let gradient = device_values(device, &gradient)?;
        let squared = squared_norm_on_device(gpu, gradient)?;
        let learning_rate = self.rate.at(self.steps);
        self.steps += 1;
        let forget = || parameters.iter().try_for_each(|(_, tensor)| forget_gradient(tensor));
        if let Some(scaling) = &mut self.scaling {
            let finite = norm_of(&squared)?.is_finite();
            scaling.follow(finite)?;
            if !finite {
                forget()?;
                return Ok(Update { gradient_norm: GradientNorm::Squared(squared), learning_rate, skipped: true });
            }
        }
        let skipped = self.scaling.map_or(0, |scaling| scaling.skipped);
        let update = DeviceUpdate {
            rule: rule(&self.config),
            rate: learning_rate,
            weight_decay: self.config.weight_decay,
            steps: self.steps - skipped,
            clip: self.config.clip_norm.map(|most| (squared.slice(), most)),
        };
        let mut state = self.state.iter_mut().map(|(_, vector)| device_values_mut(device, vector));
        let mut state: Vec<DeviceSliceMut<'_, f32>> = state.by_ref().collect::<Result<_>>()?;
        let mut tensors: Vec<Tensor> = parameters.iter().map(|(_, tensor)| tensor.detach()).collect();
        let values = tensors.iter_mut().map(|tensor| device_values_mut(device, tensor));
        let mut values = values.collect::<Result<Vec<_>>>()?;
        update.apply(gpu, (&mut values, &mut self.tensors), gradient, &mut state)?;
        forget()?;
        Ok(Update { gradient_norm: GradientNorm::Squared(squared), learning_rate, skipped: false })
    }
}

/// The rule of `config`, which is an effective one.
fn rule(config: &OptimizerConfig) -> UpdateRule {
    match config.kind {
        OptimizerKind::Sgd => {
            UpdateRule::Sgd { momentum: config.momentum.unwrap_or_default(), nesterov: config.nesterov }
        }
        OptimizerKind::Adam | OptimizerKind::AdamW => UpdateRule::Adam {
            beta1: config.beta1.unwrap_or_default(),
            beta2: config.beta2.unwrap_or_default(),
            epsilon: config.epsilon.unwrap_or_default(),
            decoupled: config.kind == OptimizerKind::AdamW,
        },
    }
}
