//! How ranks talk: the [`Communicator`] and its implementations.
//!
//! Contract: every rank of a group makes the same collective calls in the same order. A collective
//! either happens on every rank, or every rank gets an error from it or from its next call; then
//! the group is unusable, and nobody hangs. Sums are taken in rank order, so every rank gets the
//! same bits, every time.
//!
//! ```text
//! solo.rs       a group of one                 messages.rs   collectives made of messages
//! threads.rs    threads of one process         copies.rs     rows between their GPUs
//! trainer: c10d processes that torch connects  nccl/         rows between their GPUs
//! typed.rs      slices of any type             wait.rs       how long a rank waits
//! counted.rs    counts of sent data
//! ```

#[cfg(test)]
#[path = "../../../gpu-sim/src/by_host.rs"]
mod by_host;
mod copies;
mod counted;
pub(crate) mod messages;
mod nccl;
mod solo;
mod threads;
mod typed;
mod wait;

#[cfg(test)]
pub(crate) mod tests;

#[cfg(test)]
pub(crate) use by_host::ByHost;
pub use counted::{Counted, Route, Sent, SentByRoute};
pub use nccl::Nccl;
pub(crate) use nccl::{Transfer, Transport};
pub use solo::Solo;
pub use threads::{Threads, lock};
pub use typed::{
    all_gather_v, all_to_all_counts, all_to_all_into, all_to_all_v, device_all_to_all_v,
};
pub use wait::{Limit, Since, Wait, in_phase};

use std::time::Duration;

use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu};
use crate::error::CommError;

/// Place of a rank: its number in its group, and the group's place among the ranks of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its number in the group.
    pub rank: usize,
    /// Ranks of the group.
    pub size: usize,
    /// The number in the run of the group's first rank; the others follow. Errors name ranks by
    /// their numbers in the run.
    pub first: usize,
}

impl Seat {
    /// The seat of `rank` of `size` in the group of all.
    pub fn among_all(rank: usize, size: usize) -> Self {
        Self { rank, size, first: 0 }
    }

    /// The seat of `rank` of `size` in its group, one of `groups` equal ones.
    pub fn in_group(rank: usize, size: usize, groups: usize) -> Self {
        let size = (size / groups.max(1)).max(1);
        Self { rank: rank % size, size, first: rank - rank % size }
    }

    /// The number of the group's `rank` among all ranks of the run, by which errors name it.
    pub fn name(self, rank: usize) -> usize {
        self.first + rank
    }

    /// The number of this rank among all ranks of the run.
    pub fn own_name(self) -> usize {
        self.name(self.rank)
    }
}

/// One rank's end of a group. Bytes only; [`all_to_all_v`] and its kin add types.
///
/// Every collective waits until all ranks have called it.
///
/// # Errors
/// Each method: [`CommError::PeerFailed`] when a rank has left, [`CommError::Mismatch`] when sizes
/// differ between ranks, or contradict each other on this rank, [`CommError::Order`] when ranks call different collectives, [`CommError::Timeout`] when a rank
/// has waited for longer than the group's limit, [`CommError::Gpu`] when a GPU has failed.
pub trait Communicator: Send + Sync {
    /// Place of this rank.
    fn seat(&self) -> Seat;

    /// This rank, below [`size`](Self::size).
    fn rank(&self) -> usize {
        self.seat().rank
    }

    /// Number of ranks in the group.
    fn size(&self) -> usize {
        self.seat().size
    }

    /// [`Seat::name`].
    fn name(&self, rank: usize) -> usize {
        self.seat().name(rank)
    }

    /// Waits for every rank.
    fn barrier(&self) -> Result<(), CommError>;

    /// Sends each rank its part of `send` and receives one part from each.
    ///
    /// `send` holds the part for rank 0, then for rank 1, ...: `send_bytes[r]` bytes for rank `r`.
    /// `recv` is filled with the part from rank 0, then from rank 1, ...: `recv_bytes[r]` bytes
    /// from rank `r`. Parts may be empty.
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

    /// Fills `recv` with the `send` of rank 0, then of rank 1, ... Every rank sends the same number
    /// of bytes.
    fn all_gather_bytes(&self, send: &[u8], recv: &mut [u8]) -> Result<(), CommError>;

    /// Lifts the limit from this rank's waits until it is called again with `false`: for a time in
    /// which only one rank has work that may take long, and every rank knows it.
    fn suspend_timeout(&self, _suspended: bool) {}

    /// How long this rank's collectives have waited so far: for threads until all others had
    /// called, for processes until the messages had come.
    fn waited(&self) -> Duration {
        Duration::ZERO
    }

    /// The end that moves bytes between GPUs, if this group can do that without the host; the same
    /// for all its ranks.
    fn devices(&self) -> Option<&dyn DeviceExchange> {
        None
    }

    /// Counts of the data that this rank has sent to others so far, if they are kept ([`Counted`]).
    fn sent(&self) -> SentByRoute {
        SentByRoute::default()
    }

    /// Tells the others that this rank is leaving: their waiting and later calls return
    /// [`CommError::PeerFailed`] with this reason. Of several failures, the first is the one
    /// reported.
    fn fail(&self, reason: &str);
}

/// Moves bytes between the GPUs of a group's ranks.
pub trait DeviceExchange: Send + Sync {
    /// Like [`Communicator::all_to_all_bytes`], from and to memory of `gpu`, this rank's. It sends
    /// the contents that `send` has after the earlier launches on `gpu`; later launches there find
    /// the received bytes in `recv`, and may write `send`.
    fn device_all_to_all(
        &self,
        gpu: &Gpu,
        send: DeviceSlice<'_, u8>,
        send_bytes: &[usize],
        recv: DeviceSliceMut<'_, u8>,
        recv_bytes: &[usize],
    ) -> Result<(), CommError>;
}

/// Starts of consecutive parts with these lengths.
fn starts(lengths: &[usize]) -> Vec<usize> {
    lengths
        .iter()
        .scan(0, |end, length| {
            *end += length;
            Some(*end - length)
        })
        .collect()
}
