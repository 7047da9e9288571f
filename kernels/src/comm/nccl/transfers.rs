//! The transfers of one collective.

use super::super::starts;
use crate::cuda::{DeviceSlice, DeviceSliceMut, GpuError};

/// Part of a group of sends and receives. Transfers between the same two ranks match in their order.
pub(crate) enum Transfer<'a> {
    /// Sends these bytes to a rank.
    Send { to: usize, bytes: DeviceSlice<'a, u8> },
    /// Receives as many bytes from a rank.
    Receive { from: usize, bytes: DeviceSliceMut<'a, u8> },
}

/// Adds one transfer to each rank except `me` that has a part in `from`; `bytes[r]` is the size for rank `r`.
pub(super) fn sends<'a>(
    me: usize,
    from: DeviceSlice<'a, u8>,
    bytes: &[usize],
    transfers: &mut Vec<Transfer<'a>>,
) -> Result<(), GpuError> {
    for (to, (start, &bytes)) in starts(bytes).into_iter().zip(bytes).enumerate() {
        if to != me && bytes > 0 {
            transfers.push(Transfer::Send { to, bytes: from.part(start, start + bytes)? });
        }
    }
    Ok(())
}

/// Adds one transfer from each rank except `me` that has a part in `to`; `bytes[r]` is the size for rank `r`.
pub(super) fn receives<'a>(
    me: usize,
    to: DeviceSliceMut<'a, u8>,
    bytes: &[usize],
    transfers: &mut Vec<Transfer<'a>>,
) -> Result<(), GpuError> {
    let mut rest = to;
    for (from, &bytes) in bytes.iter().enumerate() {
        let (part, behind) = rest.split_at(bytes)?;
        if from != me && bytes > 0 {
            transfers.push(Transfer::Receive { from, bytes: part });
        }
        rest = behind;
    }
    Ok(())
}
