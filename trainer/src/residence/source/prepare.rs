//! The feature rows of all ranks of this process: pinned if GPUs read them, with the copies that
//! GPUs keep.

use std::fmt::{self, Display, Formatter};

use gsplit_store::{FeatureTable, Progress};
use serde::Serialize;

use super::{FeatureSource, GpuTable, open_gpu_table};
use crate::Result;
use crate::job::hooks::Hooks;
use crate::operator::Place;
use crate::residence::cache::Caches;

/// Storage of the host that holds the feature rows, and the reader of rows that no GPU keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HostStorage {
    /// Pinned memory, read by GPUs.
    Pinned,
    /// Memory.
    Memory,
    /// The mapped file.
    Mapped,
    /// The file.
    Disk,
}

impl HostStorage {
    /// Storage of `table`; `gpu_table` is given if GPUs keep or read its rows.
    pub fn of(table: &FeatureTable, gpu_table: Option<&GpuTable<'_>>) -> Self {
        match gpu_table {
            Some(gpu_table) if gpu_table.is_pinned() => Self::Pinned,
            _ if table.read_by().is_some() => Self::Disk,
            _ if table.is_in_memory() => Self::Memory,
            _ => Self::Mapped,
        }
    }
}

impl Display for HostStorage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pinned => "read by GPUs from pinned host memory",
            Self::Memory => "gathered by the host from its memory",
            Self::Mapped => "gathered by the host from the mapped file",
            Self::Disk => "read from disk by the host, except those in its memory",
        })
    }
}

/// Pins `table` so that GPUs read it themselves, if ranks compute on GPUs and the driver can pin
/// it, and fills the `caches` of the ranks of this process. Reports to `progress` where rows are.
/// Collective if ranks are processes that read each other's caches.
pub fn prepare_gpu_table<'a>(
    table: &'a FeatureTable,
    caches: Option<&'a Caches>,
    places: &[Place],
    hooks: &Hooks,
    progress: &dyn Progress,
) -> Result<Option<GpuTable<'a>>> {
    let here = hooks.ranks_here(places.len());
    let ranks: Vec<_> = here.filter_map(|rank| Some((rank, places[rank].gpu()?))).collect();
    let gpu_table = match places[0].gpu().map(|gpu| open_gpu_table(table, Some(gpu))) {
        Some(Err(error)) => {
            progress.note(&format!(
                "the host gathers the feature rows for the GPUs, which cannot read them: {error}"
            ));
            Some(open_gpu_table(table, None)?)
        }
        gpu_table => gpu_table.transpose()?,
    };
    let gpu_table = match (gpu_table, caches) {
        (Some(mut gpu_table), Some(caches)) => {
            match (&hooks.process, &ranks[..]) {
                (Some(process), &[(rank, gpu)]) if caches.are_shared() => {
                    gpu_table.share(caches, rank, gpu, process.comms().all())?
                }
                _ => gpu_table.fill(caches, &ranks)?,
            }
            Some(gpu_table)
        }
        (gpu_table, _) => gpu_table,
    };
    let storage = HostStorage::of(table, gpu_table.as_ref());
    match caches {
        Some(caches) if ranks.is_empty() || caches.are_all(table.num_rows()) => {
            progress.note(&caches.told(table.num_rows()))
        }
        Some(caches) => {
            progress.note(&format!("{}; others are {storage}", caches.told(table.num_rows())))
        }
        None if ranks.is_empty() => {}
        None => progress.note(&format!("feature rows are {storage}")),
    }
    Ok(gpu_table)
}

/// A source of the rows of `table`, which GPUs read as `gpu_table`, for each rank of this process.
pub fn sources<'a>(
    table: &'a FeatureTable,
    gpu_table: Option<&'a GpuTable<'_>>,
    places: &[Place],
    hooks: &Hooks,
) -> Result<Vec<FeatureSource<'a>>> {
    let source = |rank: usize| match gpu_table {
        Some(gpu_table) => FeatureSource::with_gpu_table(table, &places[rank], gpu_table, rank)
            .map_err(|error| error.of_rank(rank)),
        None => Ok(FeatureSource::new(table, &places[rank])),
    };
    hooks.ranks_here(places.len()).map(source).collect()
}
