//! Shards: the data that one of several hosts needs to train, as a dataset directory of its own.
//!
//! ```text
//! host-1/
//!   dataset.json            of a dataset as any other; its `shard` is a [`ShardInfo`]
//!   topology/ edges/ links/ splits/{train,valid,test}.npy   as in the whole dataset, byte for byte
//!   splits/unlabelled.npy   u32, ascending: vertices of the train split without a class, whoever owns them; one class a vertex only
//!   nodes/owned.npy         u32[k], ascending: the vertices of the host's parts
//!   nodes/feat.arrow        row i is that of vertex owned[i], k rows; as stored in the whole dataset, bit for bit
//!   nodes/label.npy         as the features, and so is label.known.npy
//!   partition/<key>/        the partition that says who owns what, byte for byte
//! ```
//!
//! A shard cut by columns has no `unlabelled.npy`, `owned.npy` or partition. Its `feat.arrow` has a
//! row for each vertex with the values of the host's columns; `label.npy` and `label.known.npy` are
//! the files of the whole dataset.
//!
//! `kind.npy` ([`KIND`](crate::KIND)) is that of the whole dataset. Original ids, other node
//! columns, presamples and placements are left out. [`Dataset::features`], [`Dataset::labels`] and
//! the other methods that promise a row for each vertex refuse a shard; use
//! [`Dataset::held_features`] and its like. They know the stored rows and columns.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::labels::{ClassLabels, HeldLabels, Label, NumericLabels};
use crate::rows::check_ascending;
use crate::{
    Checksum, Column, Dataset, Error, FeatureTable, Files, MultiLabels, PartitionMap, Result,
};

/// The vertices whose rows a shard holds.
pub(crate) const OWNED: &str = "nodes/owned.npy";
/// Vertices of the train split without a class.
pub(crate) const UNLABELLED: &str = "splits/unlabelled.npy";

/// Origin of a shard, and its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardInfo {
    /// The files of the whole dataset.
    pub origin: Files,
    /// The rows or columns that it holds.
    pub by: Cut,
    /// The host that it is for, from 0.
    pub host: u32,
    /// Number of hosts. With p parts, host h has p / hosts parts, starting at part h · p / hosts;
    /// if cut by columns, see [`columns_of`].
    pub hosts: u32,
}

/// Division of a dataset's rows among its shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// Rows of the host's own vertices: key of the partition that assigns them, and the digest of
    /// its assignment.
    Partition(String, Checksum),
    /// Values of the host's columns of every feature row; holds the number of columns of a whole
    /// row.
    Columns(u32),
}

/// The columns that rank or host `i` of `n` has, of rows of `features` values. Some ranges are
/// empty if there are fewer columns than `n`.
pub fn columns_of(features: usize, i: usize, n: usize) -> Range<usize> {
    features * i / n..features * (i + 1) / n
}

impl ShardInfo {
    /// The partition that it was cut by, and the digest of its assignment.
    pub fn partition(&self) -> Option<(&str, &Checksum)> {
        match &self.by {
            Cut::Partition(key, assignment) => Some((key, assignment)),
            Cut::Columns(_) => None,
        }
    }

    /// The columns that it holds, and the number of columns of a whole row; `None` where it holds
    /// whole rows.
    pub fn columns(&self) -> Option<(Range<usize>, usize)> {
        match self.by {
            Cut::Partition(..) => None,
            Cut::Columns(dim) => Some((
                columns_of(dim as usize, self.host as usize, self.hosts.max(1) as usize),
                dim as usize,
            )),
        }
    }

    /// The parts of the host, out of `parts`.
    pub fn parts(&self, parts: usize) -> Range<usize> {
        let each = parts / (self.hosts as usize).max(1);
        let first = (self.host as usize).saturating_mul(each);
        first..first.saturating_add(each)
    }
}

