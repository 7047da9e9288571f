//! From the ids of the input to the vertices of a dataset under construction.

use gsplit_store::{DatasetWriter, Names};
use xxhash_rust::xxh3::xxh3_64;

use super::table::IdTable;
use crate::Result;

/// Map from ids of the input to vertices.
pub enum IdMap {
    /// Ids count the vertices, from this one.
    Counted(u64),
    /// Ids were numbers and were compacted: 8 to 13 bytes a vertex.
    Compacted(IdTable),
    /// Ids were strings, known by their hashes: 16 to 25 bytes a vertex.
    Named(IdTable, Names),
}

impl IdMap {
    /// The map of the vertices in `dataset`, whose graph is written.
    pub fn of(dataset: &DatasetWriter) -> Result<Self> {
        if let Some(ids) = dataset.listed_ids()? {
            return Ok(Self::Compacted(IdTable::ascending(ids.to_vec())));
        }
        if let Some(names) = dataset.original_names()? {
            let pairs = names.iter().zip(0..).map(|(name, vertex)| Ok((xxh3_64(name?.as_bytes()), vertex)));
            let table = IdTable::of(pairs.collect::<Result<_>>()?);
            return Ok(Self::Named(table, names));
        }
        Ok(Self::Counted(dataset.first_id()))
    }

    /// The vertex of `id` (of a string: its hash), if it is one.
    pub fn find(&self, id: u64) -> Option<u32> {
        match self {
            Self::Counted(first) => u32::try_from(id.checked_sub(*first)?).ok(),
            Self::Compacted(table) | Self::Named(table, _) => table.find(id),
        }
    }

    /// The id of `vertex`, for people.
    pub fn original(&self, vertex: u32) -> String {
        match self {
            Self::Counted(first) => (first + u64::from(vertex)).to_string(),
            Self::Compacted(table) => table.keys().get(vertex as usize).map_or_else(String::new, u64::to_string),
            Self::Named(_, names) => names.get(vertex).map_or_else(|_| String::new(), |name| format!("`{name}`")),
        }
    }

    /// `id`, which is no vertex, for people: a string is not known any more.
    pub fn unknown(&self, id: u64) -> String {
        match self {
            Self::Named(..) => "an id".into(),
            Self::Counted(first @ 1..) => format!("{id} (ids count from {first})"),
            _ => id.to_string(),
        }
    }
}
