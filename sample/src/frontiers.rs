//! Assignment of a mini-batch's frontier rows and seeds to ranks.

use gsplit_kernels::ExcludedEdges;

/// Assignment of a frontier's rows to ranks.
#[derive(Clone, Copy, Debug)]
pub enum Ownership<'a> {
    /// Each rank holds the rows that it needs.
    Mine,
    /// The partition map gives the rank of each vertex, from 0, with one entry per vertex of the
    /// graph.
    Map(&'a [u16]),
}

impl<'a> Ownership<'a> {
    /// The rank of each vertex, if a partition map gives it.
    pub fn map(self) -> Option<&'a [u16]> {
        match self {
            Self::Mine => None,
            Self::Map(owners) => Some(owners),
        }
    }
}

/// Assignment of the rows of a mini-batch's frontiers to ranks, from the seeds (0) down to the
/// input rows. The rank that holds a row computes it, or loads it in the last frontier. Layer
/// `depth` computes frontier `depth` from frontier `depth + 1`.
#[derive(Clone, Debug)]
pub struct Frontiers<'a> {
    owners: Vec<Ownership<'a>>,
}

impl<'a> Frontiers<'a> {
    /// Uses `ownership` for all frontiers of `layers` layers.
    pub fn all(ownership: Ownership<'a>, layers: usize) -> Self {
        Self { owners: vec![ownership; layers + 1] }
    }

    /// Divides the seeds and the rows that the lowest `split_layers` of `layers` layers read by
    /// `map`; above them, each rank holds the rows that it needs.
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

    /// The partition map, if any frontier below the seeds uses it, so that rows move between ranks.
    pub fn map(&self) -> Option<&'a [u16]> {
        self.owners[1..].iter().find_map(|owner| owner.map())
    }

    /// The partition map, if every frontier uses it, so that each rank samples only its own
    /// vertices.
    pub fn map_of_all(&self) -> Option<&'a [u16]> {
        self.map().filter(|_| self.owners.iter().all(|owner| owner.map().is_some()))
    }
}

/// One rank's seeds of a global mini-batch.
///
/// Every rank draws the same global mini-batch from the shared seed and keeps its portion.
/// Shuffling each part on its own would stratify the mini-batches by part, which changes the
/// trained model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// This rank's seeds, distinct, possibly none.
    pub local: Vec<u32>,
    /// Edges that no rank samples for this mini-batch.
    pub excluded: Option<ExcludedEdges>,
}

impl Seeds {
    /// The seeds of rank `rank` of `ranks` in `batch`, the global mini-batch or its group's portion
    /// of one: the seeds that the rank owns under a partition map, otherwise an equal consecutive
    /// portion.
    pub fn of(batch: &[u32], ownership: Ownership<'_>, rank: usize, ranks: usize) -> Self {
        let local = match ownership {
            Ownership::Map(part) => {
                batch.iter().copied().filter(|&v| part[v as usize] as usize == rank).collect()
            }
            Ownership::Mine => {
                batch[batch.len() * rank / ranks..batch.len() * (rank + 1) / ranks].to_vec()
            }
        };
        Self { local, excluded: None }
    }
}
