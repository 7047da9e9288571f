//! All options that determine a training run, on the command line and as stored in every checkpoint.

use std::collections::BTreeMap;

use clap::{Args as _, FromArgMatches as _};
use gsplit_kernels::schedule::Fanouts;
use gsplit_sample::{Frontiers, Ownership};
use serde::{Deserialize, Serialize};

mod cooperative;
mod draw;
mod model;
mod optimizer;
mod parallelism;
mod schedule;
mod task;

pub use cooperative::CooperativeConfig;
pub use draw::{DrawConfig, DrawFactor, DrawKind};
pub use model::{Dtype, FeatureNorm, JumpingKnowledge, ModelConfig, ModelKind, NormKind};
pub use optimizer::{OptimizerConfig, OptimizerKind};
pub use parallelism::Parallelism;
pub use schedule::{ScheduleConfig, ScheduleKind};
pub use task::{ClassWeights, NumberLoss, ScorerKind, TaskConfig, TaskKind};

use crate::{Error, Result};

/// Ranks are threads of one process: more than this is a mistake and would exhaust it.
const MAX_RANKS: usize = 256;

/// Device that ranks compute on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// Threads of this process
    #[default]
    Cpu,
    /// NVIDIA GPUs, one per rank
    #[value(alias = "gpu")]
    Cuda,
}

/// A training run. Runs with equal options, dataset, partition map and threads have the same losses, to the bit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Division of the work between ranks [default: single; split where several ranks are asked for, e.g. by --ranks,
    /// --partition or several GPUs]
    #[arg(long, value_enum, default_value = "split", hide_default_value = true)]
    pub parallelism: Parallelism,
    /// With split, the number of layers that are split, from the lowest: their rows come from the ranks that own them.
    /// Above them, each rank computes everything that its own seeds need, and no rows move. With 1 only feature rows
    /// move; losses are the same for any number [default: all layers]
    #[arg(long, value_name = "N")]
    pub split_layers: Option<usize>,
    /// Number of ranks [default: one per GPU; on the CPU 1 for single, else 4]
    #[arg(long)]
    pub ranks: Option<usize>,
    /// With split, the number of groups of ranks: each group takes an equal share of every mini-batch and splits it
    /// over its own ranks, by a partition map with one part per rank of a group. On several hosts, give the number of
    /// hosts: rows then stay within a host, and only gradients cross. Losses are the same for any number. With
    /// cooperative, the number of servers: the map has a part for every rank (gsplit partition --servers)
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub groups: usize,
    /// Device that ranks compute on
    #[arg(long, value_enum, default_value = "cpu")]
    pub device: Device,
    /// Key of the partition map for split and --placement partitioned [default: the only one with as many parts as
    /// ranks, or as ranks of a group]
    #[arg(long, value_name = "KEY", value_parser = gsplit_store::stored_key)]
    pub partition: Option<String>,
    /// Options of mini-batches that are made once
    #[command(flatten)]
    pub cooperative: CooperativeConfig,
    /// The model
    #[command(flatten)]
    pub model: ModelConfig,
    /// In-neighbours sampled for each vertex, from the seeds' layer downwards; `all` takes every one
    #[arg(long, default_value = "15,10,5")]
    pub fanouts: Fanouts,
    /// Draw in-neighbours with probabilities that grow with this edge column, e.g. `weight`, without replacement; edges with 0 are left
    /// out of the graph. Sums are corrected for it. Always drawn on the host, also for GPUs [default: all with the same probability]
    #[arg(long, value_name = "COLUMN")]
    pub draw_by: Option<String>,
    /// Options of the drawing of in-neighbours
    #[command(flatten)]
    pub draw: DrawConfig,
    /// Multiply each in-neighbour's row by this edge column where rows are summed, in evaluation and `infer` too: for sage, gcn, resgcn,
    /// sgc and gin. Means divide by the number of edges; the degrees of gcn, resgcn and sgc are sums of the weights over the whole graph
    #[arg(long, value_name = "COLUMN")]
    pub edge_weights: Option<String>,
    /// Seeds of a mini-batch, over all ranks together
    #[arg(long, default_value_t = 1024)]
    pub batch_size: usize,
    /// Passes over the training split
    #[arg(long, default_value_t = 10)]
    pub epochs: u32,
    /// Options of the optimizer
    #[command(flatten)]
    pub optimizer: OptimizerConfig,
    /// Options of the learning-rate schedule
    #[command(flatten)]
    pub schedule: ScheduleConfig,
    /// The task
    #[command(flatten)]
    pub task: TaskConfig,
    /// Seed of every random choice: weights, batches, samples, dropout
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Evaluate on the valid and test splits every N epochs, and after the last; 0 for never. Ranks that are threads
    /// share the work; of ranks that are processes, only rank 0 evaluates
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub eval_every: u32,
    /// Evaluate on sampled neighbourhoods: this many in-neighbours per vertex, from the scored vertices' layer downwards, the same in
    /// every evaluation. For graphs whose layers are too large for exact evaluation; scores are then estimates [default: exact]
    #[arg(long, value_name = "FANOUTS")]
    pub eval_fanouts: Option<Fanouts>,
    /// Stop after this many evaluations in a row without an improvement: a higher valid metric (for an error, a lower
    /// one), or an equal one with a lower valid loss, unless it is perfect
    #[arg(long, value_name = "N")]
    pub patience: Option<u32>,
    /// Least rise of the valid metric (of an error: fall) that counts, for --patience; above 0, a lower loss does not count
    #[arg(long, value_name = "DELTA", default_value_t = 0.0)]
    pub min_delta: f64,
}

