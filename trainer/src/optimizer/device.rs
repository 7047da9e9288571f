//! The update on a GPU: a kernel for each parameter, after one that takes the norm of all gradients. Where these are of a scaled loss
//! (`scale.rs`) and not finite, nothing is updated.

use gsplit_kernels::{DeviceSliceMut, DeviceUpdate, Gpu, UpdateRule, squared_norm_on_device};
use tch::{Device, Tensor};

use super::{Optimizer, Update};
use crate::Result;
use crate::autograd::{device_values, device_values_mut};
use crate::config::{OptimizerConfig, OptimizerKind};
use crate::model::Parameters;

impl Optimizer {
    /// As [`Optimizer::update`], from the gradient of all ranks. The host waits for its norm.
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
        let gradient_norm = squared.to_vec()?.iter().sum::<f64>().sqrt();
        let learning_rate = self.rate.at(self.steps);
        self.steps += 1;
        let clear = || parameters.iter().for_each(|(_, tensor)| tensor.shallow_clone().zero_grad());
        if let Some(scaling) = &mut self.scaling {
            scaling.follow(gradient_norm.is_finite())?;
            if !gradient_norm.is_finite() {
                clear();
                return Ok(Update { gradient_norm: 0.0, learning_rate, skipped: true });
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
        let mut start = 0;
        for (_, tensor) in parameters.iter() {
            let end = start + tensor.numel();
            let mut tensor = tensor.detach();
            let parts = state.iter_mut().map(|vector| vector.reborrow().part(start, end));
            let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
            let values = &mut device_values_mut(device, &mut tensor)?;
            update.apply(gpu, values, gradient.part(start, end)?, &mut parts)?;
            start = end;
        }
        clear();
        Ok(Update { gradient_norm, learning_rate, skipped: false })
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
