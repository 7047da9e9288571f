//! The systems that gsplit can act as, one row each: a choice of parallelism, split layers, placement of feature rows,
//! partition map and draws.
//!
//! They are plain values: `gsplit train --preset` fills in the options of a row, `gsplit compare` runs several. DGL and
//! Quiver are not run themselves: the same loop and kernels do what they do, so that the rows of a table differ only in
//! these choices. Micro-batches are shares of the same global mini-batches, and a vertex draws the same neighbours in
//! each of them; DGL and Quiver let each draw its own, and load and compute somewhat more.
//!
//! A preset of `train` also fills in its paper's settings, if they differ from gsplit's defaults, which are GSplit's.
//! All rows of a table have the same settings.

use clap::ValueEnum;
use gsplit_partition::{Load, Method, PartitionOptions, Weights};
use gsplit_trainer::{Device, Parallelism, RowPlacement, TrainConfig};

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum System {
    /// Data parallelism, all rows in host memory
    Dgl,
    /// Data parallelism, the hottest rows once over all GPUs, read by peers
    Quiver,
    /// Push-pull parallelism: the bottom layer by columns of the features, which do not move; three mini-batches in flight
    #[value(name = "p3")]
    P3,
    /// Song and Jiang's data placement: data parallelism, caches of 20 % of the rows placed by their Algorithm 1 (`gsplit place
    /// --parallelism data --rule song-jiang --cache 20% --key song-jiang`), draws that prefer cached rows (--draw locality); on a
    /// CPU caches are only counted
    SongJiang,
    /// Hybrid partitioning of Intel's fused sampling: seeds by owner, sampled and computed locally, feature rows fetched from their
    /// owners; parts that balance in-edges and targets
    Intel,
    /// Full-graph training, or few large mini-batches (--batches-per-epoch), made once, server by server (--groups);
    /// only gradients are sent between servers
    #[value(name = "granndis")]
    GraNNDis,
    /// Seeds by owner, computed and loaded locally, nothing exchanged; GSplit's parts
    Owned,
    /// Split parallelism, random parts
    #[value(name = "gsplit-rand", alias = "rand")]
    Rand,
    /// Split parallelism, parts that balance in-edges and targets, few edges cut (weights degree)
    #[value(name = "gsplit-edge", alias = "edge")]
    Edge,
    /// Split parallelism, parts that balance pre-sampled work, few edges cut (weights vertex)
    #[value(name = "gsplit-node", alias = "node")]
    Node,
    /// Split parallelism, parts that balance pre-sampled work, few pre-sampled edges cut (weights presampled)
    Gsplit,
}

/// Choices of a system.
pub struct Choices {
    /// Division of the work between ranks.
    pub parallelism: Parallelism,
    /// Number of split layers, unless all or none are split.
    pub split_layers: Option<usize>,
    /// Method and weights of the partition map, if it needs one.
    map: Option<(Method, Option<Weights>)>,
    /// Placement of feature rows outside the host's memory, with GPUs.
    rows: RowPlacement,
    /// The paper's settings, as options with values.
    settings: &'static [(&'static str, &'static str)],
}

/// P3's evaluation (section 5.1), GraphSAGE; and its pipeline (section 3.3).
const P3: &[(&str, &str)] =
    &[("layers", "2"), ("fanouts", "25,10"), ("hidden", "32"), ("batch-size", "1000"), ("staleness", "3")];

/// GraNNDis's deep models (section 7.1): ResGCN+ of 28 layers, with the paper's settings for ogbn-arxiv.
const GRANNDIS: &[(&str, &str)] =
    &[("model", "resgcn"), ("layers", "28"), ("hidden", "64"), ("lr", "0.01"), ("dropout", "0.5")];

impl Choices {
    /// Placement of feature rows outside the host's memory, with GPUs.
    pub fn rows(&self) -> &RowPlacement {
        &self.rows
    }
}

impl System {
    /// Its row.
    pub fn choices(self) -> Choices {
        use Parallelism::{Cooperative, Data, Owned, PushPull, Split};
        let multilevel = |weights| Some((Method::Multilevel, Some(weights)));
        let (parallelism, split_layers, map, rows) = match self {
            Self::Dgl => (Data, None, None, RowPlacement::Host),
            Self::Quiver => (Data, None, None, RowPlacement::Peer),
            Self::P3 => (PushPull, None, None, RowPlacement::Host),
            Self::SongJiang => (Data, None, None, RowPlacement::Stored("song-jiang".into())),
            Self::Intel => (Split, Some(1), multilevel(Weights::Degree), RowPlacement::Partitioned),
            Self::GraNNDis => (Cooperative, None, multilevel(Weights::Degree), RowPlacement::Host),
            Self::Owned => (Owned, None, multilevel(Weights::Presampled), RowPlacement::Replicated),
            Self::Rand => (Split, None, Some((Method::Random, None)), RowPlacement::Partitioned),
            Self::Edge => (Split, None, multilevel(Weights::Degree), RowPlacement::Partitioned),
            Self::Node => (Split, None, multilevel(Weights::Vertex), RowPlacement::Partitioned),
            Self::Gsplit => (Split, None, multilevel(Weights::Presampled), RowPlacement::Partitioned),
        };
        let settings: &[_] = match self {
            Self::P3 => P3,
            Self::GraNNDis => GRANNDIS,
            Self::SongJiang => &[("cache", "20%"), ("draw", "locality")],
            _ => &[],
        };
        Choices { parallelism, split_layers, map, rows, settings }
    }

