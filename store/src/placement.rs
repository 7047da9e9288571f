//! Placements: which rank's device caches which feature rows (the placement axis of a training
//! strategy).
//!
//! ```text
//! placement/<key>/
//!   slots.npy      u32  vertices in the order of their slots: first the rows that every device holds, in the same slots 0, 1,
//!                       ..., then the further rows of device 0, then of device 1 ... The lengths of these lists are
//!                       `shared_rows` and `own_rows` of the report; a device's own rows follow the shared ones
//!   placement.npy  u16[n]  where each vertex's row is: a device, 65534 = every device, 65535 = only the host. A row that
//!                       several devices hold, but not all, is named with the first of them (`slots.npy` has the others)
//!   placement.json      its inputs, its options, and the expected row loads
//! ```
//!
//! A device's list begins with the rows most worth caching: a device that has room for fewer rows
//! leaves out the last ones. The host keeps every row.

mod rules;

use serde::{Deserialize, Serialize};

use crate::artifact::{self, Artifact, artifact};
use crate::document;
use crate::partition::PartitionMeta;
use crate::staging::Staging;
use crate::{
    Checksum, Column, Dataset, Error, Files, MadeFrom, NpyWriter, PartitionMap, Presample, Result,
    bare_key, tried, write_npy,
};
pub use rules::{Readers, deal_rows, hottest_rows, out_degrees};

/// In `placement.npy`: every device holds the row.
pub const EVERY_DEVICE: u16 = u16::MAX - 1;
/// In `placement.npy`: no device holds the row.
pub const HOST: u16 = u16::MAX;
/// Most devices of a placement.
pub const MAX_DEVICES: usize = EVERY_DEVICE as usize;

/// The options that a placement was made with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementConfig {
    /// The rule, e.g. `optimised`.
    pub placement: String,
    /// Ranks that load a row.
    pub parallelism: Readers,
    /// Number of devices.
    pub devices: u32,
    /// Cache of one device, in bytes.
    pub cache_bytes: u64,
    /// A feature row, in bytes.
    pub row_bytes: u64,
    /// Cost of reading a row from a peer over that of reading it from the host.
    pub alpha: f64,
    /// Bytes a second that a device reads from the host, where alpha was given by bandwidths.
    pub host_bandwidth: Option<u64>,
    /// Bytes a second that a device reads from its peers, where alpha was given by bandwidths.
    pub peer_bandwidth: Option<u64>,
}

/// Row loads by the memory that serves them: expected numbers in a global mini-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowLoads {
    /// The reader's own cache.
    pub local: f64,
    /// Another device's cache.
    pub peer: f64,
    /// Host memory.
    pub host: f64,
}

/// Contents of a placement, and its expected effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementReport {
    /// Rows that fit a device.
    pub rows_per_device: u64,
    /// Rows that every device holds.
    pub shared_rows: u64,
    /// Further rows that each device holds.
    pub own_rows: Vec<u64>,
    /// Expected row loads of each device in a global mini-batch.
    pub expected: Vec<RowLoads>,
}

/// Content of `placement.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementMeta {
    /// The graph, the presample and the partition.
    pub made_from: MadeFrom,
    /// The options that were asked for.
    pub config: PlacementConfig,
    /// The resulting placement.
    pub report: PlacementReport,
    /// `slots.npy` and `placement.npy`.
    pub files: Files,
    /// Version of gsplit.
    pub tool_version: String,
}

artifact!(PlacementMeta, Placement, PlacementConfig, "placement", "place");

/// The vertices whose rows the devices hold, in the order of their slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CachedRows {
    /// Rows that every device holds, in its first slots.
    pub shared: Vec<u32>,
    /// Rows that each device holds after the shared ones.
    pub own: Vec<Vec<u32>>,
}

