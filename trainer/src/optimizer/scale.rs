//! How much a loss is scaled by, so that gradients in f16 neither vanish nor overflow (Micikevicius et al., "Mixed Precision
//! Training", ICLR 2018, section 3.2), with the numbers and the rule of torch's `GradScaler`.
//!
//! Gradients of a loss times `scale` are `scale` times as large; they are divided by it once they are f32. Where one is not finite the
//! mini-batch is left out and the scale halved; after [`GROWTH_INTERVAL`] good ones in a row it is doubled. Whether one is finite
//! is told by the norm of the sum over all ranks, which a value that is not finite on any of them spoils: so all ranks decide alike,
//! and nothing more crosses between them. Scales are powers of two, so that they cost no bits of what does not vanish.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The first scale.
const INITIAL: f32 = 65536.0;
/// Good mini-batches in a row after which the scale is doubled.
const GROWTH_INTERVAL: u32 = 2000;
/// Below this it is not the scale that is wrong: f16 ends at 65504, and these gradients end above 2³⁰.
const LEAST: f32 = 1.0 / 16384.0;

/// The scale of a run's losses, and what decides when it changes: what a resumed run goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScale {
    /// Factor of the next loss, a power of two.
    pub scale: f32,
    /// Good mini-batches since it last changed.
    pub good_steps: u32,
    /// Mini-batches of the run that were left out.
    pub skipped: u64,
}

impl Default for LossScale {
    fn default() -> Self {
        Self { scale: INITIAL, good_steps: 0, skipped: 0 }
    }
}

impl LossScale {
    /// Takes in whether the gradient of a mini-batch was finite.
    ///
    /// # Errors
    /// [`Error::Overflow`] where no scale would make it so.
    pub fn follow(&mut self, finite: bool) -> Result<()> {
        if !finite {
            (self.scale, self.good_steps, self.skipped) = (self.scale / 2.0, 0, self.skipped + 1);
            return match self.scale >= LEAST {
                true => Ok(()),
                false => Err(Error::Overflow { skipped: self.skipped }),
            };
        }
        self.good_steps += 1;
        if self.good_steps == GROWTH_INTERVAL {
            self.good_steps = 0;
            let doubled = self.scale * 2.0;
            self.scale = if doubled.is_finite() { doubled } else { self.scale };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_follows_torchs_rule() {
        let mut scale = LossScale::default();
        let run = |scale: &mut LossScale, good: u32| (0..good).for_each(|_| scale.follow(true).unwrap());
        run(&mut scale, 1999);
        assert_eq!(scale, LossScale { scale: 65536.0, good_steps: 1999, skipped: 0 });
        scale.follow(false).unwrap();
        assert_eq!(scale, LossScale { scale: 32768.0, good_steps: 0, skipped: 1 });
        run(&mut scale, 4001);
        assert_eq!(scale, LossScale { scale: 131072.0, good_steps: 1, skipped: 1 });
        let mut largest = LossScale { scale: 2f32.powi(127), good_steps: 1999, skipped: 0 };
        run(&mut largest, 1);
        assert_eq!(largest, LossScale { scale: 2f32.powi(127), good_steps: 0, skipped: 0 });
    }

    #[test]
    fn a_scale_that_does_not_help_is_given_up() {
        let mut scale = LossScale::default();
        (0..30).for_each(|_| scale.follow(false).unwrap());
        assert_eq!(scale.scale, LEAST);
        let error = scale.follow(false).unwrap_err().to_string();
        assert!(error.contains("31 mini-batches") && error.contains("--dtype bf16"), "{error}");
    }
}
