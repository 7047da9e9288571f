//! The learning rate as a pure function of the updates made and, for the plateau schedule, of the
//! evaluations so far: it is the same in a resumed run, and on every rank.
//!
//! With s updates made, W of warm-up, and N in all:
//!
//! ```text
//! warm-up    lr · (s + 1) / W                                  while s < W
//! linear     lr + (min - lr) · t                               t = (s - W) / (N - W), at most 1
//! cosine     min + (lr - min) · (1 + cos πt) / 2               SGDR without restarts (Loshchilov and Hutter, 2017)
//! plateau    max(min, lr · gamma^reductions)                   torch's ReduceLROnPlateau, mode "max"; for errors "min"
//! ```
//!
//! Plateau counts evaluations and restarts the count at each that improves on the best by one in
//! ten thousand; when the count exceeds the patience, the rate is lowered and the count restarts.

use std::f64::consts::PI;

use crate::config::{Config, ScheduleConfig, ScheduleKind};
use crate::{Error, Result};

/// Minimum improvement, relative to the best, that counts for the plateau schedule.
const BETTER: f64 = 1e-4;

/// A schedule and its state.
#[derive(Clone, Debug)]
pub struct LearningRate {
    base: f64,
    schedule: ScheduleConfig,
    /// Number of steps of the linear and cosine schedules.
    decay_steps: u64,
    reductions: u32,
}

impl LearningRate {
    /// The learning rate of a run whose epochs have `steps_per_epoch` mini-batches.
    pub fn new(config: &Config, steps_per_epoch: u64) -> Result<Self> {
        let schedule = config.run.schedule.effective(config.run.epochs);
        let decay_steps = steps_per_epoch * u64::from(schedule.decay_epochs.unwrap_or(0));
        if schedule.decay_epochs.is_some() && schedule.warmup_steps >= decay_steps {
            return Err(Error::Option(format!(
                "--warmup-steps {}: the schedule is over after {decay_steps} mini-batches: warm up \
                 for fewer",
                schedule.warmup_steps
            )));
        }
        Ok(Self { base: config.run.optimizer.lr, schedule, decay_steps, reductions: 0 })
    }

    /// The rate of the update after `steps` updates.
    pub fn at(&self, steps: u64) -> f64 {
        let warmup = self.schedule.warmup_steps;
        let least = self.schedule.min_lr.unwrap_or(0.0);
        let gamma = self.schedule.gamma.unwrap_or(1.0);
        if steps < warmup {
            return self.base * (steps + 1) as f64 / warmup as f64;
        }
        let done = || ((steps - warmup) as f64 / (self.decay_steps - warmup) as f64).min(1.0);
        match self.schedule.kind {
            ScheduleKind::Constant => self.base,
            ScheduleKind::Linear => self.base + (least - self.base) * done(),
            ScheduleKind::Cosine => least + (self.base - least) * (1.0 + (PI * done()).cos()) / 2.0,
            ScheduleKind::Plateau => least.max(self.base * gamma.powf(f64::from(self.reductions))),
        }
    }

    /// Counts the reductions of the plateau schedule over the valid metric of all evaluations;
    /// errors are negated.
    pub fn follow(&mut self, valid: impl Iterator<Item = f64>) {
        let Some(patience) = self.schedule.lr_patience else { return };
        let (mut best, mut others) = (f64::NEG_INFINITY, 0);
        self.reductions = 0;
        for metric in valid {
            if metric > best * (1.0 + BETTER.copysign(best)) {
                (best, others) = (metric, 0);
            } else {
                others += 1;
            }
            if others > patience {
                self.reductions += 1;
                others = 0;
            }
        }
    }
}
