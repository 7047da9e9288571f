//! The messages of one collective: where each rank's part of a buffer is, and what is sent and received there.

use std::ops::Range;

use super::super::starts;
use crate::cuda::{DeviceSlice, DeviceSliceMut, GpuError};

/// Messages start where 16-byte loads may.
const ALIGNMENT: usize = 16;

/// Part of a group of sends and receives. Those between the same two ranks meet in their order.
pub(crate) enum Message<'a> {
    /// These bytes for a rank.
    Send { to: usize, bytes: DeviceSlice<'a, u8> },
    /// As many bytes from a rank.
    Receive { from: usize, bytes: DeviceSliceMut<'a, u8> },
}

/// Where in a buffer the part of each rank is.
pub(super) struct Parts {
    pub starts: Vec<usize>,
    pub bytes: Vec<usize>,
}

impl Parts {
    /// One behind the other.
    pub fn packed(bytes: &[usize]) -> Self {
        Self { starts: starts(bytes), bytes: bytes.to_vec() }
    }

    /// Each where 16-byte loads may start.
    pub fn aligned(bytes: Vec<usize>) -> Self {
        let rounded: Vec<usize> = bytes.iter().map(|bytes| bytes.next_multiple_of(ALIGNMENT)).collect();
        Self { starts: starts(&rounded), bytes }
    }

    pub fn end(&self) -> usize {
        self.starts.last().zip(self.bytes.last()).map_or(0, |(start, bytes)| start + bytes)
    }

    pub fn of(&self, rank: usize) -> Range<usize> {
        self.starts[rank]..self.starts[rank] + self.bytes[rank]
    }
}

/// Adds one message to each rank but `me` that has bytes in `from`.
pub(super) fn sends<'a>(
    me: usize,
    from: DeviceSlice<'a, u8>,
    parts: &Parts,
    messages: &mut Vec<Message<'a>>,
) -> Result<(), GpuError> {
    for to in (0..parts.bytes.len()).filter(|&to| to != me && parts.bytes[to] > 0) {
        let Range { start, end } = parts.of(to);
        messages.push(Message::Send { to, bytes: from.part(start, end)? });
    }
    Ok(())
}

/// Adds one message from each rank but `me` that has room in `to`.
pub(super) fn receives<'a>(
    me: usize,
    to: DeviceSliceMut<'a, u8>,
    parts: &Parts,
    messages: &mut Vec<Message<'a>>,
) -> Result<(), GpuError> {
    let (mut rest, mut at) = (to, 0);
    for from in (0..parts.bytes.len()).filter(|&from| from != me && parts.bytes[from] > 0) {
        let Range { start, end } = parts.of(from);
        let (_, behind) = rest.split_at(start - at)?;
        let (bytes, behind) = behind.split_at(end - start)?;
        messages.push(Message::Receive { from, bytes });
        (rest, at) = (behind, end);
    }
    Ok(())
}
