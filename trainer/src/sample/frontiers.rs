//! Who holds the rows of each frontier of a mini-batch.

use crate::config::TrainConfig;

/// Who holds a frontier's rows.
#[derive(Clone, Copy, Debug)]
pub enum Ownership<'a> {
    /// Each rank those that it needs.
    Mine,
    /// The rank that the partition map says.
    Map(&'a [u16]),
}

/// Who holds the rows of each frontier of a mini-batch, from the seeds (0) down to the rows that are loaded: who computes
/// them, and loads the last; and how those that another rank needs get there. Layer `depth` computes the rows of frontier
/// `depth` from those of frontier `depth + 1`.
#[derive(Clone, Debug)]
pub struct Frontiers<'a> {
    owners: Vec<Ownership<'a>>,
}

impl<'a> Frontiers<'a> {
    /// The same for all frontiers of `layers` layers.
    pub fn all(ownership: Ownership<'a>, layers: usize) -> Self {
        Self { owners: vec![ownership; layers + 1] }
    }

    /// Seeds by `map`, and the lowest `split_layers` of `layers` layers read rows by it too; above, each rank has the rows
    /// that it needs.
    pub fn split_below(map: &'a [u16], layers: usize, split_layers: usize) -> Self {
        let by_map = |depth| depth == 0 || depth + split_layers > layers;
        let owner = |depth| if by_map(depth) { Ownership::Map(map) } else { Ownership::Mine };
        Self { owners: (0..=layers).map(owner).collect() }
    }

    /// Who holds frontier `depth`.
    pub fn at(&self, depth: usize) -> Ownership<'a> {
        self.owners[depth]
    }

    /// Who computes the seeds.
    pub fn seeds(&self) -> Ownership<'a> {
        self.owners[0]
    }

    /// Who loads the feature rows.
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

impl<'a> Ownership<'a> {
    /// Each vertex's rank, where a partition map says it.
    pub fn map(self) -> Option<&'a [u16]> {
        match self {
            Self::Mine => None,
            Self::Map(owners) => Some(owners),
        }
    }
}

impl TrainConfig {
    /// Who holds which rows; `assignment` is the partition map where the seeds are dealt by one.
    pub(crate) fn frontiers<'a>(&self, assignment: Option<&'a [u16]>) -> Frontiers<'a> {
        let layers = self.model.layers;
        match assignment {
            Some(map) => Frontiers::split_below(map, layers, self.split_layers()),
            None => Frontiers::all(Ownership::Mine, layers),
        }
    }
}
