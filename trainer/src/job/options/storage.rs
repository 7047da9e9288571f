//! Storage of the graph and of feature rows, as users name it.

use clap::ValueEnum;
use gsplit_store::memory::{Memory, shown};
use gsplit_store::{FeatureTable, HostMemory};
use serde::Serialize;

use crate::{Error, Result};

/// Storage that feature rows are read from; the values are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FeatureStorage {
    /// Memory if they take at most a quarter of what is left, with GPUs half, or fit --memory; else, without GPUs, the mapped file if it
    /// fits what is left; else disk
    #[default]
    Auto,
    /// Copied into memory first, on huge pages: rows are then read faster
    Memory,
    /// The mapped file, of which the system keeps in memory what it can: slow where it does not fit
    Mapped,
    /// Read from the file many at a time; the hottest stay in memory
    Disk,
}

impl FeatureStorage {
    /// The most bytes of rows that are copied into memory where the user has not said, of those that are `available`: a mapped file
    /// serves the host as well, but GPUs read pinned memory alone.
    pub(crate) fn most_in_memory(available: u64, for_gpus: bool) -> u64 {
        if for_gpus { available / 2 } else { available / 4 }
    }

    /// `features`, read from there, by GPUs or not; in `memory` that processes of a host share, if it is given: those that it is not of
    /// find there what its own has decided and read.
    pub(crate) fn bring(
        self,
        features: FeatureTable,
        memory: Option<&HostMemory>,
        for_gpus: bool,
    ) -> Result<FeatureTable> {
        let bytes = features.num_bytes() as u64;
        let in_memory = || memory.map_or_else(|| features.in_memory(), |memory| features.in_host_memory(memory));
        let stays = || match memory.filter(|memory| !memory.is_own()) {
            Some(memory) => memory.is_empty(),
            None => bytes > Self::most_in_memory(Memory::of_this_machine().available(), for_gpus),
        };
        match self {
            Self::Mapped | Self::Disk => Ok(features),
            Self::Auto if stays() => Ok(features),
            Self::Auto => Ok(in_memory().unwrap_or(features)),
            Self::Memory => in_memory().map_err(|_| {
                Error::Option(format!("--load-features memory: {} are more than there is: pass `disk`", shown(bytes)))
            }),
        }
    }
}

/// Storage that the graph is sampled from, and so the host or GPU that samples; the samples are the same.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_have_more_rows_in_memory() {
        assert_eq!(FeatureStorage::most_in_memory(100, false), 25);
        assert_eq!(FeatureStorage::most_in_memory(100, true), 50);
    }
}
