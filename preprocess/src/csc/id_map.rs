//! From the ids of the input to the vertices of a dataset under construction.

use std::ops::Range;

use gsplit_store::{Column, Dataset, DatasetWriter, Names};
use xxhash_rust::xxh3::xxh3_64;

use super::table::IdTable;
use crate::Result;

/// Map from ids of the input to vertices.
pub enum IdMap {
    /// Ids count the vertices.
    Counted(Range<u64>),
    /// Ids were numbers and were compacted: 8 to 13 bytes a vertex.
    Compacted(IdTable),
    /// Ids were strings, known by their hashes: 16 to 25 bytes a vertex.
    Named(IdTable, Names),
}

impl IdMap {
    /// The map of the vertices in `dataset`, whose graph is written.
    pub fn of(dataset: &DatasetWriter) -> Result<Self> {
        let counted = dataset.first_id()..dataset.first_id() + dataset.num_vertices();
        Self::new(dataset.listed_ids()?, dataset.original_names()?, counted)
    }

    /// The map of the vertices of a finished dataset.
    pub fn stored(dataset: &Dataset) -> Result<Self> {
        let first = dataset.manifest().first_id;
        Self::new(
            dataset.listed_ids()?,
            dataset.original_names()?,
            first..first + dataset.num_vertices() as u64,
        )
    }

    fn new(listed: Option<Column<u64>>, names: Option<Names>, counted: Range<u64>) -> Result<Self> {
        if let Some(ids) = listed {
            return Ok(Self::Compacted(IdTable::ascending(ids.to_vec())));
        }
        let Some(names) = names else { return Ok(Self::Counted(counted)) };
        let pairs =
            names.iter().zip(0..).map(|(name, vertex)| Ok((xxh3_64(name?.as_bytes()), vertex)));
        Ok(Self::Named(IdTable::of(pairs.collect::<Result<_>>()?), names))
    }

    /// The id of `vertex`; of a string its hash.
    pub fn id_of(&self, vertex: u32) -> Result<u64> {
        Ok(match self {
            Self::Counted(ids) => ids.start + u64::from(vertex),
            Self::Compacted(table) => table.keys()[vertex as usize],
            Self::Named(_, names) => xxh3_64(names.get(vertex)?.as_bytes()),
        })
    }

    /// The vertex of `id` (of a string: its hash), if it is one.
    pub fn find(&self, id: u64) -> Option<u32> {
        match self {
            Self::Counted(ids) => ids.contains(&id).then(|| (id - ids.start) as u32),
            Self::Compacted(table) | Self::Named(table, _) => table.find(id),
        }
    }

    /// The id of `vertex`, for people.
    pub fn original(&self, vertex: u32) -> String {
        match self {
            Self::Counted(ids) => (ids.start + u64::from(vertex)).to_string(),
            Self::Compacted(table) => {
                table.keys().get(vertex as usize).map_or_else(String::new, u64::to_string)
            }
            Self::Named(_, names) => {
                names.get(vertex).map_or_else(|_| String::new(), |name| format!("`{name}`"))
            }
        }
    }

    /// Text of an `id` that is not a vertex, for messages. The string of a hashed id is unknown.
    pub fn unknown(&self, id: u64) -> String {
        match self {
            Self::Named(..) => "an id".into(),
            Self::Counted(Range { start: first @ 1.., end }) => {
                format!("{id} (ids count from {first} to {})", end - 1)
            }
            _ => id.to_string(),
        }
    }
}
