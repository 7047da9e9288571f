//! Updates of the parameters, and the state that a resumed run needs to continue exactly.
//!
//! All parameters form one flat vector: its gradients are summed over the ranks in one call, its
//! norm is clipped, and the optimizer's state is a few vectors like it. torch's fused optimizers of
//! the same names make the update in one or two launches; the state is kept here, because `tch`
//! cannot save that of its own optimizers. On a GPU the host waits for none of them, unless losses
//! are scaled (`scale.rs`): then it reads the norm, and skips the update if it is not finite. Every
//! rank makes the same update from the same bits, and no number depends on the number of threads.
//!
//! With a staleness of d an update uses the gradient of the mini-batch d before: w(t+1) = w(t) − α
//! ∇f(w(t−d)), as in a pipeline of d mini-batches in flight (P3, OSDI 2021, section 3.3). A
//! mini-batch goes forwards and backwards with the same weights, so no weights need be stashed:
//! gradients wait instead. The first d mini-batches of an epoch make no update, and the epoch ends
//! with the updates that are still due ([`Optimizer::catch_up`]): evaluated and saved models have
//! learnt from every mini-batch.

use std::collections::VecDeque;

use gsplit_kernels::{Communicator, device_all_reduce_sum};
use tch::{Kind, Tensor};

use crate::Result;
use crate::autograd::{self, UpdateBy};
use crate::config::{Config, Dtype, OptimizerConfig, OptimizerKind};
use crate::model::{Embeddings, LookedUp, Parameters};
use crate::operator::Place;

mod rate;
mod scale;

use rate::LearningRate;
pub use scale::LossScale;

/// [`Optimizer::update`] adds this to the norm when clipping, as torch's `clip_grad_norm_` does.
const CLIP_EPSILON: f64 = 1e-6;
/// Number of values that are summed at a time.
const CHUNK: usize = 4096;

/// An optimizer with its state.
#[derive(Debug)]
pub struct Optimizer {
    config: OptimizerConfig,
    rate: LearningRate,
    /// `first_moment` and `second_moment` of Adam and AdamW; `momentum` of SGD, if any.
    state: Vec<State>,
    /// Updates made or skipped because of [`Optimizer::scaling`]; after [`Optimizer::catch_up`],
    /// the mini-batches seen.
    pub steps: u64,
    /// Gradients, summed over all ranks, whose updates are due, the oldest first.
    waiting: VecDeque<Due>,
    /// Scale of the loss, if gradients are f16.
    scaling: Option<LossScale>,
}

/// A gradient, summed over all ranks: of the parameters, and of learnt rows of this rank's shard.
type Due = (Tensor, Vec<LookedUp>);

/// A vector of the optimizer's state: f32, one value for each parameter value in the parameters'
/// order.
#[derive(Debug)]
struct State {
    name: &'static str,
    values: Tensor,
    /// `values` in the shapes of the parameters.
    parts: Vec<Tensor>,
}

/// Result of an update.
#[derive(Debug)]
pub struct Update {
    /// Norm of the gradient, over all ranks and parameters, before clipping. Not finite if a
    /// gradient was not: then the parameters are worthless.
    pub gradient_norm: GradientNorm,
    /// The learning rate.
    pub learning_rate: f64,
    /// Whether the update was skipped because a gradient in f16 was not finite.
    pub skipped: bool,
}

/// The norm of a gradient, in the memory where it was computed.
#[derive(Debug)]
pub enum GradientNorm {
    /// On the host.
    Here(f64),
    /// One f64 on a GPU.
    There(Tensor),
}

impl GradientNorm {
    /// The norm of `gradient`, at `place`.
    fn of(place: &Place, gradient: &Tensor) -> Result<Self> {
        Ok(match place {
            Place::Host(_) => Self::Here(norm(autograd::values(gradient)?)),
            Place::Device(..) => Self::There(gradient.f_norm_scalaropt_dtype(2, Kind::Double)?),
        })
    }

    /// Scales `gradient`, whose norm this is, down to norm `most` if it is longer.
    fn clip(&self, gradient: &mut Tensor, most: f64) -> Result<()> {
        match self {
            Self::Here(norm) if *norm > most => {
                drop(gradient.f_mul_scalar_(most / (norm + CLIP_EPSILON))?)
            }
            Self::Here(_) => {}
            Self::There(norm) => {
                let short = norm.f_le(most)?;
                let mut factor =
                    norm.f_add_scalar(CLIP_EPSILON)?.f_reciprocal()?.f_mul_scalar_(most)?;
                drop(gradient.f_mul_(&factor.f_masked_fill_(&short, 1.0)?)?);
            }
        }
        Ok(())
    }