impl CachedRows {
    /// Place of the row of each of `n` vertices, as in `placement.npy`. Fails on a vertex that does
    /// not exist, and on a device that holds a row twice. Memory: 4 bytes per vertex.
    pub fn homes(&self, n: usize) -> Result<Vec<u16>> {
        if self.own.len() > MAX_DEVICES {
            let found = self.own.len();
            return Err(Error::Invalid(format!(
                "a placement on {found} devices: expected at most {MAX_DEVICES}"
            )));
        }
        let mut homes = vec![HOST; n];
        let mut latest = vec![HOST; n];
        let devices = (0u16..).zip(&self.own);
        for (device, rows) in std::iter::once((EVERY_DEVICE, &self.shared)).chain(devices) {
            for &v in rows {
                let Some(home) = homes.get_mut(v as usize) else {
                    return Err(Error::Invalid(format!(
                        "vertex {v} has a slot, the graph has {n} vertices"
                    )));
                };
                if *home == EVERY_DEVICE || latest[v as usize] == device {
                    return Err(Error::Invalid(format!(
                        "the row of vertex {v} is twice on one device"
                    )));
                }
                latest[v as usize] = device;
                if *home == HOST {
                    *home = device;
                }
            }
        }
        Ok(homes)
    }
}

/// A stored placement of a dataset's feature rows, mapped.
#[derive(Clone, Debug)]
pub struct Placement {
    key: String,
    meta: PlacementMeta,
    checksum: Checksum,
    slots: Column<u32>,
    homes: Column<u16>,
}

impl Placement {
    /// The artifacts that a placement with that presample and partition is made from.
    pub fn made_from(
        dataset: &Dataset,
        presample: &Presample,
        partition: &PartitionMap,
    ) -> MadeFrom {
        let partition = Some((bare_key(partition.key()).to_string(), partition.checksum().clone()));
        MadeFrom { partition, ..MadeFrom::with(dataset, Some(presample)) }
    }

    /// Stores a placement under `key`; `expected` holds the expected loads of each device. Refuses
    /// an existing key, unless `replace`, and rows that do not fit what `config` says.
    pub fn save(
        dataset: &Dataset,
        key: &str,
        made_from: MadeFrom,
        config: PlacementConfig,
        expected: Vec<RowLoads>,
        rows: &CachedRows,
        replace: bool,
    ) -> Result<Self> {
        let homes = rows.homes(dataset.num_vertices())?;
        let report = PlacementReport {
            rows_per_device: config.cache_bytes / config.row_bytes.max(1),
            shared_rows: rows.shared.len() as u64,
            own_rows: rows.own.iter().map(|own| own.len() as u64).collect(),
            expected,
        };
        report.check(&config).map_err(Error::Invalid)?;
        let staging = Staging::begin(Self::target(dataset, key), replace)?;
        let mut files = Files::new();
        let mut slots = NpyWriter::create(staging.path("slots.npy"))?;
        for list in std::iter::once(&rows.shared).chain(&rows.own) {
            slots.push(list)?;
        }
        files.insert("slots.npy".into(), slots.finish()?);
        files.insert("placement.npy".into(), write_npy(staging.path("placement.npy"), &homes)?);
        let tool_version = env!("CARGO_PKG_VERSION").to_string();
        let meta = PlacementMeta { made_from, config, report, files, tool_version };
        document::write(&staging.path(PlacementMeta::FILE), &meta)?;
        staging.commit()?;
        Self::open(&dataset.unchecked(), key)
    }

    /// Opens the placement `key` of `dataset`; one of another graph, or of a partition that was
    /// made again since, is refused.
    pub fn open(dataset: &Dataset, key: &str) -> Result<Self> {
        let (meta, checksum) = artifact::open::<PlacementMeta>(dataset, key)?;
        let folder = Self::folder(dataset, key);
        check_partition(dataset, key, &meta.made_from)?;
        let placement = Self {
            key: key.to_string(),
            slots: Column::open(folder.join("slots.npy"))?,
            homes: Column::open(folder.join("placement.npy"))?,
            meta,
            checksum,
        };
        placement.check(dataset.num_vertices())?;
        Ok(placement)
    }