impl TrainConfig {
    /// The configuration without any option: one rank. `None` only if an option has lost its default.
    pub fn defaults() -> Option<Self> {
        let given = Self::augment_args(clap::Command::new("train")).try_get_matches_from(["train"]).ok()?;
        let config = Self::from_arg_matches(&given).ok()?;
        Some(Self { parallelism: Parallelism::Single, ..config })
    }

    /// Names of the options that differ from [`Self::defaults`], e.g. `model.hidden` with its table.
    pub fn changed(&self) -> Vec<String> {
        let defaults = Self::defaults().map(|config| config.options()).unwrap_or_default();
        let options = self.options().into_iter();
        let changed = options.filter(|(flag, option)| defaults.get(flag) != Some(option));
        changed.map(|(_, ConfigOption { table, key, .. })| [table.as_slice(), &[key]].concat().join(".")).collect()
    }

    /// Number of ranks, from the options or by default.
    pub fn num_ranks(&self) -> usize {
        self.ranks.unwrap_or(if self.parallelism.row().several { 4 } else { 1 })
    }

    /// Number of layers, from the lowest, whose rows come from the ranks that own them.
    pub fn split_layers(&self) -> usize {
        if self.parallelism.splits() { self.split_layers.unwrap_or(self.model.layers) } else { 0 }
    }

