//! How ranks talk: the [`Communicator`] and its implementations.
//!
//! Contract: every rank of a group makes the same collective calls in the same order. A collective either happens on
//! every rank, or every rank gets an error from it or from its next call; then the group is unusable, and nobody
//! hangs. Sums are taken in rank order, so every rank gets the same bits, every time.

mod exchange;
#[cfg(feature = "mpi")]
mod mpi;
mod solo;
mod threads;
mod typed;

#[cfg(test)]
mod tests;

#[cfg(feature = "mpi")]
pub use mpi::{Mpi, MpiWorld};
pub use solo::Solo;
pub use threads::Threads;
pub use typed::{all_gather_v, all_to_all_counts, all_to_all_v};

use crate::error::CommError;

/// One rank's end of a group. Bytes only; [`all_to_all_v`] and its kin add types.
///
/// Every collective waits until all ranks have called it.
///
/// # Errors
/// Each method: [`CommError::PeerFailed`] when a rank has left, [`CommError::Mismatch`] when sizes differ between
/// ranks, [`CommError::Argument`] when sizes contradict each other on this rank, [`CommError::Order`] when ranks call
/// different collectives.
pub trait Communicator: Send + Sync {
    /// This rank, below [`size`](Self::size).
    fn rank(&self) -> usize;

    /// Number of ranks in the group.
    fn size(&self) -> usize;

    /// Waits for every rank.
    fn barrier(&self) -> Result<(), CommError>;

    /// Sends each rank its part of `send` and receives one part from each.
    ///
    /// `send` holds the part for rank 0, then for rank 1, ...: `send_bytes[r]` bytes for rank `r`. `recv` is filled
    /// with the part from rank 0, then from rank 1, ...: `recv_bytes[r]` bytes from rank `r`. Parts may be empty.
    fn all_to_all_bytes(
        &self,
        send: &[u8],
        send_bytes: &[usize],
        recv: &mut [u8],
        recv_bytes: &[usize],
    ) -> Result<(), CommError>;

    /// Replaces `values` by their sums over the ranks. Every rank passes the same number of values.
    fn all_reduce_sum_f32(&self, values: &mut [f32]) -> Result<(), CommError>;

    /// Like [`all_reduce_sum_f32`](Self::all_reduce_sum_f32).
    fn all_reduce_sum_f64(&self, values: &mut [f64]) -> Result<(), CommError>;

    /// Like [`all_reduce_sum_f32`](Self::all_reduce_sum_f32); a sum beyond `u64::MAX` wraps.
    fn all_reduce_sum_u64(&self, values: &mut [u64]) -> Result<(), CommError>;

    /// Fills `recv` with the `send` of rank 0, then of rank 1, ... Every rank sends the same number of bytes.
    fn all_gather_bytes(&self, send: &[u8], recv: &mut [u8]) -> Result<(), CommError>;

    /// Tells the others that this rank is leaving: their waiting and later calls return [`CommError::PeerFailed`]
    /// with this reason. Of several failures, the first is the one reported.
    fn fail(&self, reason: &str);
}

/// Checks that the `counts` of one side are one for each rank and add up to its buffer.
fn check_parts(comm: &dyn Communicator, what: &'static str, counts: &[usize], buffer: usize) -> Result<(), CommError> {
    let argument = |expected, got| CommError::Argument { rank: comm.rank(), what, expected, got };
    if counts.len() != comm.size() {
        return Err(argument(comm.size(), counts.len()));
    }
    let sum = counts.iter().fold(0usize, |sum, &count| sum.saturating_add(count));
    if sum != buffer { Err(argument(buffer, sum)) } else { Ok(()) }
}

/// Checks that the receive buffer of an all-gather holds one part of `part` bytes for each rank.
fn check_gather(comm: &dyn Communicator, part: usize, buffer: usize) -> Result<(), CommError> {
    let expected = part.saturating_mul(comm.size());
    if buffer == expected {
        return Ok(());
    }
    Err(CommError::Argument { rank: comm.rank(), what: "receive buffer", expected, got: buffer })
}
