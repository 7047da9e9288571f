//! The table of parallelisms: which ranks compute which rows, in columns.
//!
//! This is the only file that matches on [`Parallelism`]. All other files read a column.

use serde::{Deserialize, Serialize};

use super::{Config, Device, FeatureNorm, ModelKind};

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

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// Its name on the command line.
    pub name: &'static str,
    /// Rows that ranks send each other, and how the seeds are distributed.
    pub rows: Shared,
    /// Ranks that compute the layer that reads features.
    pub bottom: Bottom,
    /// Origin of the mini-batches.
    pub batches: BatchOrigin,
    /// True if there may be several ranks.
    pub several: bool,
}

/// Rows that cross between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// No rows: each rank takes an equal share of the seeds and computes everything that they need.
    Nothing,
    /// No rows: each rank takes the seeds that a partition map assigns to it.
    Seeds,
    /// The rows of the lowest `--split-layers` layers (default: all). A partition map assigns the
    /// seeds too.
    Layers,
}

/// Origin of mini-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOrigin {
    /// Seeds are shuffled and in-neighbours drawn anew in every epoch.
    EdgeOutput,
    /// They are made once; epochs shuffle their order.
    Made,
}

/// Ranks that compute the bottom layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottom {
    /// The rank that computes the layer above, from whole feature rows.
    Rows,
    /// Every rank computes a part of it, from its columns of the feature rows.
    Columns,
}

impl Parallelism {
    /// Every parallelism that training can begin with: [`Self::Auto`] is replaced by one of them
    /// first.
    pub const ALL: [Self; 6] =
        [Self::Split, Self::Owned, Self::Data, Self::PushPull, Self::Cooperative, Self::Single];

    /// The row of this parallelism.
    pub fn row(self) -> Division {
        let row = |name, rows| Division {
            name,
            rows,
            bottom: Bottom::Rows,
            batches: BatchOrigin::EdgeOutput,
            several: true,
        };
        match self {
            Self::Split => row("split", Shared::Layers),
            Self::Owned => row("owned", Shared::Seeds),
            Self::Data => row("data", Shared::Nothing),
            Self::PushPull => {
                Division { bottom: Bottom::Columns, ..row("push-pull", Shared::Nothing) }
            }
            Self::Cooperative => {
                Division { batches: BatchOrigin::Made, ..row("cooperative", Shared::Layers) }
            }
            Self::Auto => row("auto", Shared::Nothing),
            Self::Single => Division { several: false, ..row("single", Shared::Nothing) },
        }
    }

    /// True if a partition map assigns the seeds.
    pub fn needs_map(self) -> bool {
        self.row().rows != Shared::Nothing
    }

    /// True if layers may be split.
    pub fn splits(self) -> bool {
        self.row().rows == Shared::Layers
    }

    /// True if mini-batches are made once, server by server.
    pub fn cooperates(self) -> bool {
        self.row().batches == BatchOrigin::Made
    }

    /// True if each rank reads only some columns of the feature rows.
    pub fn slices_columns(self) -> bool {
        self.row().bottom == Bottom::Columns
    }
}

impl std::fmt::Display for Parallelism {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.row().name)
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
