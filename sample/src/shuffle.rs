//! The shuffle below one layer: the rows that go to each rank.
//!
//! Below each layer, a rank holds one row for every vertex of its local frontier (which it owns)
//! and needs one for every vertex of its mixed frontier (owned by any rank). Only rows that other
//! ranks own move. The layer reads one matrix:
//!
//! ```text
//! [ rows of the local frontier | rows received, by owner ]
//! ```
//!
//! Input: the mixed frontier of a layer on each rank, and the owner of each vertex. Idea: each rank
//! groups its mixed frontier by owner and sends each owner the list of vertices it needs; an owner
//! adds to its local frontier the ones that it does not need itself. Edges are renumbered for the
//! matrix once, by [`HostShuffle::source`]. The same lists serve features, activations and
//! gradients (GSplit, MLSys 2025, section 5). Received rows are ordered by owner, so sums do not
//! depend on timing. Cost: one exchange of counts and one of ids; time and memory proportional to
//! the mixed frontier.

use gsplit_kernels::{
    CommError, Communicator, all_to_all_counts, all_to_all_v, split_by_owner, unique,
};

use crate::SampleError;

/// Number of rows that one rank sends to and receives from each rank, with one entry per rank; 0
/// for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowCounts {
    /// Rows to each rank.
    pub send: Vec<usize>,
    /// Rows from each rank.
    pub receive: Vec<usize>,
}

impl RowCounts {
    /// Exchanges the counts of a rank that needs the rows of `needed[r]` vertices of rank `r`.
    /// Collective.
    pub fn tell(comm: &dyn Communicator, needed: &[usize]) -> Result<Self, CommError> {
        let mut receive = needed.to_vec();
        receive[comm.rank()] = 0;
        Ok(Self { send: all_to_all_counts(comm, &receive)?, receive })
    }

    /// Number of rows sent, to all ranks.
    pub fn num_sent(&self) -> usize {
        self.send.iter().sum()
    }

    /// Number of rows received, from all ranks.
    pub fn num_received(&self) -> usize {
        self.receive.iter().sum()
    }

    /// Number of values sent to and received from each rank, for rows of `dim` values.
    pub fn values(&self, dim: usize) -> [Vec<usize>; 2] {
        [&self.send, &self.receive].map(|counts| counts.iter().map(|count| count * dim).collect())
    }
}

/// Rows that move between ranks below one layer, as one rank sees it.
///
/// In the forward pass, the rows at `asked` are sent, and received rows are appended to the local
/// frontier's rows. In the backward pass, the gradients of the appended rows are sent, and received
/// gradients are added at `asked`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostExchange {
    /// Vertex of each row that the layer reads: the local frontier and then the vertices received,
    /// or the vertices of `order`.
    pub read: Vec<u32>,
    /// Number of rows that are sent and received.
    pub counts: RowCounts,
    /// Positions in the local frontier of the rows that are sent, by receiving rank.
    pub asked: Vec<u32>,
    /// Position in the matrix of each row that is read; `None` if the layer reads the matrix in
    /// order.
    pub order: Option<Vec<u32>>,
}

/// A local frontier, and the exchange that brings its rows and those of other ranks to the layer
/// above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostShuffle {
    /// This rank's own vertices of the mixed frontier in their order, followed by the ones that
    /// only other ranks need.
    pub frontier: Vec<u32>,
    /// Row of each vertex of the mixed frontier, in the matrix.
    pub source: Vec<u32>,
    /// Rows that move.
    pub exchange: HostExchange,
}

impl HostShuffle {
    /// Shuffles the distinct vertices `mixed_frontier`; `owner` gives the rank of each. Collective:
    /// every rank must call it, with an empty `mixed_frontier` if it has nothing to compute.
    ///
    /// # Errors
    /// [`KernelError::Owner`](gsplit_kernels::KernelError::Owner) if an owner is not a rank;
    /// otherwise fails as the communicator does.
    pub fn new(
        comm: &dyn Communicator,
        mixed_frontier: &[u32],
        owner: impl Fn(u32) -> usize + Sync,
    ) -> Result<Self, SampleError> {
        let me = comm.rank();
        let split = split_by_owner(mixed_frontier, comm.size(), owner)?;
        let start: usize = split.counts[..me].iter().sum();
        let end = start + split.counts[me];
        // Positions in the mixed frontier.
        let (own, others) =
            (&split.order[start..end], [&split.order[..start], &split.order[end..]].concat());
        let vertices = |positions: &[u32]| -> Vec<u32> {
            positions.iter().map(|&at| mixed_frontier[at as usize]).collect()
        };
        let (ours, needed) = (vertices(own), vertices(&others));
        let counts = RowCounts::tell(comm, &split.counts)?;
        let asked: Vec<u32> = all_to_all_v(comm, &needed, &counts.receive, &counts.send)?;

        let (frontier, mut rows) = unique(&[&ours, &asked]);
        let asked = rows.split_off(ours.len());
        let mut source = vec![0; mixed_frontier.len()];
        let behind = frontier.len() as u32..;
        for (&position, row) in own.iter().zip(rows).chain(others.iter().zip(behind)) {
            source[position as usize] = row;
        }
        let read = [&frontier[..], &needed].concat();
        Ok(Self { frontier, source, exchange: HostExchange { read, counts, asked, order: None } })
    }
}
