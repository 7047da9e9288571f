//! Ids of the raw input that are numbers.

use crate::Column;

/// Ids of the raw input, if they are numbers other than the vertices' own.
#[derive(Clone, Debug)]
pub enum OriginalIds {
    /// The id of each vertex, in a file.
    Listed(Column<u64>),
    /// Vertex v has the id `first` + v.
    Counted {
        /// The id of vertex 0.
        first: u64,
        /// Number of vertices.
        num_vertices: usize,
    },
}

impl OriginalIds {
    /// Ids that count from `first`; `None` if they equal the vertices.
    pub fn counted(first: u64, num_vertices: usize) -> Option<Self> {
        (first > 0).then_some(Self::Counted { first, num_vertices })
    }

    /// The id of vertex `v`.
    pub fn get(&self, v: usize) -> u64 {
        match self {
            Self::Listed(ids) => ids[v],
            Self::Counted { first, .. } => first + v as u64,
        }
    }

    /// All ids, in the order of the vertices.
    pub fn to_vec(&self) -> Vec<u64> {
        match self {
            Self::Listed(ids) => ids.to_vec(),
            Self::Counted { first, num_vertices } => {
                (*first..first + *num_vertices as u64).collect()
            }
        }
    }
}
