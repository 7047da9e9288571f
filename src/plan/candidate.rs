//! A configuration that could be run: a system with its map, number of ranks and split layers, and
//! its work per mini-batch.

use clap::ValueEnum;
use gsplit_partition::evaluate::Work;
use gsplit_trainer::{Config, Device, Parallelism, RowPlacement};
use serde::Serialize;

use super::question::Question;

/// A configuration that could be run.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    pub name: String,
    pub ranks: usize,
    /// Mini-batches per epoch.
    pub steps: usize,
    /// Seeds of the largest mini-batch divided by the mean number of seeds.
    #[serde(skip)]
    pub largest: f64,
    /// The options of `gsplit train` that run it.
    pub options: Vec<String>,
    #[serde(skip)]
    pub way: Choice,
    /// Servers that its map was made for.
    #[serde(skip)]
    pub servers: usize,
    #[serde(skip)]
    pub rows: RowPlacement,
    /// The reason why it cannot be run on the device yet, if any.
    #[serde(skip)]
    pub problem: Option<String>,
    /// The reason why its seconds cannot be compared with the others, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart: Option<String>,
    /// Key of its map.
    pub partition: Option<String>,
    /// Work of all ranks together per mini-batch.
    pub work: Work,
}

/// Division of the work between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub parallelism: Parallelism,
    pub split_layers: usize,
}

/// A system on a number of ranks.
#[derive(Clone, Copy)]
pub struct Contender<'a> {
    pub name: &'a str,
    pub ranks: usize,
    /// Mini-batches per epoch.
    pub steps: usize,
}

impl Candidate {
    /// A system on a number of ranks, with the options that run it for `question`. `rows` only
    /// matter to GPUs.
    pub fn new(
        Contender { name, ranks, steps }: Contender<'_>,
        way: Choice,
        rows: &RowPlacement,
        map: Option<(&str, u32)>,
        question: &Question,
        work: &Work,
    ) -> Self {
        let Choice { parallelism, split_layers } = way;
        let model = &question.model;
        let in_part = parallelism == Parallelism::Split && split_layers < model.layers;
        let mut options = vec![format!("--parallelism {parallelism}")];
        options.extend((ranks > 1).then(|| format!("--ranks {ranks}")));
        options.extend(in_part.then(|| format!("--split-layers {split_layers}")));
        options.extend(map.map(|(key, _)| format!("--partition {key}")));
        options.extend(
            (question.device == Device::Cuda).then(|| format!("--device cuda --placement {rows}")),
        );
        options.push(format!(
            "--model {} --layers {} --hidden {}",
            name_of(model.kind),
            model.layers,
            model.hidden
        ));
        if !parallelism.cooperates() {
            options.push(format!(
                "--fanouts {} --batch-size {}",
                question.fanouts, question.batch_size
            ));
            options.extend(question.memory.map(|memory| format!("--memory {memory}")));
        }
        Self {
            name: name.to_string(),
            ranks,
            steps,
            largest: if parallelism.cooperates() { 1.0 } else { largest_over_mean(question, work) },
            options,
            way,
            servers: map.map_or(1, |(_, servers)| servers as usize),
            rows: rows.clone(),
            problem: None,
            apart: None,
            partition: map.map(|(key, _)| key.to_string()),
            work: work.clone(),
        }
    }

    /// Whether `other` does the same work on a CPU.
    pub fn is_as(&self, other: &Self) -> bool {
        let what = |one: &Self| (one.way, one.ranks, one.partition.clone());
        what(self) == what(other)
    }

    /// `config` with the choices of this candidate.
    pub fn applied(&self, config: &Config) -> Config {
        let Choice { parallelism, split_layers } = self.way;
        let mut config = config.clone();
        let system = &mut config.system;
        (system.parallelism, system.split_layers) =
            (parallelism, parallelism.splits().then_some(split_layers));
        (system.ranks, system.partition) = (Some(self.ranks), self.partition.clone());
        config
    }
}

/// Seeds of a full mini-batch divided by the mean number of seeds in the counted ones.
fn largest_over_mean(question: &Question, work: &Work) -> f64 {
    let seeds = work.layers.first().map_or(0.0, |layer| layer.vertices);
    (question.batch_size as f64 / seeds).clamp(1.0, 2.0)
}

/// The name of `value` on the command line.
fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_string())
}
