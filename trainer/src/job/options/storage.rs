//! Where the graph and feature rows are read from, as users say it.

use clap::ValueEnum;
use serde::Serialize;

/// Where feature rows are read from; the values are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FeatureStorage {
    /// Memory if they take at most a quarter of what is left, else the mapped file
    #[default]
    Auto,
    /// Copied into memory first, on huge pages: rows are then read faster
    Memory,
    /// The mapped file, of which the system keeps in memory what it can
    Mapped,
}

/// Where the graph is sampled from, and with it by what; the samples are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TopologyStorage {
    /// The first that is possible: part under split, else device; then pinned, host
    #[default]
    Auto,
    /// The memory of each GPU, all of it
    Device,
    /// Under split, the in-edges of each rank's own vertices in its GPU's memory
    Part,
    /// Pinned host memory, which GPUs read over the bus
    Pinned,
    /// Host memory, sampled by the CPU
    Host,
}

impl std::fmt::Display for TopologyStorage {
    /// Its name on the command line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}
