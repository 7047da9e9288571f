//! Storage of the graph and of feature rows, by its names on the command line.

use gsplit_store::memory::{Memory, shown};
use gsplit_store::{FeatureTable, HostMemory};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Storage that feature rows are read from; it does not affect the values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum FeatureStorage {
    /// Memory if they take at most a quarter (with GPUs half) of the free memory, or fit --memory;
    /// else, without GPUs, the mapped file if it fits the free memory; else disk
    #[default]
    Auto,
    /// Copied into memory first, on huge pages, which are faster to read
    Memory,
    /// The mapped file, which the system caches as far as memory allows: slow if it does not fit
    Mapped,
    /// Read from the file, many rows at a time; the hottest stay in memory
    Disk,
}

impl FeatureStorage {
    /// Maximum bytes of rows copied into memory by default, when `available` bytes are free: a
    /// mapped file serves the host as well, but GPUs can only read pinned memory.
    pub(crate) fn most_in_memory(available: u64, for_gpus: bool) -> u64 {
        if for_gpus { available / 2 } else { available / 4 }
    }

    /// Brings `features` into this storage, to be read `for_gpus` or not. With `memory`, which the
    /// processes of a host share, only its owner decides and reads; the others use the owner's
    /// copy.
    pub(crate) fn bring(
        self,
        features: FeatureTable,
        memory: Option<&HostMemory>,
        for_gpus: bool,
    ) -> Result<FeatureTable> {
        let bytes = features.num_bytes() as u64;
        let in_memory = || features.copied(memory);
        let stays = || match memory.filter(|memory| !memory.is_own()) {
            Some(memory) => memory.is_empty(),
            None => bytes > Self::most_in_memory(Memory::of_this_machine().available(), for_gpus),
        };
        match self {
            Self::Mapped | Self::Disk => Ok(features),
            Self::Auto if stays() => Ok(features),
            Self::Auto => Ok(in_memory().unwrap_or(features)),
            Self::Memory => in_memory().map_err(|_| {
                Error::Option(format!(
                    "--load-features memory: {} are more than there is: pass `disk`",
                    shown(bytes)
                ))
            }),
        }
    }
}

/// Storage that the graph is sampled from, which decides whether the host or a GPU samples; the
/// samples are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum TopologyStorage {
    /// The first that is possible: part under split, else device; then pinned, host
    #[default]
    Auto,
    /// The whole graph in the memory of each GPU
    Device,
    /// Under split, the in-edges of each rank's own vertices in its GPU's memory
    Part,
    /// Pinned host memory, which GPUs read over the bus
    Pinned,
    /// Host memory, sampled by the CPU
    Host,
}

impl std::fmt::Display for TopologyStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&super::name_of(self))
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
