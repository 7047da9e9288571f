//! How long a run trains, how it is scored, and what it writes.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{OptimizerConfig, ScheduleConfig};

/// How long a run trains, how it is scored, and what it writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// Passes over the training split
    #[cfg_attr(feature = "cli", arg(long, default_value_t = Self::default().epochs))]
    pub epochs: u32,
    /// Options of the optimizer
    #[cfg_attr(feature = "cli", command(flatten))]
    pub optimizer: OptimizerConfig,
    /// Options of the learning-rate schedule
    #[cfg_attr(feature = "cli", command(flatten))]
    pub schedule: ScheduleConfig,
    /// Seed of every random choice: weights, batches, samples, dropout
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0))]
    pub seed: u64,
    /// Evaluate on the valid and test splits every N epochs, and after the last; 0 for never. Ranks
    /// that are threads share the work; of ranks that are processes, only rank 0 evaluates
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = Self::default().eval_every))]
    pub eval_every: u32,
    /// Stop after this many evaluations in a row without an improvement: a higher valid metric (for
    /// an error, a lower one), or an equal one with a lower valid loss, unless it is perfect
    #[cfg_attr(feature = "cli", arg(long, value_name = "N"))]
    pub patience: Option<u32>,
    /// Write a checkpoint after every epoch into this folder; the last two and the best are kept
    #[cfg_attr(feature = "cli", arg(long, value_name = "DIR"))]
    pub checkpoint: Option<PathBuf>,
    /// Continue after the newest checkpoint in --checkpoint DIR, or start from the beginning if
    /// there is none
    #[cfg_attr(feature = "cli", arg(long))]
    pub resume: bool,
    /// Start from the parameters of the model in this checkpoint, or of the best epoch in the
    /// folder of a run, instead of random ones. With --resume they are only used until there is a
    /// checkpoint
    #[cfg_attr(feature = "cli", arg(long, value_name = "DIR"))]
    pub init: Option<PathBuf>,
    /// Write one JSON object per epoch into this file
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE.jsonl"))]
    pub log: Option<PathBuf>,
    /// Write an event file for TensorBoard into this folder
    #[cfg_attr(feature = "cli", arg(long, value_name = "DIR"))]
    pub tensorboard: Option<PathBuf>,
    /// Also write a record into the logs after every N mini-batches; 0 for never. Losses are the
    /// same with it
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = 0))]
    pub log_every: u32,
    /// End each epoch after N mini-batches, to see how fast a run would be; only logs are kept (not
    /// for cooperative)
    #[cfg_attr(feature = "cli", arg(long, value_name = "N"))]
    pub trial: Option<u32>,
    /// Seconds that a rank waits for the others, in a collective and while they start; then the run
    /// ends and names the missing ranks. Evaluation and checkpoints, for which the others wait for
    /// rank 0, do not count
    #[cfg_attr(feature = "cli", arg(long, value_name = "SECONDS", default_value_t = Self::default().timeout))]
    pub timeout: f64,
    /// Address where processes meet: host and port of rank 0 [default: MASTER_ADDR and the port
    /// after MASTER_PORT; under srun the first host and a port derived from the job's number; under
    /// mpirun on one host 127.0.0.1 and a port derived from the run's name]
    #[cfg_attr(feature = "cli", arg(long, value_name = "HOST:PORT"))]
    pub rendezvous: Option<String>,
}

/// Longest time that ranks wait for each other, in seconds: a year.
const MOST_TIMEOUT: f64 = 31_536_000.0;

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            epochs: 10,
            optimizer: OptimizerConfig::default(),
            schedule: ScheduleConfig::default(),
            seed: 0,
            eval_every: 1,
            patience: None,
            checkpoint: None,
            resume: false,
            init: None,
            log: None,
            tensorboard: None,
            log_every: 0,
            trial: None,
            timeout: 600.0,
            rendezvous: None,
        }
    }
}

impl RunConfig {
    /// Time that a rank waits for the others.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout.clamp(0.0, MOST_TIMEOUT))
    }

    /// Returns the problem with the outputs of the run and how its ranks wait for each other, if
    /// any.
    pub(super) fn problem(&self) -> Option<String> {
        if self.timeout.is_nan() || self.timeout <= 0.0 || self.timeout > MOST_TIMEOUT {
            Some(format!(
                "--timeout {}: expected seconds, above 0 and at most {MOST_TIMEOUT}",
                self.timeout
            ))
        } else if self.trial == Some(0) {
            Some("--trial 0: expected 1 or more".to_string())
        } else if self.trial.is_some() && self.checkpoint.is_some() {
            Some("--trial keeps nothing: leave it out, or --checkpoint".to_string())
        } else if self.log_every > 0 && self.log.is_none() && self.tensorboard.is_none() {
            Some(format!("--log-every {}: needs --log or --tensorboard", self.log_every))
        } else {
            None
        }
    }
}
