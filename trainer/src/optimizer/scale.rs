//! Scales the loss so that gradients in f16 neither vanish nor overflow (Micikevicius et al.,
//! "Mixed Precision Training", ICLR 2018, section 3.2), with the numbers and the rule of torch's
//! `GradScaler`.
//!
//! Gradients of a loss times `scale` are `scale` times as large; they are divided by it once they
//! are f32. If one is not finite the mini-batch is skipped and the scale halved; after
//! [`GROWTH_INTERVAL`] finite ones in a row it is doubled. The test is the norm of the sum over all
//! ranks, which is not finite if a value on any of them is not: so all ranks decide alike, without
//! further messages. Scales are powers of two, so that scaling does not round values that do not
//! vanish.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The first scale.
const INITIAL: f32 = 65536.0;
/// Number of good mini-batches in a row after which the scale is doubled.
const GROWTH_INTERVAL: u32 = 2000;
/// Below this the scale is not the problem: f16 ends at 65504, so these gradients exceed 2³⁰.
const LEAST: f32 = 1.0 / 16384.0;

/// The scale of a run's losses, and the counts that decide when it changes; saved for resumed runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScale {
    /// Factor of the next loss, a power of two.
    pub scale: f32,
    /// Number of good mini-batches since the last change.
    pub good_steps: u32,
    /// Number of mini-batches that were skipped.
    pub skipped: u64,
}

impl Default for LossScale {
    fn default() -> Self {
        Self { scale: INITIAL, good_steps: 0, skipped: 0 }
    }
}

impl LossScale {
    /// Updates the scale after a mini-batch whose gradient was `finite` or not.
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
        let run =
            |scale: &mut LossScale, good: u32| (0..good).for_each(|_| scale.follow(true).unwrap());
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
