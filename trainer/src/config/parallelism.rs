//! The table of parallelisms: who computes what, in columns.
//!
//! This is the only file that matches on [`Parallelism`]. Everybody else asks for a column.

use serde::{Deserialize, Serialize};

use super::{Device, FeatureNorm, ModelKind, TrainConfig};

/// Division of the work between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Parallelism {
    /// GSplit: each vertex of a layer is computed by the rank that owns its part; ranks exchange hidden rows
    Split,
    /// Each rank takes the seeds that it owns and computes their whole neighbourhoods: where few edges cross, hardly any vertex is
    /// computed twice, and no rows move
    Owned,
    /// Each rank takes a share of the seeds and computes their whole neighbourhoods
    Data,
    /// P3: as data, but each rank holds some columns of all feature rows, and computes with them what they add to every rank's
    /// bottom layer; no feature row moves
    PushPull,
    /// GraNNDis: as split, by mini-batches that are made once, with all in-edges, each server (--groups) the seeds that it owns and what
    /// they need; with one mini-batch an epoch (--batches-per-epoch) full-graph training
    Cooperative,
    /// One rank does everything
    Single,
    /// The fastest of these on this machine's CPU: planned for (gsplit plan), and the best three tried on a few mini-batches
    Auto,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// Its name on the command line.
    pub name: &'static str,
    /// Rows that ranks bring each other, and with them the owners of the seeds.
    pub rows: Shared,
    /// Ranks that compute the layer that reads features.
    pub bottom: Bottom,
    /// Origin of the mini-batches.
    pub batches: BatchOrigin,
    /// Whether there may be several ranks.
    pub several: bool,
}

/// Rows that cross between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// None: each rank takes an equal share of the seeds and computes all they need.
    Nothing,
    /// None: each rank takes the seeds that a partition map gives it.
    Seeds,
    /// The rows of the lowest layers, all unless `--split-layers` says how many, by a partition map that deals the seeds too.
    Layers,
}

/// Origin of mini-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOrigin {
    /// Seeds are shuffled and in-neighbours drawn anew in every epoch.
    Drawn,
    /// They are made once; epochs shuffle their order.
    Made,
}

/// Ranks that compute the bottom layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottom {
    /// The rank that computes the layer above, from whole feature rows.
    Rows,
    /// Every rank a part of it, from its columns of the feature rows.
    Columns,
}

impl Parallelism {
    /// Its row.
    pub fn row(self) -> Division {
        let row =
            |name, rows| Division { name, rows, bottom: Bottom::Rows, batches: BatchOrigin::Drawn, several: true };
        match self {
            Self::Split => row("split", Shared::Layers),
            Self::Owned => row("owned", Shared::Seeds),
            Self::Data => row("data", Shared::Nothing),
            Self::PushPull => Division { bottom: Bottom::Columns, ..row("push-pull", Shared::Nothing) },
            Self::Cooperative => Division { batches: BatchOrigin::Made, ..row("cooperative", Shared::Layers) },
            Self::Auto => row("auto", Shared::Nothing),
            Self::Single => Division { several: false, ..row("single", Shared::Nothing) },
        }
    }

    /// Whether a partition map deals the seeds.
    pub fn needs_map(self) -> bool {
        self.row().rows != Shared::Nothing
    }

    /// Whether layers may be split.
    pub fn splits(self) -> bool {
        self.row().rows == Shared::Layers
    }

    /// Whether mini-batches are made once, server by server.
    pub fn cooperates(self) -> bool {
        self.row().batches == BatchOrigin::Made
    }

    /// Whether each rank reads some columns of the feature rows.
    pub fn slices_columns(self) -> bool {
        self.row().bottom == Bottom::Columns
    }
}

impl std::fmt::Display for Parallelism {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.row().name)
    }
}

impl TrainConfig {
    /// The problem with a partition map that nothing would read, if one is named.
    pub(super) fn map_problem(&self) -> Option<String> {
        let (key, parallelism) = (self.partition.as_ref()?, self.parallelism);
        let is_read = parallelism.needs_map() || parallelism == Parallelism::Auto;
        (!is_read).then(|| {
            format!("--partition {key}: --parallelism {parallelism} reads no partition: leave it out, or choose split or owned")
        })
    }

    /// The problem with computing by columns of the features, where it is asked for, if any.
    pub(super) fn columns_problem(&self) -> Option<String> {
        if !self.parallelism.slices_columns() {
            return None;
        }
        let problem = if self.device == Device::Cuda {
            "ranks on GPUs do not compute by columns yet: choose --device cpu"
        } else if self.model.kind == ModelKind::SagePool {
            "--model sage-pool has no linear first step: choose sage, gcn, sgc, gin, gat, gatv2 or resgcn"
        } else if self.model.normalise_features != FeatureNorm::None {
            "--normalise-features needs whole rows: leave it out, and normalise what you convert"
        } else if self.model.input_dropout > 0.0 {
            "--input-dropout is drawn for whole rows: leave it out"
        } else {
            return None;
        };
        Some(format!("--parallelism {}: {problem}", self.parallelism))
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn names_are_those_of_the_command_line_and_of_checkpoints() {
        for parallelism in Parallelism::value_variants() {
            let name = parallelism.to_string();
            let shown = parallelism.to_possible_value().unwrap();
            assert_eq!(shown.get_name(), name);
            assert_eq!(serde_json::to_value(parallelism).unwrap(), serde_json::json!(name));
        }
    }
}
