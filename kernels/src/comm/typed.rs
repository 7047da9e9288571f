//! Collectives of typed slices, for any [`Communicator`].

use bytemuck::{Pod, cast_slice, cast_slice_mut};

use super::Communicator;
use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu};
use crate::error::CommError;

/// Tells each rank how many items it will be sent: `counts[r]` goes to rank `r`; the result's
/// element `r` came from rank `r`.
pub fn all_to_all_counts(
    comm: &dyn Communicator,
    counts: &[usize],
) -> Result<Vec<usize>, CommError> {
    let send: Vec<u64> = counts.iter().map(|&count| count as u64).collect();
    let ones = vec![1; comm.size()];
    let recv = all_to_all_v(comm, &send, &ones, &ones)?;
    Ok(recv.into_iter().map(|count| count as usize).collect())
}

/// Sends `send_counts[r]` items to each rank `r` (`send` holds rank 0's, then rank 1's, ...) and
/// returns `recv_counts[r]` items from each rank `r`, in the same arrangement.
pub fn all_to_all_v<T: Pod>(
    comm: &dyn Communicator,
    send: &[T],
    send_counts: &[usize],
    recv_counts: &[usize],
) -> Result<Vec<T>, CommError> {
    let mut recv = vec![T::zeroed(); recv_counts.iter().sum()];
    all_to_all_into(comm, send, send_counts, &mut recv, recv_counts)?;
    Ok(recv)
}

/// Like [`all_to_all_v`], into `recv`.
pub fn all_to_all_into<T: Pod>(
    comm: &dyn Communicator,
    send: &[T],
    send_counts: &[usize],
    recv: &mut [T],
    recv_counts: &[usize],
) -> Result<(), CommError> {
    let bytes = |counts: &[usize]| -> Vec<usize> {
        counts.iter().map(|count| count * size_of::<T>()).collect()
    };
    comm.all_to_all_bytes(
        cast_slice(send),
        &bytes(send_counts),
        cast_slice_mut(recv),
        &bytes(recv_counts),
    )
}

/// Like [`all_to_all_v`], from and to memory of `gpu`: without the host where the group can do that
/// ([`Communicator::devices`]), else through the host, for which it waits until the values to send
/// have been computed.
pub fn device_all_to_all_v<T: Pod>(
    comm: &dyn Communicator,
    gpu: &Gpu,
    send: DeviceSlice<'_, T>,
    send_counts: &[usize],
    recv: &mut DeviceSliceMut<'_, T>,
    recv_counts: &[usize],
) -> Result<(), CommError> {
    let bytes = |counts: &[usize]| -> Vec<usize> {
        counts.iter().map(|count| count * size_of::<T>()).collect()
    };
    if let Some(devices) = comm.devices() {
        let (sent, received) = (bytes(send_counts), bytes(recv_counts));
        return devices.device_all_to_all(
            gpu,
            send.as_bytes(),
            &sent,
            recv.reborrow().into_bytes(),
            &received,
        );
    }
    let failure = |error: crate::cuda::GpuError| {
        comm.fail(&error.to_string());
        CommError::Gpu { rank: comm.name(comm.rank()), reason: error.to_string() }
    };
    let send = send.to_vec(gpu).map_err(failure)?;
    let received = all_to_all_v(comm, &send, send_counts, recv_counts)?;
    recv.upload(gpu, &received).map_err(failure)
}

/// The items of every rank, which may differ in number: element `r` is what rank `r` sent.
pub fn all_gather_v<T: Pod>(comm: &dyn Communicator, send: &[T]) -> Result<Vec<Vec<T>>, CommError> {
    let size = comm.size();
    let mut counts = vec![0u64; size];
    comm.all_gather_bytes(cast_slice(&[send.len() as u64]), cast_slice_mut(&mut counts))?;
    let counts: Vec<usize> = counts.into_iter().map(|count| count as usize).collect();
    let recv = all_to_all_v(comm, &send.repeat(size), &vec![send.len(); size], &counts)?;
    let mut rest = recv.as_slice();
    Ok(counts
        .into_iter()
        .map(|count| {
            let (part, tail) = rest.split_at(count);
            rest = tail;
            part.to_vec()
        })
        .collect())
}
