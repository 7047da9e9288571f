//! Updates of all parameters in one launch.
//!
//! Returns: parameters and state, changed in place. Input: the tensors that the parameters are, each at a place of its own; the gradient
//! of all of them and the state as flat vectors. Idea: a block has up to 1024 values of one tensor, which it finds by bisection in
//! a list of the tensors. Cost: a read and a write of parameters and state, a read of the gradient, all in 16-byte pieces where a
//! tensor begins at a multiple of four values; the list, some bytes a tensor, goes up when a tensor has moved. The norm stays on the
//! device, so the host does not wait.
//!
//! Why not a CUDA graph of one launch a tensor: it saves the host the launches, not the GPU their starts and ends, and a model has
//! more tensors of some hundred values than large ones. Nothing else of a training step could be captured, as the shapes of
//! mini-batches change from one to the next.

use crate::columns::ColumnSums;
use crate::cuda::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Gpu, GpuError, Kernel, Module, Shape};
use crate::error::KernelError;

pub(crate) static MODULE: Module = Module { name: "optimizer", source: include_str!("cuda.cu") };

/// Threads of a block.
const THREADS: u32 = 256;
/// Values that one block has, as in `cuda.cu`.
const PIECE: usize = 1024;
/// Words of what `cuda.cu` calls a part.
const PART_WORDS: usize = 3;

/// How a gradient becomes a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UpdateRule {
    /// Adam (Kingma and Ba, 2015). Its state is the first and the second moment.
    Adam {
        /// Share of the first moment that is kept.
        beta1: f64,
        /// Share of the second moment that is kept.
        beta2: f64,
        /// What is added to the denominator.
        epsilon: f64,
        /// Whether weight decay is no part of the gradient (AdamW: Loshchilov and Hutter, 2019).
        decoupled: bool,
    },
    /// Stochastic gradient descent. Its state is the momentum, if it is above 0.
    Sgd {
        /// Share of the momentum that is kept.
        momentum: f64,
        /// Nesterov's look ahead.
        nesterov: bool,
    },
}

impl UpdateRule {
    /// How many vectors, as long as the parameters and zero at first, it keeps.
    pub fn num_states(&self) -> usize {
        match self {
            Self::Adam { .. } => 2,
            Self::Sgd { momentum, .. } => usize::from(*momentum != 0.0),
        }
    }
}

/// An update of parameters.
#[derive(Clone, Copy, Debug)]
pub struct DeviceUpdate<'a> {
    /// The rule.
    pub rule: UpdateRule,
    /// The learning rate.
    pub rate: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Updates made, this one included: at least 1.
    pub steps: u64,
    /// The square of the whole gradient's norm ([`squared_norm_on_device`]), and the norm that it is lowered to, as torch's
    /// `clip_grad_norm_` does.
    pub clip: Option<(DeviceSlice<'a, f64>, f64)>,
}

/// The list of the tensors that were updated last, on the GPU.
#[derive(Debug, Default)]
pub struct DeviceTensors {
    parts: Vec<u64>,
    there: Option<DeviceBuffer<u64>>,
}

impl DeviceTensors {
    /// Where the list `parts` is.
    fn listed(&mut self, gpu: &Gpu, parts: Vec<u64>) -> Result<u64, GpuError> {
        let there = match self.there.take().filter(|_| self.parts == parts) {
            Some(there) => there,
            None => gpu.upload(&parts)?,
        };
        self.parts = parts;
        Ok(self.there.insert(there).slice().address())
    }
}