    /// The norm; waits for a GPU that computes it.
    pub fn on_host(&self) -> Result<f64> {
        match self {
            Self::Here(norm) => Ok(*norm),
            Self::There(norm) => Ok(norm.f_double_value(&[])?),
        }
    }
}

impl Optimizer {
    /// Starts with zero state, for epochs of `steps_per_epoch` mini-batches.
    pub fn new(parameters: &Parameters, config: &Config, steps_per_epoch: u64) -> Result<Self> {
        let rate = LearningRate::new(config, steps_per_epoch)?;
        let config = config.run.optimizer.effective();
        let zeros = |name| -> Result<State> {
            let values = Tensor::f_zeros(
                [parameters.num_values() as i64],
                (Kind::Float, parameters.place().device()),
            )?;
            Ok(State { name, parts: parts(parameters, &values)?, values })
        };
        let scaling = (parameters.place().row_dtype() == Dtype::F16).then(LossScale::default);
        let state = config.moments().iter().map(|name| zeros(name)).collect::<Result<_>>()?;
        Ok(Self { config, rate, state, steps: 0, waiting: VecDeque::new(), scaling })
    }

    /// Factor of the loss of the next mini-batch.
    pub fn loss_scale(&self) -> f32 {
        self.scaling.map_or(1.0, |scaling| scaling.scale)
    }

    /// The scaling of losses, if gradients are f16.
    pub fn scaling(&self) -> Option<LossScale> {
        self.scaling
    }

    /// Continues after `steps` mini-batches with the saved `scaling`.
    pub fn resume(&mut self, steps: u64, scaling: Option<LossScale>) {
        self.steps = steps;
        self.scaling = self.scaling.map(|fresh| scaling.unwrap_or(fresh));
    }

    /// The state's vectors by name.
    pub fn state(&self) -> Vec<(&'static str, &Tensor)> {
        self.state.iter().map(|state| (state.name, &state.values)).collect()
    }

    /// Updates the plateau schedule with the `valid` metric of all evaluations so far.
    pub fn follow(&mut self, valid: impl Iterator<Item = f64>) {
        self.rate.follow(valid);
    }

    /// Sums the gradients, of the loss times [`Optimizer::loss_scale`], over the ranks, updates the
    /// parameters (with staleness, by older gradients), and clears their gradients. Collective.
    pub fn update(&mut self, parameters: &Parameters, comm: &dyn Communicator) -> Result<Update> {
        let mut gradient = summed_gradient(parameters, comm)?;
        parameters.iter().try_for_each(|(_, tensor)| autograd::forget_gradient(tensor))?;
        if self.scaling.is_some() {
            let _ = gradient.f_mul_scalar_(1.0 / f64::from(self.loss_scale()))?;
        }
        let mut rows = match parameters.embeddings() {
            Some(embeddings) => embeddings.summed(parameters.take_looked_up(), comm)?,
            None => Vec::new(),
        };
        let mut gradient_norm = GradientNorm::of(parameters.place(), &gradient)?;
        if let (GradientNorm::Here(norm), Some(embeddings)) =
            (&mut gradient_norm, parameters.embeddings())
        {
            let mut squares = 0.0;
            for of in rows.iter().filter(|of| !of.vertices.is_empty()) {
                squares += self::norm(autograd::values(&of.rows)?).powi(2);
            }
            let mut squares = [squares];
            if embeddings.is_shared() {
                comm.all_reduce_sum_f64(&mut squares)?;
            }
            *norm = (*norm * *norm + squares[0]).sqrt();
        }
        let learning_rate = self.rate.at(self.steps);
        if let Some(scaling) = &mut self.scaling {
            let finite = gradient_norm.on_host()?.is_finite();
            scaling.follow(finite)?;
            if !finite {
                self.steps += 1;
                return Ok(Update { gradient_norm, learning_rate, skipped: true });
            }
        }
        if let Some(most) = self.config.clip_norm {
            let of_rows = rows.iter_mut().map(|of| &mut of.rows).filter(|rows| rows.defined());
            for gradient in [&mut gradient].into_iter().chain(of_rows) {
                gradient_norm.clip(gradient, most)?;
            }
        }
        self.waiting.push_back((gradient, rows));
        if self.waiting.len() > self.config.staleness {
            self.apply_oldest(parameters)?;
        }
        if parameters.embeddings().is_some_and(Embeddings::is_shared) {
            comm.barrier()?;
        }
        Ok(Update { gradient_norm, learning_rate, skipped: false })
    }

    /// Makes the updates that are still due.
    pub fn catch_up(&mut self, parameters: &Parameters) -> Result<()> {
        while !self.waiting.is_empty() {
            self.apply_oldest(parameters)?;
        }
        Ok(())
    }