    /// Owners of each frontier's rows; `assignment` is the partition map, if one distributes the seeds.
    pub(crate) fn frontiers<'a>(&self, assignment: Option<&'a [u16]>) -> Frontiers<'a> {
        let layers = self.model.layers;
        match assignment {
            Some(map) => Frontiers::split_below(map, layers, self.split_layers()),
            None => Frontiers::all(Ownership::Mine, layers),
        }
    }

    /// Number of parts that the partition map must have.
    pub fn num_parts(&self) -> usize {
        if self.parallelism.cooperates() { self.num_ranks() } else { self.ranks_of_group() }
    }

    /// Number of ranks in each group.
    pub fn ranks_of_group(&self) -> usize {
        self.num_ranks() / self.groups.max(1)
    }

    /// Refuses options that contradict each other, and options that would have no effect.
    pub fn check(&self) -> Result<()> {
        self.check_values()?;
        let unread = self.model.unread_problem().or_else(|| self.task.unread_problem()).or_else(|| self.map_problem());
        unread.map_or(Ok(()), |problem| Err(Error::Option(problem)))
    }

    /// Refuses options that contradict each other. Checkpoints may hold options without effect.
    pub(crate) fn check_values(&self) -> Result<()> {
        let (fanouts, layers) = (self.fanouts.len(), self.model.layers);
        let problem = if fanouts != layers && !self.parallelism.cooperates() {
            format!(
                "--layers {layers} needs {layers} fanouts, --fanouts {} has {fanouts}: give one fanout a layer",
                self.fanouts
            )
        } else if self.num_ranks() == 0 {
            "--ranks 0: expected 1 or more, one for each GPU or for each few cores".to_string()
        } else if !self.parallelism.row().several && self.num_ranks() > 1 {
            format!(
                "--parallelism {} is one rank, --ranks asks for {}: leave one of them out",
                self.parallelism,
                self.num_ranks()
            )
        } else if let Some(problem) = (self.grouping_problem())
            .or_else(|| self.splitting_problem())
            .or_else(|| self.columns_problem())
            .or_else(|| self.cooperative_problem())
        {
            problem
        } else if let Some(problem) = self.evaluation_problem() {
            problem
        } else if self.optimizer.staleness > 0 && self.device == Device::Cuda {
            format!(
                "--staleness {}: GPUs update at once: leave it out, or choose --device cpu",
                self.optimizer.staleness
            )
        } else if let Some(problem) = self.draw_problem() {
            problem
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
        } else if let Some(problem) = self.schedule.problem(self.optimizer.lr).or_else(|| self.stopping_problem()) {
            problem
        } else {
            return Ok(());
        };
        Err(Error::Option(problem))
    }

    /// Returns the problem with the groups of ranks, if any.
    fn grouping_problem(&self) -> Option<String> {
        let (groups, ranks) = (self.groups, self.num_ranks());
        if groups > 1 && !self.parallelism.splits() {
            Some(format!(
                "--groups {groups} is for --parallelism split or cooperative: under {} leave it out",
                self.parallelism
            ))
        } else if groups == 0 || !ranks.is_multiple_of(groups) {
            Some(format!(
                "--groups {groups}: expected a number that divides --ranks {ranks}: every group has as many ranks"
            ))
        } else {
            None
        }
    }

    /// Returns the problem with the number of split layers, if any.
    fn splitting_problem(&self) -> Option<String> {
        let (split_layers, layers) = (self.split_layers?, self.model.layers);
        if !self.parallelism.splits() {
            let parallelism = self.parallelism;
            Some(format!(
                "--split-layers {split_layers} is for --parallelism split or cooperative: under {parallelism} leave it out"
            ))
        } else if split_layers > layers {
            Some(format!("--split-layers {split_layers}: expected at most {layers}, the number of layers"))
        } else {
            None
        }
    }

    /// Returns the problem with sampled evaluation, if any.
    fn evaluation_problem(&self) -> Option<String> {
        let (fanouts, layers) = (self.eval_fanouts.as_ref()?, self.model.layers);
        if fanouts.len() != layers {
            let given = fanouts.len();
            Some(format!("--eval-fanouts {fanouts}: --layers {layers} needs {layers} fanouts, it has {given}"))
        } else if self.task.is_link() {
            Some("--eval-fanouts: the scores of links take the rows of all vertices: leave it out".to_string())
        } else if self.eval_every == 0 {
            Some("--eval-fanouts: --eval-every 0 makes no evaluations: leave it out".to_string())
        } else {
            None
        }
    }

    /// Returns the problem with the options that depend on the valid metric, if any.
    fn stopping_problem(&self) -> Option<String> {
        if self.patience == Some(0) {
            Some("--patience 0: expected 1 or more".to_string())
        } else if self.min_delta < 0.0 || !self.min_delta.is_finite() {
            Some(format!("--min-delta {}: expected a number from 0", self.min_delta))
        } else if self.min_delta > 0.0 && self.patience.is_none() {
            Some("--min-delta is for --patience: leave it out, or give both".to_string())
        } else {
            let user = self.watches_valid().filter(|_| self.eval_every == 0)?;
            Some(format!("{user} needs evaluations, --eval-every 0 makes none: give --eval-every 1 or more"))
        }
    }

    /// The option that makes the run depend on the valid metric, if there is one.
    pub fn watches_valid(&self) -> Option<&'static str> {
        match self.schedule.kind {
            ScheduleKind::Plateau => Some("--schedule plateau"),
            _ => self.patience.map(|_| "--patience"),
        }
    }

    /// Returns this configuration with defaults for all options that are not given.
    pub fn effective(&self) -> Self {
        Self {
            ranks: Some(self.num_ranks()),
            split_layers: self.parallelism.splits().then(|| self.split_layers()),
            cooperative: match self.parallelism.cooperates() {
                true => self.cooperative.effective(self.groups),
                false => self.cooperative.clone(),
            },
            optimizer: self.optimizer.effective(),
            schedule: self.schedule.effective(self.epochs),
            draw: self.draw.effective(),
            task: self.task.effective(),
            model: self.model.effective(),
            ..self.clone()
        }
    }

    /// Names the first option whose change would make a resumed run another run. The number of epochs may grow if the
    /// learning rate does not depend on it. Evaluation and early stopping change nothing, except with the plateau
    /// schedule, which follows the evaluations. Parallelism and ranks would change the order of sums, so the resumed
    /// losses would no longer be exactly the losses of an uninterrupted run. (The partition map's content and the
    /// metric are compared elsewhere.)
    pub fn difference(&self, other: &Self) -> Option<String> {
        let neutral = |config: &Self| {
            let effective = config.effective();
            let (eval_every, eval_fanouts) = match config.schedule.kind {
                ScheduleKind::Plateau => (config.eval_every, config.eval_fanouts.clone()),
                _ => (0, None),
            };
            // Computes the same losses, to the bit, in another way.
            let model = ModelConfig { checkpoint_activations: false, ..effective.model.clone() };
            Self {
                epochs: 0,
                eval_every,
                eval_fanouts,
                patience: None,
                min_delta: 0.0,
                partition: None,
                task: TaskConfig { metric: None, ..effective.task.clone() },
                model,
                ..effective
            }
        };
        let [mine, theirs] = [self, other].map(|config| neutral(config).options());
        let their = |name: &str| theirs.get(name).map_or(&serde_json::Value::Null, |theirs| &theirs.value);
        let differing = mine.iter().filter(|(name, option)| *their(name) != option.value);
        // An option that only one of the two has follows from another one, so it is named last.
        let first = differing.min_by_key(|(name, option)| option.value.is_null() || their(name).is_null());
        first.map(|(name, option)| format!("--{name} is {}, the checkpoint has {}", option.value, their(name)))
    }

    /// The options by their names on the command line.
    pub fn options(&self) -> BTreeMap<String, ConfigOption> {
        let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(self) else { return BTreeMap::new() };
        let mut options = BTreeMap::new();
        for (key, value) in fields {
            match value {
                serde_json::Value::Object(fields) => options.extend(fields.into_iter().map(|(field, value)| {
                    // The field `kind` has the name of its table on the command line, e.g. --model sage.
                    let flag = if field == "kind" { &key } else { &field }.replace('_', "-");
                    (flag, ConfigOption { table: Some(key.clone()), key: field, value })
                })),
                value => drop(options.insert(key.replace('_', "-"), ConfigOption { table: None, key, value })),
            }
        }
        options
    }
}

/// An option as stored in configuration files and checkpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigOption {
    /// Its table, if it is in one.
    pub table: Option<String>,
    /// Its name in the table.
    pub key: String,
    /// Its value; null if it is not given.
    pub value: serde_json::Value,
}
