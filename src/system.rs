//! The systems that gsplit can be, one row each: a choice of parallelism, split layers, placement of feature rows, partition map and
//! draws.
//!
//! They are values, nothing else: `gsplit train --preset` fills in the options of a row, `gsplit compare` runs several.
//! Of DGL and Quiver it is what they do that is run, by the same loop and kernels as the others: the rows of a table differ in the
//! choices alone. Micro-batches are shares of the same global mini-batches, and a vertex draws the same neighbours in each of
//! them; DGL and Quiver let each draw its own, and load and compute somewhat more.
//!
//! A preset of `train` fills in its paper's settings too, where these are not gsplit's defaults, which are GSplit's. A table has one
//! setting for all its rows.

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
    /// Song and Jiang's data placement: data parallelism, caches of 20 % of the rows with those of their Algorithm 1 (`gsplit place
    /// --parallelism data --rule song-jiang --cache 20% --key song-jiang`), draws that prefer cached rows (--draw locality); on a
    /// CPU caches are counted alone
    SongJiang,
    /// Hybrid partitioning of Intel's fused sampling: seeds by owner, sampled and computed locally, feature rows fetched from their
    /// owners; parts that balance in-edges and targets
    Intel,
    /// Full-graph training, or few large mini-batches (--batches-per-epoch), that are made once, server by server (--groups); nothing but gradients
    /// crosses between servers
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
    /// How many layers are split, if not all are or none.
    pub split_layers: Option<usize>,
    /// How the partition map is made, if it needs one.
    map: Option<(Method, Option<Weights>)>,
    /// Placement of feature rows beside the host's memory, with GPUs.
    rows: RowPlacement,
    /// The paper's settings, by option.
    settings: &'static [(&'static str, &'static str)],
}

/// P3's evaluation (section 5.1), GraphSAGE; and its pipeline (section 3.3).
const P3: &[(&str, &str)] =
    &[("layers", "2"), ("fanouts", "25,10"), ("hidden", "32"), ("batch-size", "1000"), ("staleness", "3")];

/// GraNNDis's deep models (section 7.1): ResGCN+ of 28 layers, with what it trains ogbn-arxiv by.
const GRANNDIS: &[(&str, &str)] =
    &[("model", "resgcn"), ("layers", "28"), ("hidden", "64"), ("lr", "0.01"), ("dropout", "0.5")];

impl Choices {
    /// Placement of feature rows beside the host's memory, with GPUs.
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

    /// Why it cannot be compared with the others on `device`, if it cannot.
    pub fn problem(self, device: Device) -> Option<&'static str> {
        match (self, device) {
            (Self::Quiver, Device::Cpu) => {
                Some("it differs from DGL by its caches, which are in the memory of GPUs (--device cuda)")
            }
            (Self::GraNNDis, Device::Cuda) => Some("its mini-batches are made for CPUs alone (--device cpu)"),
            (Self::P3, Device::Cuda) => Some("its columns are computed on CPUs alone (--device cpu)"),
            (Self::SongJiang, _) => Some("it draws other samples than the others (train --preset song-jiang runs it)"),
            _ => None,
        }
    }

    /// Whether it trains on samples of its own, so that its seconds stand beside no other's.
    pub fn stands_apart(self) -> bool {
        self == Self::SongJiang || !self.draws()
    }

    /// Whether it trains on the mini-batches of all others.
    pub fn draws(self) -> bool {
        !self.choices().parallelism.cooperates()
    }

    /// How its map into `parts`, on `servers` where it goes by them, is made, if it needs one.
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

    /// Its row as options of `gsplit train` with the ranks and device of `config`, each with its flag.
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