impl std::fmt::Display for ShardInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the shard of host {} of {}, cut by ", self.host, self.hosts)?;
        match &self.by {
            Cut::Partition(key, _) => write!(f, "partition {key}"),
            Cut::Columns(_) => write!(f, "columns"),
        }
    }
}

impl PartitionMap {
    /// Digest of the part of every vertex: equal partitions have the same digest.
    pub fn assignment_checksum(&self) -> Option<&Checksum> {
        self.meta().files.get("assignment.npy").map(|record| &record.checksum)
    }

    /// The vertices of `shard`, ascending.
    pub(crate) fn vertices_of(&self, shard: &ShardInfo) -> Vec<u32> {
        let parts = shard.parts(self.num_parts());
        let owned = |&(_, part): &(u32, &u16)| parts.contains(&usize::from(*part));
        (0..).zip(self.assignment()).filter(owned).map(|(v, _)| v).collect()
    }
}

impl Dataset {
    /// Description of the shard; `None` for a whole dataset.
    pub fn shard(&self) -> Option<&ShardInfo> {
        self.manifest().shard.as_ref()
    }

    /// The files of the whole dataset: its own, or, for a shard, the files of the dataset it was
    /// cut from.
    pub fn whole_files(&self) -> &Files {
        self.shard().map_or(&self.manifest().files, |shard| &shard.origin)
    }

    /// Digest of the content of the whole dataset; a shard has the digest of the dataset it was cut
    /// from.
    pub fn fingerprint(&self) -> Checksum {
        Checksum::combine(self.whole_files().values().map(|record| &record.checksum))
    }

    /// Like [`Dataset::features`], but works for a shard: the rows of its own vertices, or rows
    /// with some of the columns ([`FeatureTable::columns`]). With several types of vertices, those
    /// of the types that have features ([`FeatureTable::by_type`]).
    pub fn held_features(&self) -> Result<FeatureTable> {
        if let Some(types) = self.types() {
            return self.features_by_type(types);
        }
        let stored = self.stored_features()?;
        match self.shard().and_then(ShardInfo::columns) {
            Some((held, dim)) => Ok(stored.within(held, dim)),
            None => Ok(stored.indexed(self.index().cloned())),
        }
    }

    /// Like [`Dataset::labels`], but works for a shard: the classes of its own vertices.
    pub fn held_labels(&self) -> Result<ClassLabels> {
        self.held(self.stored_labels()?)
    }

    /// Like [`Dataset::numeric_labels`], but works for a shard: the numbers of its own vertices.
    pub fn held_numeric_labels(&self) -> Result<NumericLabels> {
        self.held(self.stored_numeric_labels()?)
    }

    fn held<T: Label>(&self, stored: Column<T>) -> Result<HeldLabels<T>> {
        let shard = self
            .index()
            .map(|index| Ok::<_, Error>((index.clone(), self.unlabelled()?)))
            .transpose()?;
        Ok(HeldLabels::new(stored, shard))
    }

    /// Like [`Dataset::multi_labels`], but works for a shard: the classes of its own vertices.
    pub fn held_multi_labels(&self) -> Result<MultiLabels> {
        Ok(self.stored_multi_labels()?.indexed(self.index().cloned()))
    }

    /// Vertices of the whole train split without a class, as stored in a shard.
    fn unlabelled(&self) -> Result<Column<u32>> {
        let path = self.part(UNLABELLED, "list of unlabelled vertices", "cut it again")?;
        let vertices = Column::<u32>::open(&path)?;
        check_ascending(self.num_vertices(), &vertices)
            .map_err(|problem| Error::corrupt(path, problem))?;
        Ok(vertices)
    }

    /// Refuses a shard, which does not have `what` for every vertex.
    pub(crate) fn expect_whole(&self, what: &str) -> Result<()> {
        let Some(shard) = self.shard() else { return Ok(()) };
        let remedy =
            format!("it is {shard}: use the dataset `{}` that it was cut from", self.name());
        Err(self.missing(format!("{what} of all vertices"), remedy))
    }
}

#[cfg(test)]
mod tests;
