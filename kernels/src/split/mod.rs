//! Vertices of a batch grouped by the rank that owns them.
//!
//! Contract, on every device: a stable sort by owner, so that each rank receives its vertices in
//! the sender's order.

mod cpu;
pub(crate) mod cuda;

pub use cpu::split_by_owner;
pub use cuda::DeviceOwners;

/// Positions of a list of vertices, grouped by owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Split {
    /// Number of vertices that each rank owns.
    pub counts: Vec<usize>,
    /// Positions in the list: first the positions of rank 0 in their order, then of rank 1, and so
    /// on.
    pub order: Vec<u32>,
}

impl Split {
    /// The positions that each rank owns, rank by rank.
    pub fn parts(&self) -> impl Iterator<Item = &[u32]> {
        let mut rest = self.order.as_slice();
        self.counts.iter().map(move |&count| {
            let (part, tail) = rest.split_at(count);
            rest = tail;
            part
        })
    }
}
