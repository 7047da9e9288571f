//! Collectives made of one operation: every rank sends each of the others a message.

use std::time::Duration;

use bytemuck::{Pod, cast_slice, cast_slice_mut, pod_read_unaligned};

use super::wait::Limit;
use super::{Communicator, DeviceExchange, Seat, starts};
use crate::error::CommError;

/// Group of ranks that can send each other messages, which makes it a [`Communicator`].
pub trait Messages: Send + Sync {
    /// [`Communicator::seat`].
    fn seat(&self) -> Seat;

    /// Sends `outgoing(r)` to each rank `r`, and gives `incoming` the message of each rank, in rank
    /// order, of `expected(r)` bytes from rank `r`. `called` is the collective. A group implements
    /// this, or [`Messages::exchange_into`] if it receives in place.
    fn exchange<'a>(
        &self,
        called: &'static str,
        outgoing: &dyn Fn(usize) -> &'a [u8],
        expected: &dyn Fn(usize) -> usize,
        incoming: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), CommError> {
        let ranks = 0..self.seat().size;
        let mut received = vec![0; ranks.clone().map(expected).sum()];
        self.exchange_into(called, outgoing, expected, &mut received)?;
        let mut rest = &received[..];
        for from in ranks {
            let (message, tail) = rest.split_at(expected(from));
            incoming(from, message);
            rest = tail;
        }
        Ok(())
    }

    /// Like [`Messages::exchange`], with the messages put into `recv` one after the other.
    fn exchange_into<'a>(
        &self,
        called: &'static str,
        outgoing: &dyn Fn(usize) -> &'a [u8],
        expected: &dyn Fn(usize) -> usize,
        recv: &mut [u8],
    ) -> Result<(), CommError> {
        let mut rest = recv;
        self.exchange(called, outgoing, expected, &mut |_, message| {
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(message.len());
            part.copy_from_slice(message);
            rest = tail;
        })
    }

    /// How long its collectives may wait, and have waited so far.
    fn limit(&self) -> &Limit;

    /// Why the group has ended, if this rank knows that it has.
    fn failed(&self) -> Option<CommError>;

    /// [`Communicator::devices`].
    fn devices(&self) -> Option<&dyn DeviceExchange> {
        None
    }

    /// [`Communicator::fail`].
    fn leave(&self, reason: &str);
}

/// Refuses a message to the rank of `seat` of another size than expected.
pub fn check_message(
    seat: Seat,
    from: usize,
    sent: usize,
    expected: usize,
) -> Result<(), CommError> {
    match sent == expected {
        true => Ok(()),
        false => {
            Err(CommError::Mismatch { from: seat.name(from), to: seat.own_name(), sent, expected })
        }
    }
}

/// Checks that the sizes of the parts to send, and to receive, are one for each rank and add up to
/// the length of their buffer.
pub(super) fn check_parts(
    seat: Seat,
    send: (&[usize], usize),
    recv: (&[usize], usize),
) -> Result<(), CommError> {
    for (counts, buffer) in [send, recv] {
        let sum = counts.iter().fold(0usize, |sum, &count| sum.saturating_add(count));
        let is_whole = counts.len() == seat.size;
        check_message(seat, seat.rank, if is_whole { sum } else { usize::MAX }, buffer)?;
    }
    Ok(())
}

/// Leaves the group if a call failed on this rank: the others must not wait for it.
pub(super) fn or_leave<T>(
    comm: &dyn Messages,
    result: Result<T, CommError>,
) -> Result<T, CommError> {
    result.inspect_err(|error| comm.leave(&error.to_string()))
}

/// Sums over the ranks, in rank order: rank `r` sums the `r`-th portion of the values, then sends
/// it to all.
fn all_reduce<T: Pod>(
    comm: &dyn Messages,
    called: &'static str,
    values: &mut [T],
    add: impl Fn(T, T) -> T,
) -> Result<(), CommError> {
    let (Seat { rank, size, .. }, len) = (comm.seat(), values.len());
    if size == 1 {
        return Ok(());
    }
    let portion = |rank: usize| len * rank / size..len * (rank + 1) / size;
    let mut sums = vec![T::zeroed(); portion(rank).len()];
    let bytes = size_of_val(sums.as_slice());
    let outgoing = |to: usize| cast_slice(&values[portion(to)]);
    comm.exchange(called, &outgoing, &|_| bytes, &mut |from, message| {
        for (sum, bytes) in sums.iter_mut().zip(message.chunks_exact(size_of::<T>())) {
            let value = pod_read_unaligned(bytes);
            // The first is copied, not added to 0, which would lose the sign of -0.
            *sum = if from == 0 { value } else { add(*sum, value) };
        }
    })?;
    let sums: &[u8] = cast_slice(&sums);
    comm.exchange_into(
        called,
        &|_| sums,
        &|from| portion(from).len() * size_of::<T>(),
        cast_slice_mut(values),
    )
}

impl<E: Messages> Communicator for E {
    fn seat(&self) -> Seat {
        Messages::seat(self)
    }

    fn barrier(&self) -> Result<(), CommError> {
        or_leave(self, self.exchange("barrier", &|_| &[], &|_| 0, &mut |_, _| {}))
    }

    fn all_to_all_bytes(
        &self,
        send: &[u8],
        send_bytes: &[usize],
        recv: &mut [u8],
        recv_bytes: &[usize],
    ) -> Result<(), CommError> {
        let seat = Messages::seat(self);
        or_leave(self, check_parts(seat, (send_bytes, send.len()), (recv_bytes, recv.len())))?;
        let starts = starts(send_bytes);
        let outgoing = |to: usize| &send[starts[to]..starts[to] + send_bytes[to]];
        or_leave(self, self.exchange_into("all_to_all", &outgoing, &|from| recv_bytes[from], recv))
    }

    fn all_reduce_sum_f32(&self, values: &mut [f32]) -> Result<(), CommError> {
        or_leave(self, all_reduce(self, "all_reduce_sum_f32", values, |a, b| a + b))
    }

    fn all_reduce_sum_f64(&self, values: &mut [f64]) -> Result<(), CommError> {
        or_leave(self, all_reduce(self, "all_reduce_sum_f64", values, |a, b| a + b))
    }

    fn all_reduce_sum_u64(&self, values: &mut [u64]) -> Result<(), CommError> {
        or_leave(self, all_reduce(self, "all_reduce_sum_u64", values, u64::wrapping_add))
    }

    fn all_gather_bytes(&self, send: &[u8], recv: &mut [u8]) -> Result<(), CommError> {
        let seat = Messages::seat(self);
        let sent = send.len().saturating_mul(seat.size);
        or_leave(self, check_message(seat, seat.rank, sent, recv.len()))?;
        or_leave(self, self.exchange_into("all_gather", &|_| send, &|_| send.len(), recv))
    }

    fn suspend_timeout(&self, suspended: bool) {
        self.limit().suspend(suspended);
    }

    fn waited(&self) -> Duration {
        self.limit().waited()
    }

    fn devices(&self) -> Option<&dyn DeviceExchange> {
        Messages::devices(self)
    }

    fn fail(&self, reason: &str) {
        self.leave(reason);
    }
}
