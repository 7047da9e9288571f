//! All options that determine a training run, on the command line and as stored in every
//! checkpoint.

use std::collections::BTreeMap;

use gsplit_sample::{Frontiers, Ownership};
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod cooperative;
mod data;
mod draw;
mod model;
mod optimizer;
mod parallelism;
mod placement;
mod run;
mod schedule;
mod storage;
mod system;
mod task;

pub use cooperative::CooperativeConfig;
pub use data::DataConfig;
pub use draw::{DrawConfig, DrawFactor, DrawKind};
pub use model::{Dtype, FeatureNorm, JumpingKnowledge, ModelConfig, ModelKind, NormKind};
pub use optimizer::{Betas, OptimizerConfig, OptimizerKind};
pub use parallelism::Parallelism;
pub use placement::RowPlacement;
pub use run::RunConfig;
pub use schedule::{ScheduleConfig, ScheduleKind};
pub use storage::{FeatureStorage, TopologyStorage};
pub use system::{Device, GpuList, Products, SystemConfig};
pub use task::{ClassWeights, NumberLoss, ScorerKind, TaskConfig, TaskKind};

use crate::{Error, Result};

/// Ranks are threads of one process: more than this is a mistake and would exhaust it.
const MAX_RANKS: usize = 256;

/// A training run: what is learnt, by which model, on which machines, and how. Runs with equal
/// options, dataset, partition map and threads have the same losses, to the bit.
///
/// A configuration file has this as TOML, one table per field. Options that a file or a command
/// line leaves out have the values of [`Config::default`]; an option that is `None` there follows
/// from others ([`Config::effective`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The task, and the samples of a mini-batch
    #[cfg_attr(feature = "cli", command(flatten))]
    pub data: DataConfig,
    /// The model
    #[cfg_attr(feature = "cli", command(flatten))]
    pub model: ModelConfig,
    /// Ranks, devices and memory
    #[cfg_attr(feature = "cli", command(flatten))]
    pub system: SystemConfig,
    /// Epochs, optimizer, scores and outputs
    #[cfg_attr(feature = "cli", command(flatten))]
    pub run: RunConfig,
}

impl Config {
    /// Names of the options that differ from [`Self::default`], e.g. `model.hidden` with its table.
    pub fn changed(&self) -> Vec<String> {
        let defaults = Self::default().options();
        let options = self.options().into_iter();
        let changed = options.filter(|(flag, option)| defaults.get(flag) != Some(option));
        changed.map(|(_, ConfigOption { table, key, .. })| format!("{table}.{key}")).collect()
    }

    /// Number of ranks, from the options or by default.
    pub fn num_ranks(&self) -> usize {
        self.system.ranks.unwrap_or(if self.system.parallelism.takes_ranks() { 4 } else { 1 })
    }

    /// Number of layers, from the lowest, whose rows come from the ranks that own them.
    pub fn split_layers(&self) -> usize {
        if self.system.parallelism.splits() {
            self.system.split_layers.unwrap_or(self.model.layers)
        } else {
            0
        }
    }

