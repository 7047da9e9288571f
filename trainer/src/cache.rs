//! Which feature rows each GPU keeps in its own memory.
//!
//! Under a partition map a rank loads rows of its own part alone, and keeps those that the map's cache order puts first
//! (placement `partitioned`). Otherwise every rank loads any row, and all keep those that sampling meets most, the sources
//! of most edges (placement `replicated`; PaGraph, Lin et al., SoCC 2020). A row's bytes are as it is stored.

use gsplit_kernels::Graph;
use gsplit_store::{FeatureDtype, FeatureTable, PartitionMap};

use crate::batch::Ownership;
use crate::job::{Artifacts, Job};
use crate::{Error, Result};

/// The vertices whose rows each rank keeps.
pub enum CacheLists<'a> {
    /// None.
    Nothing,
    /// So many of its part's, by the map's cache order.
    OfParts(&'a PartitionMap, usize),
    /// The same on every rank.
    Replicated(Vec<u32>),
}

impl<'a> CacheLists<'a> {
    /// The rows that fit `bytes` on each GPU.
    ///
    /// # Errors
    /// [`Error::Option`] if that is not one row.
    pub fn new(job: &Job<'_>, artifacts: &'a Artifacts, bytes: Option<u64>) -> Result<Self> {
        let Some(bytes) = bytes else { return Ok(Self::Nothing) };
        let row = row_bytes(&job.features);
        let rows = usize::try_from(bytes / row).unwrap_or(usize::MAX);
        if rows == 0 {
            return Err(Error::Option(format!(
                "--cache: {bytes} bytes hold no row of {row}: give it more, or leave it out"
            )));
        }
        Ok(match (artifacts.partition(), job.ownership) {
            (Some(map), Ownership::Map(_)) => Self::OfParts(map, rows),
            _ => Self::Replicated(most_read(&job.graph, rows)),
        })
    }

    /// What `rank` keeps.
    pub fn of(&self, rank: usize) -> &[u32] {
        match self {
            Self::Nothing => &[],
            Self::OfParts(map, rows) => {
                let order = map.cache_order(rank);
                &order[..order.len().min(*rows)]
            }
            Self::Replicated(vertices) => vertices,
        }
    }
}

/// Bytes of a row on the GPU, its scale included.
fn row_bytes(features: &FeatureTable) -> u64 {
    let scale = if features.dtype() == FeatureDtype::I8 { size_of::<f32>() } else { 0 };
    (features.dim() * features.dtype().bytes() + scale).max(1) as u64
}

/// The `count` vertices that are sources of most edges, by falling number, then by their own. Cost: one pass over the edges.
fn most_read(graph: &Graph<'_>, count: usize) -> Vec<u32> {
    let n = graph.num_vertices();
    if count >= n {
        return (0..n as u32).collect();
    }
    let mut times = vec![0u64; n];
    graph.indices.iter().for_each(|&source| times[source as usize] += 1);
    let mut order: Vec<u32> = (0..n as u32).collect();
    let rank = |&v: &u32| (std::cmp::Reverse(times[v as usize]), v);
    order.select_nth_unstable_by_key(count, rank);
    order.truncate(count);
    order.sort_unstable_by_key(rank);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_of_most_edges_come_first() {
        let (indptr, indices) = ([0u64, 3, 5, 6, 9], [1u32, 2, 3, 1, 3, 3, 0, 1, 3]);
        let graph = Graph::new(&indptr, &indices).unwrap();
        assert_eq!(most_read(&graph, 2), [3, 1]);
        assert_eq!(most_read(&graph, 3), [3, 1, 0]);
        assert_eq!(most_read(&graph, 9), [0, 1, 2, 3]);
    }
}
