//! Which seeds of a mini-batch are this rank's.

use gsplit_kernels::ExcludedEdges;

use super::Ownership;

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
