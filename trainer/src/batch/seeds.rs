//! Which seeds of a mini-batch are this rank's, and who holds the rows below them.

use gsplit_kernels::ExcludedEdges;

use crate::config::Parallelism;

/// Who holds a frontier's rows.
#[derive(Clone, Copy, Debug)]
pub enum Ownership<'a> {
    /// Each rank those that it needs.
    Mine,
    /// The rank that the partition map says.
    Map(&'a [u16]),
}

/// Who holds the rows of a mini-batch: who computes them, and loads the lowest.
#[derive(Clone, Copy, Debug)]
pub struct Frontiers<'a> {
    /// Of the seeds.
    pub seeds: Ownership<'a>,
    /// Of every frontier below.
    pub below: Ownership<'a>,
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

/// This rank's seeds of one global mini-batch.
///
/// Every rank draws the same global batch from the shared seed and keeps its share. Shuffling each part on its own
/// would stratify the batches by part, which changes what is learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// This rank's seeds, possibly none.
    pub local: Vec<u32>,
    /// Edges that are not sampled for this mini-batch, on any rank.
    pub excluded: Option<ExcludedEdges>,
}

impl Seeds {
    /// The share of rank `rank` of `ranks` in `batch`, the global mini-batch or its group's share of one: what it owns under a
    /// partition map, else an equal consecutive share.
    pub fn of(batch: &[u32], ownership: Ownership<'_>, rank: usize, ranks: usize) -> Self {
        let local = match ownership {
            Ownership::Map(part) => batch.iter().copied().filter(|&v| part[v as usize] as usize == rank).collect(),
            Ownership::Mine => batch[batch.len() * rank / ranks..batch.len() * (rank + 1) / ranks].to_vec(),
        };
        Self { local, excluded: None }
    }
}

impl Parallelism {
    /// Who holds which rows under this parallelism; `assignment` is the partition map where one is used.
    pub(crate) fn frontiers(self, assignment: Option<&[u16]>) -> Frontiers<'_> {
        let map = assignment.map_or(Ownership::Mine, Ownership::Map);
        match self {
            Self::Split => Frontiers { seeds: map, below: map },
            Self::Owned => Frontiers { seeds: map, below: Ownership::Mine },
            Self::Data | Self::Single => Frontiers { seeds: Ownership::Mine, below: Ownership::Mine },
        }
    }
}