    fn check(&self, n: usize) -> Result<()> {
        let corrupt = |problem: String| Err(Error::corrupt(self.slots.path(), problem));
        let report = &self.meta.report;
        if let Err(problem) = report.check(&self.meta.config) {
            return corrupt(problem);
        }
        let expected =
            report.own_rows.iter().try_fold(report.shared_rows, |sum, &rows| sum.checked_add(rows));
        if expected != Some(self.slots.len() as u64) {
            return corrupt(format!("{} slots, the report says {expected:?}", self.slots.len()));
        }
        match self.rows().homes(n) {
            Ok(homes) if homes[..] == self.homes[..] => Ok(()),
            Ok(_) => corrupt("does not hold the rows that placement.npy lists".into()),
            Err(error) => corrupt(error.to_string()),
        }
    }

    /// Number of devices.
    pub fn num_devices(&self) -> usize {
        self.meta.report.own_rows.len()
    }

    /// Place of each vertex's row: a device, [`EVERY_DEVICE`] or [`HOST`].
    pub fn homes(&self) -> &[u16] {
        &self.homes
    }

    /// Rows that every device holds, in slots 0, 1, ...
    pub fn shared(&self) -> &[u32] {
        &self.slots[..self.meta.report.shared_rows as usize]
    }

    /// Rows that `device` holds in the slots after the shared ones. Panics if the device does not
    /// exist.
    pub fn own(&self, device: usize) -> &[u32] {
        let report = &self.meta.report;
        let start = report.shared_rows + report.own_rows[..device].iter().sum::<u64>();
        &self.slots[start as usize..(start + report.own_rows[device]) as usize]
    }

    /// All rows, copied.
    pub fn rows(&self) -> CachedRows {
        let mut rest = &self.slots[self.shared().len()..];
        let mut take = |rows: &u64| {
            let (own, behind) = rest.split_at(*rows as usize);
            rest = behind;
            own.to_vec()
        };
        CachedRows {
            shared: self.shared().to_vec(),
            own: self.meta.report.own_rows.iter().map(&mut take).collect(),
        }
    }
}

impl PlacementReport {
    /// Checks that there are `config.devices` devices, and no more rows on one than fit.
    fn check(&self, config: &PlacementConfig) -> Result<(), String> {
        let devices = config.devices as usize;
        if (self.own_rows.len(), self.expected.len()) != (devices, devices) {
            let found = (self.own_rows.len(), self.expected.len());
            return Err(format!("rows and loads of {found:?} devices, expected {devices}"));
        }
        let (shared, most) = (self.shared_rows, self.rows_per_device);
        match self.own_rows.iter().position(|&own| shared.saturating_add(own) > most) {
            Some(device) => Err(format!("too many rows on device {device}, where {most} fit")),
            None => Ok(()),
        }
    }
}

/// Fails unless the partition is the one that `placement` was made from. A cached placement's
/// partition may also be in the cache.
fn check_partition(dataset: &Dataset, placement: &str, made_from: &MadeFrom) -> Result<()> {
    let Some((key, recorded)) = &made_from.partition else { return Ok(()) };
    let checksum =
        |key: &str| artifact::open::<PartitionMeta>(dataset, key).map(|(_, checksum)| checksum);
    let is_tried = bare_key(placement) != placement;
    if is_tried && checksum(&tried(key)).is_ok_and(|found| found == *recorded) {
        return Ok(());
    }
    let now = checksum(key)?;
    if now == *recorded {
        return Ok(());
    }
    let named = |checksum| format!("partition `{key}` ({checksum})");
    let path = Placement::folder(dataset, placement);
    Err(Error::Mismatch { path, made_from: named(recorded), used_with: named(&now) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_of_rows() {
        let rows = CachedRows { shared: vec![4], own: vec![vec![0, 2], vec![2], vec![5]] };
        assert_eq!(rows.homes(7).unwrap(), [0, HOST, 0, HOST, EVERY_DEVICE, 2, HOST]);
        for (shared, own, expected) in [
            (vec![4], vec![vec![4]], "vertex 4 is twice"),
            (vec![4, 4], vec![], "vertex 4 is twice"),
            (vec![], vec![vec![3], vec![1, 3, 3]], "vertex 3 is twice"),
            (vec![], vec![vec![7]], "the graph has 7 vertices"),
            (vec![], vec![vec![]; 65_535], "65535 devices: expected at most 65534"),
        ] {
            let line = CachedRows { shared, own }.homes(7).unwrap_err().to_string();
            assert!(line.contains(expected), "{line}");
        }
    }
}
