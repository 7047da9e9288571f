//! Ownership of the rows of each frontier of a mini-batch, and the seeds that follow from it.

use gsplit_kernels::ExcludedEdges;

/// Holders of a frontier's rows.
#[derive(Clone, Copy, Debug)]
pub enum Ownership<'a> {
    /// Each rank holds the rows that it needs.
    Mine,
    /// The partition map says the rank of each vertex, from 0: one entry a vertex of the graph.
    Map(&'a [u16]),
}

impl<'a> Ownership<'a> {
    /// Rank of each vertex, where a partition map says it.
    pub fn map(self) -> Option<&'a [u16]> {
        match self {
            Self::Mine => None,
            Self::Map(owners) => Some(owners),
        }
    }
}

/// Holders of the rows of each frontier of a mini-batch, from the seeds (0) down to the rows that are loaded. The holder of a row
/// computes it, or loads it in the last frontier. Layer `depth` computes the rows of frontier `depth` from those of frontier `depth + 1`.
#[derive(Clone, Debug)]
pub struct Frontiers<'a> {
    owners: Vec<Ownership<'a>>,
}

impl<'a> Frontiers<'a> {
    /// The same ownership for all frontiers of `layers` layers.
    pub fn all(ownership: Ownership<'a>, layers: usize) -> Self {
        Self { owners: vec![ownership; layers + 1] }
    }

    /// Seeds by `map`, and the rows that the lowest `split_layers` of `layers` layers read by it too; above, each rank has the rows that
    /// it needs.
    pub fn split_below(map: &'a [u16], layers: usize, split_layers: usize) -> Self {
        let by_map = |depth| depth == 0 || depth + split_layers > layers;
        let owner = |depth| if by_map(depth) { Ownership::Map(map) } else { Ownership::Mine };
        Self { owners: (0..=layers).map(owner).collect() }
    }

    /// Ownership of frontier `depth`.
    pub fn at(&self, depth: usize) -> Ownership<'a> {
        self.owners[depth]
    }

    /// Ownership of the seeds.
    pub fn seeds(&self) -> Ownership<'a> {
        self.owners[0]
    }

    /// Ownership of the feature rows.
    pub fn loaded(&self) -> Ownership<'a> {
        self.owners[self.owners.len() - 1]
    }

    /// The partition map, where rows move by it: where a frontier below the seeds has it.
    pub fn map(&self) -> Option<&'a [u16]> {
        self.owners[1..].iter().find_map(|owner| owner.map())
    }

    /// The partition map where a rank samples its own vertices alone: where every frontier has it.
    pub fn map_of_all(&self) -> Option<&'a [u16]> {
        self.map().filter(|_| self.owners.iter().all(|owner| owner.map().is_some()))
    }
}

/// One rank's seeds of a global mini-batch.
///
/// Every rank draws the same global mini-batch from the shared seed and keeps its portion. Shuffling each part on its own would stratify
/// the mini-batches by part, which changes what is learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// This rank's seeds, distinct, possibly none.
    pub local: Vec<u32>,
    /// Edges that are not sampled for this mini-batch, on any rank.
    pub excluded: Option<ExcludedEdges>,
}

impl Seeds {
    /// Seeds of rank `rank` of `ranks` in `batch`, the global mini-batch or its group's portion of one: those that the rank owns under a
    /// partition map, else an equal consecutive portion.
    pub fn of(batch: &[u32], ownership: Ownership<'_>, rank: usize, ranks: usize) -> Self {
        let local = match ownership {
            Ownership::Map(part) => batch.iter().copied().filter(|&v| part[v as usize] as usize == rank).collect(),
            Ownership::Mine => batch[batch.len() * rank / ranks..batch.len() * (rank + 1) / ranks].to_vec(),
        };
        Self { local, excluded: None }
    }
}