    /// Owners of each frontier's rows; `assignment` is the partition map, if one distributes the
    /// seeds.
    pub(crate) fn frontiers<'a>(&self, assignment: Option<&'a [u16]>) -> Frontiers<'a> {
        let layers = self.model.layers;
        match assignment {
            Some(map) => Frontiers::split_below(map, layers, self.split_layers()),
            None => Frontiers::all(Ownership::Mine, layers),
        }
    }

    /// Number of parts that the partition map must have.
    pub fn num_parts(&self) -> usize {
        if self.system.parallelism.cooperates() { self.num_ranks() } else { self.ranks_of_group() }
    }

    /// Number of ranks in each group.
    pub fn ranks_of_group(&self) -> usize {
        self.num_ranks() / self.system.groups.max(1)
    }

    /// Refuses options that contradict each other, and options that would have no effect.
    pub fn check(&self) -> Result<()> {
        self.check_values()?;
        let unread = self
            .model
            .unread_problem()
            .or_else(|| self.data.task.unread_problem())
            .or_else(|| self.map_problem());
        unread.map_or(Ok(()), |problem| Err(Error::Option(problem)))
    }

    /// Refuses options that contradict each other. Checkpoints may hold options without effect.
    pub(crate) fn check_values(&self) -> Result<()> {
        let (fanouts, layers) = (self.data.fanouts.len(), self.model.layers);
        let problem = if fanouts != layers && !self.system.parallelism.cooperates() {
            format!(
                "--layers {layers} needs {layers} fanouts, --fanouts {} has {fanouts}: give one \
                 fanout a layer",
                self.data.fanouts
            )
        } else if self.num_ranks() == 0 {
            "--ranks 0: expected 1 or more, one for each GPU or for each few cores".to_string()
        } else if !self.system.parallelism.takes_ranks() && self.num_ranks() > 1 {
            format!(
                "--parallelism {} is one rank, --ranks asks for {}: leave one of them out",
                self.system.parallelism,
                self.num_ranks()
            )
        } else if let Some(problem) = (self.misplaced())
            .or_else(|| self.grouping_problem())
            .or_else(|| self.columns_problem())
            .or_else(|| self.cooperative_problem())
            .or_else(|| self.system.problem())
            .or_else(|| self.run.problem())
        {
            problem
        } else if self.run.trial.is_some() && self.system.parallelism.cooperates() {
            "--trial: --parallelism cooperative makes all its mini-batches before the first: leave \
             it out"
                .to_string()
        } else if self.run.optimizer.staleness > 0 && self.system.device == Device::Cuda {
            format!(
                "--staleness {}: GPUs update at once: leave it out, or choose --device cpu",
                self.run.optimizer.staleness
            )
        } else if let Some(problem) = self.draw_problem() {
            problem
        } else if self.num_ranks() > MAX_RANKS {
            format!("--ranks {}: expected at most {MAX_RANKS}", self.num_ranks())
        } else if self.data.batch_size == 0 || self.data.batch_size > u32::MAX as usize {
            format!("--batch-size {}: expected 1 to {}", self.data.batch_size, u32::MAX)
        } else if self.run.epochs == 0 {
            "--epochs 0: expected 1 or more".to_string()
        } else if let Some(problem) = (self.model.problem())
            .or_else(|| self.run.optimizer.problem())
            .or_else(|| self.data.task.problem())
            .or_else(|| self.run.schedule.problem(self.run.optimizer.lr))
            .or_else(|| self.stopping_problem())
        {
            problem
        } else {
            return Ok(());
        };
        Err(Error::Option(problem))
    }

    /// Returns the problem with the first option that is given and that only other choices read, if
    /// any.
    fn misplaced(&self) -> Option<String> {
        let Self { data, system, run, .. } = self;
        let (optimizer, schedule, made) = (&run.optimizer, &run.schedule, &system.cooperative);
        let (splits, cooperates) = (system.parallelism.splits(), system.parallelism.cooperates());
        let (sgd, plateau) =
            (optimizer.kind == OptimizerKind::Sgd, schedule.kind == ScheduleKind::Plateau);
        let falls = matches!(schedule.kind, ScheduleKind::Linear | ScheduleKind::Cosine);
        let (split, cooperative) =
            ("--parallelism split or cooperative", "--parallelism cooperative");
        unread(&[
            ("groups", system.groups > 1, splits, split),
            ("split-layers", system.split_layers.is_some(), splits, split),
            ("batches-per-epoch", made.batches_per_epoch.is_some(), cooperates, cooperative),
            ("expansion-hops", made.expansion_hops.is_some(), cooperates, cooperative),
            ("expansion-fanout", made.expansion_fanout.is_some(), cooperates, cooperative),
            (
                "draw-factor",
                data.draw.draw_factor.is_some(),
                self.draws_locally(),
                "--draw locality",
            ),
            ("momentum", optimizer.momentum.is_some(), sgd, "--optimizer sgd"),
            ("nesterov", optimizer.nesterov, sgd, "--optimizer sgd"),
            ("betas", optimizer.betas.is_some(), !sgd, "--optimizer adam and adamw"),
            ("adam-epsilon", optimizer.adam_epsilon.is_some(), !sgd, "--optimizer adam and adamw"),
            (
                "decay-epochs",
                schedule.decay_epochs.is_some(),
                falls,
                "--schedule linear and cosine",
            ),
            (
                "min-lr",
                schedule.min_lr.is_some(),
                falls || plateau,
                "--schedule linear, cosine and plateau",
            ),
            ("gamma", schedule.gamma.is_some(), plateau, "--schedule plateau"),
            ("lr-patience", schedule.lr_patience.is_some(), plateau, "--schedule plateau"),
        ])
    }

    /// Returns the problem with the groups of ranks and the number of split layers, if any.
    fn grouping_problem(&self) -> Option<String> {
        let (groups, ranks) = (self.system.groups, self.num_ranks());
        if groups == 0 || !ranks.is_multiple_of(groups) {
            return Some(format!(
                "--groups {groups}: expected a number that divides --ranks {ranks}: every group \
                 has as many ranks"
            ));
        }
        let (split_layers, layers) = (self.system.split_layers?, self.model.layers);
        (split_layers > layers).then(|| {
            format!(
                "--split-layers {split_layers}: expected at most {layers}, the number of layers"
            )
        })
    }

    /// Returns the problem with the options that depend on the valid metric, if any.
    fn stopping_problem(&self) -> Option<String> {
        if self.run.patience == Some(0) {
            Some("--patience 0: expected 1 or more".to_string())
        } else {
            let user = self.watches_valid().filter(|_| self.run.eval_every == 0)?;
            Some(format!(
                "{user} needs evaluations, --eval-every 0 makes none: give --eval-every 1 or more"
            ))
        }
    }

    /// The option that makes the run depend on the valid metric, if there is one.
    pub fn watches_valid(&self) -> Option<&'static str> {
        match self.run.schedule.kind {
            ScheduleKind::Plateau => Some("--schedule plateau"),
            _ => self.run.patience.map(|_| "--patience"),
        }
    }

    /// Returns this configuration with defaults for all options that are not given.
    pub fn effective(&self) -> Self {
        let mut config = self.clone();
        let Self { data, model, system, run } = &mut config;
        (data.draw, data.task) = (data.draw.effective(), data.task.effective());
        *model = model.effective();
        (run.optimizer, run.schedule) =
            (run.optimizer.effective(), run.schedule.effective(run.epochs));
        system.ranks = Some(self.num_ranks());
        system.split_layers = system.parallelism.splits().then(|| self.split_layers());
        if system.parallelism.cooperates() {
            system.cooperative = system.cooperative.effective(system.groups);
        }
        config
    }

    /// Returns this configuration without the options that only say where and how fast it runs, and
    /// what it writes: the configuration of the model, as checkpoints store it.
    pub fn of_model(&self) -> Self {
        let (system, run) = (&self.system, &self.run);
        let system = SystemConfig {
            parallelism: system.parallelism,
            split_layers: system.split_layers,
            ranks: system.ranks,
            groups: system.groups,
            device: system.device,
            partition: system.partition.clone(),
            cooperative: system.cooperative.clone(),
            ..SystemConfig::default()
        };
        let run = RunConfig {
            epochs: run.epochs,
            optimizer: run.optimizer.clone(),
            schedule: run.schedule.clone(),
            seed: run.seed,
            eval_every: run.eval_every,
            patience: run.patience,
            ..RunConfig::default()
        };
        Self { data: self.data.clone(), model: self.model.clone(), system, run }
    }

    /// Names the first option whose change would make a resumed run another run. The number of
    /// epochs may grow if the learning rate does not depend on it. Evaluation and early stopping
    /// change nothing, except with the plateau schedule, which follows the evaluations. Parallelism
    /// and ranks would change the order of sums, so the resumed losses would no longer be exactly
    /// the losses of an uninterrupted run. (The partition map's content and the metric are compared
    /// elsewhere.)
    pub fn difference(&self, other: &Self) -> Option<String> {
        let neutral = |config: &Self| {
            let mut config = config.effective().of_model();
            let run = &mut config.run;
            if run.schedule.kind != ScheduleKind::Plateau {
                run.eval_every = 0;
            }
            (run.epochs, run.patience) = (0, None);
            (config.system.partition, config.data.task.metric) = (None, None);
            // Computes the same losses, to the bit, in another way.
            config.model.checkpoint_activations = false;
            config
        };
        let [mine, theirs] = [self, other].map(|config| neutral(config).options());
        let their = |name: &str| theirs.get(name).map_or(&Value::Null, |theirs| &theirs.value);
        let differing = mine.iter().filter(|(name, option)| *their(name) != option.value);
        // An option that only one of the two has follows from another one, so it is named last.
        let first =
            differing.min_by_key(|(name, option)| option.value.is_null() || their(name).is_null());
        first.map(|(name, option)| {
            format!("--{name} is {}, the checkpoint has {}", option.value, their(name))
        })
    }

    /// The options by their names on the command line.
    pub fn options(&self) -> BTreeMap<String, ConfigOption> {
        /// Adds the options of the table `path` with these fields.
        fn add(
            path: &[&str],
            fields: &serde_json::Map<String, Value>,
            options: &mut BTreeMap<String, ConfigOption>,
        ) {
            for (key, value) in fields {
                match value {
                    Value::Object(fields) => add(&[path, &[key]].concat(), fields, options),
                    value => {
                        // The field `kind` has the name of its table on the command line, e.g.
                        // --model sage.
                        let flag = if key == "kind" {
                            path.last().copied().unwrap_or_default()
                        } else {
                            key
                        };
                        let option = ConfigOption {
                            table: path.join("."),
                            key: key.clone(),
                            value: value.clone(),
                        };
                        options.insert(flag.replace('_', "-"), option);
                    }
                }
            }
        }
        let mut options = BTreeMap::new();
        if let Ok(Value::Object(fields)) = serde_json::to_value(self) {
            add(&[], &fields, &mut options);
        }
        options
    }
}

/// An option as stored in configuration files and checkpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigOption {
    /// Its table, e.g. `run.optimizer`.
    pub table: String,
    /// Its name in the table.
    pub key: String,
    /// Its value; null if it is not given.
    pub value: Value,
}

/// The name of `value`, a variant of an enum, in files and on the command line.
pub fn name_of(value: &impl Serialize) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|value| value.as_str().map(str::to_string))
        .unwrap_or_default()
}

/// Returns the problem with the first of these options that is given and not read: its name,
/// whether it is given, whether it is read, and the choice that reads it.
fn unread(options: &[(&str, bool, bool, &str)]) -> Option<String> {
    let (name, _, _, by) =
        options.iter().find(|(_, is_given, is_read, _)| *is_given && !is_read)?;
    Some(format!("--{name} is for {by}: leave it out, or choose that"))
}
