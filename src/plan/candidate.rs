//! A configuration that could be run: a system with its map, number of ranks and split layers, and
//! its work per mini-batch.

use gsplit_partition::evaluate::Work;
use gsplit_trainer::{Config, Device, Parallelism, RowPlacement, name_of};
use serde::Serialize;

use super::cost::Way;
use super::question::Question;

/// A configuration that could be run.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    pub name: String,
    /// How ranks share mini-batches, if each has the graph and all rows in its own memory.
    #[serde(flatten)]
    pub way: Way,
    /// The options of `gsplit train` that run it.
    pub options: Vec<String>,
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

impl Candidate {
    /// A candidate with the options that run it for `question`. `rows` only matter to GPUs; a `map`
    /// is given by its key and its number of servers.
    pub fn new(
        name: &str,
        mut way: Way,
        rows: RowPlacement,
        map: Option<(&str, u32)>,
        question: &Question,
        work: Work,
    ) -> Self {
        let Way { parallelism, split_layers, ranks, .. } = way;
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
            name_of(&model.kind),
            model.layers,
            model.hidden
        ));
        way.servers = map.map_or(1, |(_, servers)| servers as usize);
        if !parallelism.cooperates() {
            let (fanouts, batch_size) = (&question.fanouts, question.batch_size);
            options.push(format!("--fanouts {fanouts} --batch-size {batch_size}"));
            options.extend(question.memory.map(|memory| format!("--memory {memory}")));
            // A full mini-batch by the mean of the counted ones.
            let seeds = work.layers.first().map_or(0.0, |layer| layer.vertices);
            way.largest = (batch_size as f64 / seeds).clamp(1.0, 2.0);
        }
        Self {
            name: name.to_string(),
            way,
            options,
            rows,
            problem: None,
            apart: None,
            partition: map.map(|(key, _)| key.to_string()),
            work,
        }
    }

    /// Whether `other` does the same work on a CPU.
    pub fn is_as(&self, other: &Self) -> bool {
        let what = |Self { way, partition, .. }: &Self| {
            (way.parallelism, way.split_layers, way.ranks, partition.clone())
        };
        what(self) == what(other)
    }

    /// `config` with the choices of this candidate.
    pub fn applied(&self, config: &Config) -> Config {
        let Way { parallelism, split_layers, ranks, .. } = self.way;
        let mut config = config.clone();
        let system = &mut config.system;
        (system.parallelism, system.split_layers) =
            (parallelism, parallelism.splits().then_some(split_layers));
        (system.ranks, system.partition) = (Some(ranks), self.partition.clone());
        config
    }
}