    fn apply_oldest(&mut self, parameters: &Parameters) -> Result<()> {
        let Some((gradient, mut rows)) = self.waiting.pop_front() else { return Ok(()) };
        rows.retain(|of| !of.vertices.is_empty());
        let rate = self.rate.at(self.steps);
        self.steps += 1;
        let gradients = parts(parameters, &gradient)?;
        // The learnt rows that move, then their moments.
        let moving = |of: &LookedUp| {
            let row = |which| match parameters.embeddings() {
                Some(embeddings) => embeddings.rows(of.table, which, &of.vertices),
                None => Ok(Tensor::new()),
            };
            (0..=self.state.len()).map(row).collect::<Result<Vec<_>>>()
        };
        let moving = rows.iter().map(moving).collect::<Result<Vec<_>>>()?;
        let moments = self.state.iter().enumerate().map(|(at, state)| {
            state.parts.iter().chain(moving.iter().map(|of| &of[at + 1])).collect()
        });
        let moments: Vec<Vec<&Tensor>> = moments.collect();
        let OptimizerConfig {
            kind,
            betas,
            adam_epsilon,
            momentum,
            nesterov,
            weight_decay: decay,
            ..
        } = self.config;
        let step;
        let by = match &moments[..] {
            [first, second] => {
                let made = self.steps - self.scaling.map_or(0, |scaling| scaling.skipped);
                step = Tensor::f_full([], made as f64, (Kind::Float, parameters.place().device()))?;
                UpdateBy::Adam {
                    decoupled: kind == OptimizerKind::AdamW,
                    moments: [first, second],
                    step: &step,
                    rate,
                    betas: betas.unwrap_or_default().0,
                    decay,
                    epsilon: adam_epsilon.unwrap_or_default(),
                }
            }
            momenta => UpdateBy::Sgd {
                momenta: momenta.first().map(Vec::as_slice),
                rate,
                momentum: momentum.unwrap_or_default(),
                decay,
                nesterov,
            },
        };
        let weights = parameters.iter().map(|(_, tensor)| tensor);
        let weights: Vec<&Tensor> = weights.chain(moving.iter().map(|of| &of[0])).collect();
        let gradients: Vec<&Tensor> =
            gradients.iter().chain(rows.iter().map(|of| &of.rows)).collect();
        autograd::update(&weights, &gradients, &by)?;
        let Some(embeddings) = parameters.embeddings() else { return Ok(()) };
        for (of, moved) in rows.iter().zip(&moving) {
            embeddings.write(of.table, &of.vertices, moved)?;
        }
        Ok(())
    }
}

/// Views of `flat`, a vector of all parameters' values, in the shapes of the parameters.
fn parts(parameters: &Parameters, flat: &Tensor) -> Result<Vec<Tensor>> {
    let lengths: Vec<i64> = parameters.iter().map(|(_, tensor)| tensor.numel() as i64).collect();
    let parts = flat.f_split_with_sizes(lengths, 0)?;
    Ok(parts
        .iter()
        .zip(parameters.iter())
        .map(|(part, (_, tensor))| part.f_view_as(tensor))
        .collect::<Result<_, _>>()?)
}

/// The Euclidean norm, summed in f64 in a fixed order.
fn norm(values: &[f32]) -> f64 {
    let square = |&value: &f32| f64::from(value) * f64::from(value);
    values.chunks(CHUNK).map(|chunk| chunk.iter().map(square).sum::<f64>()).sum::<f64>().sqrt()
}

/// The gradients of all parameters in one vector, summed over the ranks in rank order: every rank
/// gets the same bits. A parameter without gradient (this rank had nothing to compute) counts as
/// zero.
fn summed_gradient(parameters: &Parameters, comm: &dyn Communicator) -> Result<Tensor> {
    let parts: Vec<Tensor> = parameters
        .iter()
        .map(|(_, tensor)| match tensor.grad() {
            gradient if gradient.defined() => gradient.f_flatten(0, -1),
            _ => tensor.detach().f_zeros_like()?.f_flatten(0, -1),
        })
        .collect::<std::result::Result<_, _>>()?;
    let mut local = Tensor::f_cat(&parts, 0)?;
    if comm.size() == 1 {
        return Ok(local);
    }
    if let Place::Device(gpu, device, ..) = parameters.place() {
        device_all_reduce_sum(
            comm,
            gpu,
            &mut autograd::device_values_mut::<f32>(*device, &mut local)?,
        )?;
        return Ok(local);
    }
    let mut values = vec![0f32; local.numel()];
    local.f_copy_data(&mut values, local.numel())?;
    comm.all_reduce_sum_f32(&mut values)?;
    Ok(Tensor::from_slice(&values))
}
