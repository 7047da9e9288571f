//! The parallelisms: which ranks compute which rows.
//!
//! This is the only file that matches on [`Parallelism`]. All other files ask it a question.

use serde::{Deserialize, Serialize};

use super::{Config, Device, FeatureNorm, ModelKind, name_of};

/// Division of the work between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Parallelism {
    /// GSplit: each vertex of a layer is computed by the rank that owns its part; ranks exchange
    /// hidden rows
    Split,
    /// Each rank takes the seeds that it owns and computes their whole neighbourhoods: if few edges
    /// cross, hardly any vertex is computed twice, and no rows move
    Owned,
    /// Each rank takes a share of the seeds and computes their whole neighbourhoods
    Data,
    /// P3: like data, but each rank holds some columns of all feature rows and computes from them
    /// its part of every rank's bottom layer; no feature rows move
    PushPull,
    /// GraNNDis: like split, with mini-batches that are made once, with all in-edges: each server
    /// (--groups) takes the seeds that it owns and their neighbourhoods; one mini-batch per epoch
    /// (--batches-per-epoch) is full-graph training
    Cooperative,
    /// One rank does everything
    Single,
    /// The fastest of these on this machine's CPU: gsplit plan chooses three, and a few
    /// mini-batches are tried with each
    Auto,
}

impl Parallelism {
    /// Every parallelism that training can begin with: [`Self::Auto`] is replaced by one of them
    /// first.
    pub const ALL: [Self; 6] =
        [Self::Split, Self::Owned, Self::Data, Self::PushPull, Self::Cooperative, Self::Single];

    /// True if there may be several ranks.
    pub fn takes_ranks(self) -> bool {
        self != Self::Single
    }

    /// True if a partition map assigns the seeds to ranks; if not, each rank takes an equal share.
    pub fn needs_map(self) -> bool {
        self == Self::Owned || self.splits()
    }

    /// True if ranks send each other the rows of the lowest `--split-layers` layers (default: all).
    pub fn splits(self) -> bool {
        matches!(self, Self::Split | Self::Cooperative)
    }

    /// True if mini-batches are made once, server by server; if not, seeds are shuffled and
    /// in-neighbours drawn anew in every epoch.
    pub fn cooperates(self) -> bool {
        self == Self::Cooperative
    }

    /// True if each rank reads only some columns of the feature rows, and computes from them a part
    /// of every rank's bottom layer.
    pub fn slices_columns(self) -> bool {
        self == Self::PushPull
    }
}

impl std::fmt::Display for Parallelism {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&name_of(self))
    }
}

impl Config {
    /// Returns the problem with a partition map that is named and would have no effect, if any.
    pub(super) fn map_problem(&self) -> Option<String> {
        let (key, parallelism) = (self.system.partition.as_ref()?, self.system.parallelism);
        let is_read = parallelism.needs_map() || parallelism == Parallelism::Auto;
        (!is_read).then(|| {
            format!(
                "--partition {key}: --parallelism {parallelism} reads no partition: leave it \
                     out, or choose split or owned"
            )
        })
    }

    /// Returns the problem with computing by columns of the features, if this is asked for and
    /// there is one.
    pub(super) fn columns_problem(&self) -> Option<String> {
        if !self.system.parallelism.slices_columns() {
            return None;
        }
        let problem = if self.system.device == Device::Cuda {
            "ranks on GPUs do not compute by columns yet: choose --device cpu"
        } else if self.model.kind == ModelKind::SagePool {
            "--model sage-pool has no linear first step: choose sage, gcn, sgc, gin, gat, gatv2 or \
             resgcn"
        } else if self.model.normalise_features != FeatureNorm::None {
            "--normalise-features needs whole rows: leave it out, and normalise what you convert"
        } else if self.model.input_dropout > 0.0 {
            "--input-dropout needs whole rows: leave it out"
        } else {
            return None;
        };
        Some(format!("--parallelism {}: {problem}", self.system.parallelism))
    }
}
