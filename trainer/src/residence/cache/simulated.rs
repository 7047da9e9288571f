//! Counts the cache hits that ranks on the host would have if they were GPUs with caches; nothing
//! is copied.
//!
//! Cost: two bits per vertex and rank; a lookup of both for each loaded row.

use gsplit_kernels::{CacheHits, VertexSet};

use super::Caches;

/// Rows that a rank would find in its own cache, and in its peers' caches.
#[derive(Clone, Debug)]
pub struct SimulatedCache {
    own: VertexSet,
    peers: VertexSet,
}

impl SimulatedCache {
    /// Creates the counter for `rank`, of a graph of `num_vertices` vertices.
    pub fn new(caches: &Caches, rank: usize, num_vertices: usize) -> Self {
        let of_peers = caches.peers(rank).iter().flat_map(|&peer| caches.of(peer).iter().copied());
        let own = caches.of(rank).iter().copied();
        Self {
            own: VertexSet::new(num_vertices, own),
            peers: VertexSet::new(num_vertices, of_peers),
        }
    }

    /// Number of hits among the rows of `vertices`.
    pub fn hits(&self, vertices: &[u32]) -> CacheHits {
        vertices.iter().fold(CacheHits::default(), |CacheHits { own, peer }, &v| {
            match (self.own.contains(v), self.peers.contains(v)) {
                (true, _) => CacheHits { own: own + 1, peer },
                (false, true) => CacheHits { own, peer: peer + 1 },
                (false, false) => CacheHits { own, peer },
            }
        })
    }
}