impl DeviceUpdate<'_> {
    /// Changes `parameters`, tensors, which `tensors` remembers, and the rule's `state` by `gradient`: the flat vectors have their values one behind the other.
    ///
    /// # Errors
    /// [`KernelError::Length`] if a vector has another length, or the state other vectors; what the GPU reports.
    pub fn apply(
        &self,
        gpu: &Gpu,
        (parameters, tensors): (&mut [DeviceSliceMut<'_, f32>], &mut DeviceTensors),
        gradient: DeviceSlice<'_, f32>,
        state: &mut [DeviceSliceMut<'_, f32>],
    ) -> Result<(), GpuError> {
        let count = parameters.iter().map(|tensor| tensor.len()).sum();
        KernelError::check_len("gradient of the parameters", count, gradient.len())?;
        KernelError::check_len("vectors of the optimizer's state", self.rule.num_states(), state.len())?;
        for vector in &*state {
            KernelError::check_len("state of the optimizer", count, vector.len())?;
        }
        if let Some((norm, _)) = self.clip {
            KernelError::check_len("norm of the gradient", 1, norm.len())?;
        }
        let (parts, blocks) = parts(parameters);
        let num_parts = parts.len() / PART_WORDS - 1;
        let listed = tensors.listed(gpu, parts)?;
        let (norm, most) = self.clip.map_or((0, 0.0), |(norm, most)| (norm.address(), most));
        let decoupled = matches!(self.rule, UpdateRule::Adam { decoupled: true, .. });
        let bits = |value: f64| u64::from((value as f32).to_bits());
        let step = [
            listed,
            gradient.address(),
            norm,
            most.to_bits(),
            bits(self.rate) | bits(self.weight_decay) << 32,
            num_parts as u64 | u64::from(decoupled) << 32,
            0,
            0,
        ];
        let shape = Shape::per_item(blocks * THREADS as usize, THREADS);
        let kernel = |name| Kernel { module: &MODULE, name };
        let state: Vec<u64> = state.iter().map(|vector| vector.address()).collect();
        match self.rule {
            UpdateRule::Adam { beta1, beta2, epsilon, .. } => {
                let left = |beta: f64| 1.0 - beta.powf(self.steps as f64);
                let factors = [1.0 - beta1, beta2, 1.0 - beta2, epsilon, left(beta1), left(beta2).sqrt()];
                let factors = factors.map(|factor| (factor as f32).into());
                let moments = [state[0].into(), state[1].into()];
                gpu.launch(kernel("update_adam"), shape, &[&[step.into()], &moments[..], &factors].concat())
            }
            UpdateRule::Sgd { momentum, nesterov } => {
                let kept = state.first().copied().unwrap_or(0);
                let rest = [step.into(), kept.into(), (momentum as f32).into(), u32::from(nesterov).into()];
                gpu.launch(kernel("update_sgd"), shape, &rest)
            }
        }
    }
}

/// The list of the tensors as the kernels have it, and how many blocks have values of any.
fn parts(parameters: &[DeviceSliceMut<'_, f32>]) -> (Vec<u64>, usize) {
    let (mut start, mut blocks) = (0, 0);
    let mut parts = Vec::with_capacity(PART_WORDS * (parameters.len() + 1));
    for tensor in parameters.iter().filter(|tensor| !tensor.is_empty()) {
        parts.extend([tensor.address(), start as u64, blocks as u64]);
        start += tensor.len();
        blocks += tensor.len().div_ceil(PIECE);
    }
    parts.extend([0, start as u64, blocks as u64]);
    (parts, blocks)
}

/// The sum of the squares of `values`, in f64: one value, on the device. Sums of several vectors are added up by the caller.
///
/// # Errors
/// What the GPU reports.
pub fn squared_norm_on_device(gpu: &Gpu, values: DeviceSlice<'_, f32>) -> Result<DeviceBuffer<f64>, GpuError> {
    let kernel = Kernel { module: &MODULE, name: "squared_norm" };
    ColumnSums { rows: values.len(), dim: 1 }.run(gpu, kernel, 1, &[values.into()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spmm::tests::{assert_close, values};

    /// The formulas, in f64.
    fn naive(update: &DeviceUpdate<'_>, most: Option<f64>, p: &mut [f64], gradient: &[f32], state: &mut [Vec<f64>]) {
        let norm = gradient.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
        let factor = most.filter(|&most| norm > most).map_or(1.0, |most| most / (norm + 1e-6));
        for (i, p) in p.iter_mut().enumerate() {
            let mut g = f64::from(gradient[i]) * factor;
            let decoupled = matches!(update.rule, UpdateRule::Adam { decoupled: true, .. });
            if !decoupled {
                g += update.weight_decay * *p;
            }
            let mut change = match update.rule {
                UpdateRule::Adam { beta1, beta2, epsilon, .. } => {
                    state[0][i] = beta1 * state[0][i] + (1.0 - beta1) * g;
                    state[1][i] = beta2 * state[1][i] + (1.0 - beta2) * g * g;
                    let [m, v] = [(0, beta1), (1, beta2)]
                        .map(|(which, beta)| state[which][i] / (1.0 - beta.powf(update.steps as f64)));
                    m / (v.sqrt() + epsilon)
                }
                UpdateRule::Sgd { momentum: 0.0, .. } => g,
                UpdateRule::Sgd { momentum, nesterov } => {
                    state[0][i] = momentum * state[0][i] + g;
                    if nesterov { g + momentum * state[0][i] } else { state[0][i] }
                }
            };
            if decoupled {
                change += update.weight_decay * *p;
            }
            *p -= update.rate * change;
        }
    }

    #[test]
    fn oracle_updates_are_the_formulas() {
        let adam = |decoupled| UpdateRule::Adam { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, decoupled };
        let sgd = |momentum, nesterov| UpdateRule::Sgd { momentum, nesterov };
        let rules = [adam(false), adam(true), sgd(0.0, false), sgd(0.9, false), sgd(0.8, true)];
        for (case, rule) in rules.into_iter().enumerate() {
            for (count, weight_decay, most) in
                [(1, 0.0, None), (1000, 0.1, None), (1003, 0.1, Some(0.5)), (0, 0.0, None)]
            {
                let gpu = Gpu::under_test(case as u32 % 4);
                let start = values(1, count);
                let mut parameters = gpu.upload(&start).unwrap();
                let mut expected: Vec<f64> = start.iter().map(|&p| f64::from(p)).collect();
                let mut states: Vec<_> = (0..rule.num_states()).map(|_| gpu.zeros::<f32>(count).unwrap()).collect();
                let mut expected_states = vec![vec![0.0; count]; rule.num_states()];
                let mut tensors = DeviceTensors::default();
                for steps in 1..=4 {
                    let gradient = values(1 + steps as u32, count);
                    let device = gpu.upload(&gradient).unwrap();
                    let norm = squared_norm_on_device(&gpu, device.slice()).unwrap();
                    let clip = most.map(|most| (norm.slice(), most));
                    let update = DeviceUpdate { rule, rate: 0.05, weight_decay, steps, clip };
                    let mut state: Vec<_> = states.iter_mut().map(|state| state.slice_mut()).collect();
                    let before = gpu.counts().launches;
                    update
                        .apply(&gpu, (&mut [parameters.slice_mut()], &mut tensors), device.slice(), &mut state)
                        .unwrap();
                    // The list goes up once.
                    let launches = u64::from(count > 0) + u64::from(steps == 1);
                    assert!(gpu.counts().launches - before <= launches);
                    naive(&update, most, &mut expected, &gradient, &mut expected_states);
                }
                let name = format!("{rule:?}, {count} values, decay {weight_decay}, clipped to {most:?}");
                assert_close(&parameters.to_vec().unwrap(), &expected, &name);
                for (found, expected) in states.iter().zip(&expected_states) {
                    assert_close(&found.to_vec().unwrap(), expected, &name);
                }
            }
        }
    }

    #[test]
    fn tensors_are_changed_as_one_vector_is() {
        let adam = UpdateRule::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decoupled: true };
        let sgd = UpdateRule::Sgd { momentum: 0.9, nesterov: true };
        for (case, lengths) in [
            vec![200],
            vec![41, 159],
            vec![0, 5, 0, 0, 1024, 0, 3000, 1, 0],
            vec![1025, 1, 2, 3, 4096, 64, 64, 10_000, 7],
            vec![0, 0],
            vec![],
        ]
        .into_iter()
        .enumerate()
        {
            let (gpu, count): (_, usize) = (Gpu::under_test(case as u32 % 4), lengths.iter().sum());
            let start = values(1, count);
            let gradient = gpu.upload(&values(2, count)).unwrap();
            let norm = squared_norm_on_device(&gpu, gradient.slice()).unwrap();
            for rule in [adam, sgd] {
                let clip = Some((norm.slice(), 0.5));
                let update = DeviceUpdate { rule, rate: 0.1, weight_decay: 0.01, steps: 1, clip };
                let states = || (0..rule.num_states()).map(|_| gpu.zeros::<f32>(count).unwrap()).collect::<Vec<_>>();
                let run = |lengths: &[usize]| {
                    let mut rest = start.as_slice();
                    let mut tensors: Vec<_> = lengths
                        .iter()
                        .map(|&length| {
                            let (first, behind) = rest.split_at(length);
                            rest = behind;
                            gpu.upload(first).unwrap()
                        })
                        .collect();
                    let mut states = states();
                    let mut state: Vec<_> = states.iter_mut().map(|vector| vector.slice_mut()).collect();
                    let mut given: Vec<_> = tensors.iter_mut().map(|tensor| tensor.slice_mut()).collect();
                    let before = gpu.counts();
                    let mut listed = DeviceTensors::default();
                    update.apply(&gpu, (&mut given, &mut listed), gradient.slice(), &mut state).unwrap();
                    let after = gpu.counts();
                    assert_eq!(after.waits, before.waits);
                    // The list, and the kernel.
                    assert!(after.launches <= before.launches + 2, "{lengths:?}");
                    let found: Vec<f32> = tensors.iter().flat_map(|tensor| tensor.to_vec().unwrap()).collect();
                    (found, states.iter().map(|vector| vector.to_vec().unwrap()).collect::<Vec<_>>())
                };
                let (found, whole) = (run(&lengths), run(&[count]));
                assert!(found == whole, "{lengths:?}, {rule:?}");
                assert!(count == 0 || found.0 != start);
            }
        }
    }

    #[test]
    fn oracle_norms() {
        for (order, count) in [0, 1, 255, 100_000].into_iter().enumerate() {
            let gpu = Gpu::under_test(order as u32);
            let numbers = values(7, count);
            let expected: f64 = numbers.iter().map(|&value| f64::from(value).powi(2)).sum();
            let found = squared_norm_on_device(&gpu, gpu.upload(&numbers).unwrap().slice()).unwrap();
            let found = found.to_vec().unwrap();
            assert!(found.len() == 1 && (found[0] - expected).abs() <= 1e-12 * expected, "{found:?}, {expected}");
        }
    }

    #[test]
    fn wrong_sizes_are_refused() {
        let gpu = Gpu::under_test(0);
        let (mut p, g, mut few) = (gpu.zeros(4).unwrap(), gpu.zeros(4).unwrap(), gpu.zeros(3).unwrap());
        let rule = UpdateRule::Sgd { momentum: 0.9, nesterov: false };
        let update = DeviceUpdate { rule, rate: 0.1, weight_decay: 0.0, steps: 1, clip: None };
        let length = |result| matches!(result, Err(GpuError::Input(KernelError::Length { .. })));
        let mut tensors = DeviceTensors::default();
        assert!(length(update.apply(&gpu, (&mut [p.slice_mut()], &mut tensors), g.slice(), &mut [])));
        let state = &mut [few.slice_mut()];
        assert!(length(update.apply(&gpu, (&mut [p.slice_mut()], &mut tensors), g.slice(), state)));
        let short = few.slice();
        assert!(length(update.apply(&gpu, (&mut [p.slice_mut()], &mut tensors), short, &mut [])));
    }
}
