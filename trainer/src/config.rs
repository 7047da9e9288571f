//! Everything that determines a training run, as command-line options and as it is stored in every checkpoint.

use gsplit_kernels::schedule::Fanouts;
use serde::{Deserialize, Serialize};

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

/// The kinds of layers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ModelKind {
    /// GraphSAGE with the mean aggregator (Hamilton et al., 2017)
    Sage,
    /// Graph attention network (Veličković et al., 2018)
    Gat,
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
    /// Kind of layers
    #[arg(long, value_enum, default_value = "sage")]
    pub model: ModelKind,
    /// Number of layers; one fanout is needed for each
    #[arg(long, default_value_t = 3)]
    pub layers: usize,
    /// Width of the hidden layers
    #[arg(long, default_value_t = 256)]
    pub hidden: usize,
    /// Attention heads of GAT's hidden layers, a divisor of --hidden; the last layer has one
    #[arg(long, default_value_t = 4)]
    pub heads: usize,
    /// In-neighbours sampled for each vertex, from the seeds' layer downwards; `all` takes every one
    #[arg(long, default_value = "15,10,5")]
    pub fanouts: Fanouts,
    /// Seeds of a mini-batch, over all ranks together
    #[arg(long, default_value_t = 1024)]
    pub batch_size: usize,
    /// Passes over the training split
    #[arg(long, default_value_t = 10)]
    pub epochs: u32,
    /// Learning rate of Adam
    #[arg(long, default_value_t = 1e-3)]
    pub lr: f64,
    /// Share of the hidden values that dropout zeroes
    #[arg(long, default_value_t = 0.5)]
    pub dropout: f64,
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
        let fanouts = self.fanouts.len();
        let problem = if fanouts != self.layers {
            format!(
                "--layers {} needs {0} fanouts, --fanouts {} has {fanouts}: give one fanout a layer",
                self.layers, self.fanouts
            )
        } else if self.layers > usize::from(u8::MAX) {
            format!("--layers {}: expected at most {}", self.layers, u8::MAX)
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
        } else if self.hidden == 0 || self.hidden > 1 << 16 {
            format!("--hidden {}: expected 1 to 65536", self.hidden)
        } else if self.model == ModelKind::Gat && (self.heads == 0 || !self.hidden.is_multiple_of(self.heads)) {
            format!("--heads {} does not divide --hidden {}: choose a divisor", self.heads, self.hidden)
        } else if !(self.lr > 0.0 && self.lr.is_finite()) {
            format!("--lr {}: expected a positive number", self.lr)
        } else if !(0.0..1.0).contains(&self.dropout) {
            format!("--dropout {}: expected at least 0 and below 1", self.dropout)
        } else if self.epochs == 0 {
            "--epochs 0: expected 1 or more".to_string()
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
        let texts = [self, other].map(|config| serde_json::to_value(neutral(config)));
        let [Ok(serde_json::Value::Object(mine)), Ok(serde_json::Value::Object(theirs))] = texts else { return None };
        mine.iter().find(|&(name, value)| theirs.get(name) != Some(value)).map(|(name, value)| {
            let theirs = theirs.get(name).unwrap_or(&serde_json::Value::Null);
            format!("--{} is {value}, the checkpoint has {theirs}", name.replace('_', "-"))
        })
    }
}
