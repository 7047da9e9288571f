//! Normalisation of a layer's rows, with a trained scale and shift: of each row (Ba et al., 2016,
//! "layer norm"), or of each column over all rows of the global mini-batch, on whichever ranks
//! (Ioffe and Szegedy, ICML 2015, "batch norm"). Outside training, batch norm uses running means of
//! its statistics.

use tch::Tensor;

use super::parameters::Named;
use crate::Result;
use crate::config::NormKind;
use crate::operator::{Finish, Moments, Place, biased, layer_norm, standardise};

/// Weight of a mini-batch in the running statistics.
const MOMENTUM: f64 = 0.1;

/// Normalisation of a layer's pre-activations before its activation.
pub enum Norm {
    /// No normalisation.
    None,
    /// Normalises each row.
    Layer {
        /// `[width]`.
        scale: Tensor,
        /// `[width]`.
        shift: Tensor,
    },
    /// Normalises each column.
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
            NormKind::Layer => Self::Layer {
                scale: named.ones("norm.scale", width),
                shift: named.zeros("norm.shift", width),
            },
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

    /// Normalises `rows`, f32 `[rows, width]`, and applies `finish`; batch norm uses `moments`, or
    /// the running ones.
    pub fn apply(
        &self,
        place: &Place,
        rows: &Tensor,
        moments: Option<&Moments>,
        finish: Finish,
    ) -> Result<Tensor> {
        match self {
            Self::None => biased(place, rows, None, finish),
            Self::Layer { scale, shift } => layer_norm(place, rows, scale, shift, finish),
            Self::Batch { scale, shift, mean, variance } => match moments {
                Some(moments) => standardise(place, rows, moments, scale, shift, finish),
                None => standardise(
                    place,
                    rows,
                    &Moments::running(place, mean, variance)?,
                    scale,
                    shift,
                    finish,
                ),
            },
        }
    }

    /// Updates the running moments with those of a mini-batch.
    pub fn observe(&self, moments: &Moments) -> Result<()> {
        let Self::Batch { mean, variance, .. } = self else { return Ok(()) };
        let statistics = moments.statistics()?;
        tch::no_grad(|| {
            // A mini-batch that overflowed in f16 is left out here too.
            let [means, variances] = statistics.each_ref().map(|new| new.isfinite().all());
            let whole = means.f_logical_and(&variances)?;
            for (running, new) in [mean, variance].into_iter().zip(statistics) {
                let updated =
                    running.f_mul_scalar(1.0 - MOMENTUM)?.f_add_(&new.f_mul_scalar(MOMENTUM)?)?;
                running.shallow_clone().f_copy_(&updated.f_where_self(&whole, running)?)?;
            }
            Ok(())
        })
    }
}
