//! Cache hits that ranks on the host would have if they were GPUs with caches: nothing is copied, loads are counted alone.
//!
//! Cost: two bits a vertex for each rank; a look at both for each loaded row.

use gsplit_kernels::{CacheHits, VertexSet};

use super::Caches;

/// Rows that a rank would find in its own cache, and in those that it reads.
#[derive(Clone, Debug)]
pub struct SimulatedCache {
    own: VertexSet,
    peers: VertexSet,
}

impl SimulatedCache {
    /// For `rank`, of a graph of so many vertices.
    pub fn new(caches: &Caches, rank: usize, num_vertices: usize) -> Self {
        let of_peers = caches.peers(rank).iter().flat_map(|&peer| caches.of(peer).iter().copied());
        let own = caches.of(rank).iter().copied();
        Self { own: VertexSet::new(num_vertices, own), peers: VertexSet::new(num_vertices, of_peers) }
    }

    /// Hits among the rows of `vertices`.
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
