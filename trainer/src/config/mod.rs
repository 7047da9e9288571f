//! Everything that determines a training run, as command-line options and as it is stored in every checkpoint.

use std::collections::BTreeMap;

use gsplit_kernels::schedule::Fanouts;
use serde::{Deserialize, Serialize};

mod model;
mod optimizer;
mod task;

pub use model::{ModelConfig, ModelKind};
pub use optimizer::OptimizerConfig;
pub use task::{TaskConfig, TaskKind};

use crate::{Error, Result};

/// Ranks are threads of one process: more than this is a mistake, and would exhaust it.
const MAX_RANKS: usize = 256;

/// Who computes what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Parallelism {
    /// GSplit: each vertex of a layer is computed by the rank that owns its part; ranks exchange hidden rows
    Split,
    /// Each rank takes a share of the seeds and computes their whole neighbourhoods
    Data,
    /// One rank does everything
    Single,
}

impl std::fmt::Display for Parallelism {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Split => "split",
            Self::Data => "data",
            Self::Single => "single",
        })
    }
}

/// Where ranks compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// Threads of this process
    Cpu,
}

/// A training run. Two runs with the same values, dataset, partition map and threads have the same losses, to the bit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Who computes what
    #[arg(long, value_enum, default_value = "split")]
    pub parallelism: Parallelism,
    /// Number of ranks [default: 1 for single, else 4]
    #[arg(long)]
    pub ranks: Option<usize>,
    /// Where ranks compute (GPUs are not supported yet)
    #[arg(long, value_enum, default_value = "cpu")]
    pub device: Device,
    /// Key of the partition map that split uses [default: the only one with as many parts as ranks]
    #[arg(long, value_name = "KEY", value_parser = gsplit_store::artifact_key)]
    pub partition: Option<String>,
    /// Which model
    #[command(flatten)]
    pub model: ModelConfig,
    /// In-neighbours sampled for each vertex, from the seeds' layer downwards; `all` takes every one
    #[arg(long, default_value = "15,10,5")]
    pub fanouts: Fanouts,
    /// Seeds of a mini-batch, over all ranks together
    #[arg(long, default_value_t = 1024)]
    pub batch_size: usize,
    /// Passes over the training split
    #[arg(long, default_value_t = 10)]
    pub epochs: u32,
    /// How it is updated
    #[command(flatten)]
    pub optimizer: OptimizerConfig,
    /// What is learnt
    #[command(flatten)]
    pub task: TaskConfig,
    /// Seed of every random choice: weights, batches, samples, dropout
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Evaluate on the valid and test splits every N epochs, and after the last; 0 for never
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub eval_every: u32,
}

impl TrainConfig {
    /// The number of ranks that the options ask for.
    pub fn num_ranks(&self) -> usize {
        self.ranks.unwrap_or(if self.parallelism == Parallelism::Single { 1 } else { 4 })
    }

    /// Refuses options that contradict each other.
    pub fn check(&self) -> Result<()> {
        let (fanouts, layers) = (self.fanouts.len(), self.model.layers);
        let problem = if fanouts != layers {
            format!(
                "--layers {layers} needs {layers} fanouts, --fanouts {} has {fanouts}: give one fanout a layer",
                self.fanouts
            )
        } else if self.num_ranks() == 0 || (self.parallelism == Parallelism::Single && self.num_ranks() > 1) {
            format!(
                "--parallelism {} cannot run on --ranks {}: single needs 1, the others 1 or more",
                self.parallelism,
                self.num_ranks()
            )
        } else if self.num_ranks() > MAX_RANKS {
            format!("--ranks {}: expected at most {MAX_RANKS}", self.num_ranks())
        } else if self.batch_size == 0 || self.batch_size > u32::MAX as usize {
            format!("--batch-size {}: expected 1 to {}", self.batch_size, u32::MAX)
        } else if self.epochs == 0 {
            "--epochs 0: expected 1 or more".to_string()
        } else if let Some(problem) =
            self.model.problem().or_else(|| self.optimizer.problem()).or_else(|| self.task.problem())
        {
            problem
        } else {
            return Ok(());
        };
        Err(Error::Option(problem))
    }

    /// Names the first option whose change would make a resumed run another run. The number of epochs may grow, and
    /// evaluation changes nothing; parallelism and ranks would change the order of sums, so the resumed losses would no
    /// longer be exactly those of an uninterrupted run. (The partition map is compared by its content, elsewhere.)
    pub fn difference(&self, other: &Self) -> Option<String> {
        let neutral = |config: &Self| {
            let ranks = Some(config.num_ranks());
            Self { epochs: 0, eval_every: 0, ranks, partition: None, ..config.clone() }
        };
        let [mine, theirs] = [self, other].map(|config| options(&neutral(config)));
        mine.iter().find(|&(name, value)| theirs.get(name) != Some(value)).map(|(name, value)| {
            let theirs = theirs.get(name).unwrap_or(&serde_json::Value::Null);
            format!("--{name} is {value}, the checkpoint has {theirs}")
        })
    }
}

/// The options of `config` by their names on the command line.
fn options(config: &TrainConfig) -> BTreeMap<String, serde_json::Value> {
    fn add(name: &str, value: serde_json::Value, to: &mut BTreeMap<String, serde_json::Value>) {
        match value {
            serde_json::Value::Object(fields) => fields.into_iter().for_each(|(name, value)| add(&name, value, to)),
            value => {
                let name = if name == "kind" { "model" } else { name };
                to.insert(name.replace('_', "-"), value);
            }
        }
    }
    let mut options = BTreeMap::new();
    add("", serde_json::to_value(config).unwrap_or_default(), &mut options);
    options
}
