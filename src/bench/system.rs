//! The systems of GSplit's Table 3 (MLSys 2025, section 6), each as a choice of parallelism, placement of feature rows and
//! partition map.
//!
//! Of DGL and Quiver it is what they do that is run, by the same loop and kernels as the others: the rows of a table differ in the
//! choices alone. Micro-batches are shares of the same global mini-batches, and a vertex draws the same neighbours in each of
//! them; DGL and Quiver let each draw its own, and load and compute somewhat more.
//!
//! Why not P3*: it is push-pull parallelism, which gsplit does not have yet.

use clap::ValueEnum;
use gsplit_partition::{Load, Method, Order, PartitionOptions, Weights};
use gsplit_trainer::{Device, Parallelism, RowPlacement};

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum System {
    /// Data parallelism, all rows in host memory
    Dgl,
    /// Data parallelism, the hottest rows once over all GPUs, read by peers
    Quiver,
    /// Split parallelism, random parts
    Rand,
    /// Split parallelism, parts that balance in-edges and targets, few edges cut (weights degree)
    Edge,
    /// Split parallelism, parts that balance pre-sampled work, few edges cut (weights vertex)
    Node,
    /// Split parallelism, parts that balance pre-sampled work, few pre-sampled edges cut (weights presampled)
    Gsplit,
}

impl System {
    /// Its name in the paper.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dgl => "DGL",
            Self::Quiver => "Quiver",
            Self::Rand => "Rand",
            Self::Edge => "Edge",
            Self::Node => "Node",
            Self::Gsplit => "GSplit",
        }
    }

    /// Who computes what.
    pub fn parallelism(self) -> Parallelism {
        match self {
            Self::Dgl | Self::Quiver => Parallelism::Data,
            Self::Rand | Self::Edge | Self::Node | Self::Gsplit => Parallelism::Split,
        }
    }

    /// Where feature rows lie; nothing to choose without GPUs.
    pub fn placement(self, device: Device) -> Option<RowPlacement> {
        if device == Device::Cpu {
            return None;
        }
        Some(match self {
            Self::Dgl => RowPlacement::Host,
            Self::Quiver => RowPlacement::Peer,
            Self::Rand | Self::Edge | Self::Node | Self::Gsplit => RowPlacement::Partitioned,
        })
    }

    /// Why it cannot be run on `device`, if it cannot.
    pub fn problem(self, device: Device) -> Option<&'static str> {
        match (self, device) {
            (Self::Quiver, Device::Cpu) => {
                Some("it differs from DGL by its caches, which are in the memory of GPUs (--device cuda)")
            }
            _ => None,
        }
    }

    /// How its map into `parts` is made, if it needs one.
    pub fn map(self, parts: u32, seed: u64) -> Option<PartitionOptions> {
        let (partitioner, weights) = match self {
            Self::Dgl | Self::Quiver => return None,
            Self::Rand => (Method::Random, None),
            Self::Edge => (Method::Multilevel, Some(Weights::Degree)),
            Self::Node => (Method::Multilevel, Some(Weights::Vertex)),
            Self::Gsplit => (Method::Multilevel, Some(Weights::Presampled)),
        };
        Some(PartitionOptions {
            parts,
            servers: 1,
            partitioner,
            quality: None,
            refine: None,
            weights,
            load: Load::default(),
            balance: Vec::new(),
            epsilon: 0.03,
            seed,
            tries: 1,
            order: Order::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_have_the_weights_of_the_paper() {
        let key = |system: System| system.map(4, 0).map(|options| options.default_key());
        assert_eq!([System::Dgl, System::Quiver].map(key), [None, None]);
        let expected = ["random-k4", "multilevel-degree-k4", "multilevel-vertex-k4", "multilevel-presampled-k4"]
            .map(str::to_string);
        assert_eq!([System::Rand, System::Edge, System::Node, System::Gsplit].map(key), expected.map(Some));
        for system in System::value_variants() {
            assert!(system.map(4, 0).is_none_or(|options| options.check().is_ok()));
            assert_eq!(system.map(4, 0).is_some(), system.parallelism() == Parallelism::Split);
        }
    }
}
