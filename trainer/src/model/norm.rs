//! Normalisation of a layer's rows, with a trained scale and shift: of each row (Ba et al., 2016, "layer norm"), or of each
//! column over all rows of the global mini-batch, whichever ranks hold them (Ioffe and Szegedy, ICML 2015, "batch
//! norm"). While not training, batch norm uses running means of its statistics.

use tch::Tensor;

use super::parameters::Named;
use crate::Result;
use crate::config::NormKind;
use crate::operator::{Finish, Moments, biased, layer_norm, standardise};
use crate::place::Place;

/// Share of a mini-batch in the running statistics.
const MOMENTUM: f64 = 0.1;

/// What is done to a layer's sums before its activation.
pub enum Norm {
    /// Nothing.
    None,
    /// Each row.
    Layer {
        /// `[width]`.
        scale: Tensor,
        /// `[width]`.
        shift: Tensor,
    },
    /// Each column.
    Batch {
        /// `[width]`.
        scale: Tensor,
        /// `[width]`.
        shift: Tensor,
        /// Running mean, `[width]`.
        mean: Tensor,
        /// Running variance, `[width]`.
        variance: Tensor,
    },
}

impl Norm {
    /// Normalisation of rows of `width` values.
    pub fn new(named: &mut Named<'_>, kind: NormKind, width: usize) -> Self {
        match kind {
            NormKind::None => Self::None,
            NormKind::Layer => {
                Self::Layer { scale: named.ones("norm.scale", width), shift: named.zeros("norm.shift", width) }
            }
            NormKind::Batch => Self::Batch {
                scale: named.ones("norm.scale", width),
                shift: named.zeros("norm.shift", width),
                mean: named.buffer("norm.mean", 0.0, width),
                variance: named.buffer("norm.variance", 1.0, width),
            },
        }
    }

    /// Whether it needs the [`Moments`] of the mini-batch.
    pub fn needs_moments(&self) -> bool {
        matches!(self, Self::Batch { .. })
    }

    /// `finish` of the normalised rows, f32 `[rows, width]`; batch norm with `moments`, or the running ones.
    pub fn apply(&self, place: &Place, rows: &Tensor, moments: Option<&Moments>, finish: Finish) -> Result<Tensor> {
        match self {
            Self::None => biased(place, rows, None, finish),
            Self::Layer { scale, shift } => layer_norm(place, rows, scale, shift, finish),
            Self::Batch { scale, shift, mean, variance } => match moments {
                Some(moments) => standardise(place, rows, moments, scale, shift, finish),
                None => standardise(place, rows, &Moments::running(mean, variance)?, scale, shift, finish),
            },
        }
    }

    /// Takes the moments of a mini-batch into the running ones.
    pub fn observe(&self, moments: &Moments) {
        let Self::Batch { mean, variance, .. } = self else { return };
        // A mini-batch that overflowed in f16 is left out, here too.
        if !moments.mean.iter().chain(&moments.variance).all(|moment| moment.is_finite()) {
            return;
        }
        let rows = moments.rows;
        let unbiased = if rows > 1.0 { rows / (rows - 1.0) } else { 1.0 };
        let mix = |running: &Tensor, new: &[f64], factor: f64| {
            let new: Vec<f32> = new.iter().map(|value| (value * factor) as f32).collect();
            let mixed = running * (1.0 - MOMENTUM) + Tensor::from_slice(&new).to_device(running.device()) * MOMENTUM;
            running.shallow_clone().copy_(&mixed);
        };
        tch::no_grad(|| {
            mix(mean, &moments.mean, 1.0);
            mix(variance, &moments.variance, unbiased);
        });
    }
}