    /// Its name in the papers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dgl => "DGL",
            Self::Quiver => "Quiver",
            Self::P3 => "P3",
            Self::GraNNDis => "GraNNDis",
            Self::SongJiang => "Song & Jiang",
            Self::Intel => "Intel",
            Self::Owned => "Owned",
            Self::Rand => "Rand",
            Self::Edge => "Edge",
            Self::Node => "Node",
            Self::Gsplit => "GSplit",
        }
    }

    /// Placement of feature rows; `None` without GPUs, unless draws depend on it.
    pub fn placement(self, device: Device) -> Option<RowPlacement> {
        let choices = self.choices();
        (device != Device::Cpu || self == Self::SongJiang).then_some(choices.rows)
    }

    /// The reason why it cannot be compared with the others on `device`, if any.
    pub fn problem(self, device: Device) -> Option<&'static str> {
        match (self, device) {
            (Self::Quiver, Device::Cpu) => {
                Some("it differs from DGL by its caches, which are in the memory of GPUs (--device cuda)")
            }
            (Self::GraNNDis, Device::Cuda) => Some("its mini-batches are made for CPUs only (--device cpu)"),
            (Self::P3, Device::Cuda) => Some("its columns are computed on CPUs only (--device cpu)"),
            (Self::SongJiang, _) => Some("it draws other samples than the others (train --preset song-jiang runs it)"),
            _ => None,
        }
    }

    /// Whether it trains on its own samples, so that its seconds cannot be compared with the others.
    pub fn stands_apart(self) -> bool {
        self == Self::SongJiang || !self.draws()
    }

    /// Whether it trains on the same mini-batches as the others.
    pub fn draws(self) -> bool {
        !self.choices().parallelism.cooperates()
    }

    /// The options of its map into `parts`, on `servers` if the system uses them, if it needs a map.
    pub fn map(self, parts: u32, servers: u32, seed: u64) -> Option<PartitionOptions> {
        let (partitioner, weights) = self.choices().map?;
        Some(PartitionOptions {
            parts,
            targets: Vec::new(),
            servers: if self.draws() { 1 } else { servers },
            partitioner,
            quality: None,
            refine: None,
            weights,
            load: Load::default(),
            balance: Vec::new(),
            epsilon: 0.03,
            seed,
            tries: 1,
            contiguous: false,
            memory: None,
        })
    }

    /// The system as options of `gsplit train` with the ranks and device of `config`, each with its flag.
    pub fn options(self, config: &TrainConfig) -> Vec<(&'static str, String)> {
        let choices = self.choices();
        let parts = if self.draws() { config.ranks_of_group() } else { config.num_ranks() };
        let map = self.map(parts as u32, config.groups as u32, 0);
        [
            Some(("parallelism", choices.parallelism.to_string())),
            choices.split_layers.map(|layers| ("split-layers", layers.to_string())),
            map.map(|map| ("partition", map.default_key())),
            self.placement(config.device).map(|rows| ("placement", rows.to_string())),
        ]
        .into_iter()
        .flatten()
        .chain(choices.settings.iter().map(|&(name, value)| (name, value.to_string())))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_have_the_weights_of_the_papers() {
        let key = |system: System| system.map(4, 1, 0).map(|options| options.default_key());
        assert_eq!([System::Dgl, System::Quiver, System::SongJiang].map(key), [None, None, None]);
        let expected = ["random-k4", "multilevel-degree-k4", "multilevel-vertex-k4", "multilevel-presampled-k4"]
            .map(str::to_string);
        assert_eq!([System::Rand, System::Edge, System::Node, System::Gsplit].map(key), expected.clone().map(Some));
        assert_eq!([System::Intel, System::Owned].map(key), [1, 3].map(|at| Some(expected[at].clone())));
        for system in System::value_variants() {
            assert!(system.map(4, 1, 0).is_none_or(|options| options.check().is_ok()));
            assert_eq!(system.map(4, 1, 0).is_some(), system.choices().parallelism.needs_map());
        }
    }
}
