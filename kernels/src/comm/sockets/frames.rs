//! Frames of a connection between two processes of a run, once they have met.
//!
//! ```text
//! finished   3                                                                    1 byte
//! failed     4, the rank, the length of the reason (at most 512), the reason      1 + 4 + 2 + length
//! message    5, the channel, the collective, the length, that many bytes          1 + 1 + 1 + 8 + length
//! ```
//!
//! Numbers are little-endian.

use std::io::{Error, ErrorKind, Read, Result};

/// The longest reason that is passed on, in bytes.
const MOST: usize = 512;
const FINISHED: u8 = 3;
const FAILED: u8 = 4;
const MESSAGE: u8 = 5;

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The other process has done all it had to.
    Finished,
    /// A rank has failed, perhaps another.
    Failed { rank: usize, reason: String },
    /// Part of a collective.
    Message { channel: u8, called: u8, bytes: Vec<u8> },
}

/// The frame that says that this process has finished.
pub(super) fn finished() -> Vec<u8> {
    vec![FINISHED]
}

/// The frame that says that `rank` has failed.
pub(super) fn failed(rank: usize, reason: &str) -> Vec<u8> {
    let end = reason.char_indices().map(|(at, letter)| at + letter.len_utf8()).take_while(|&end| end <= MOST).last();
    let reason = &reason.as_bytes()[..end.unwrap_or(0)];
    [&[FAILED][..], &(rank as u32).to_le_bytes(), &(reason.len() as u16).to_le_bytes(), reason].concat()
}

/// Part of collective `called` of `channel`.
pub(super) fn message(channel: u8, called: u8, bytes: &[u8]) -> Vec<u8> {
    [&[MESSAGE, channel, called][..], &(bytes.len() as u64).to_le_bytes(), bytes].concat()
}

/// Reads the next one.
pub(super) fn read(stream: &mut impl Read) -> Result<Frame> {
    let [kind] = take(stream)?;
    match kind {
        FINISHED => Ok(Frame::Finished),
        FAILED => {
            let rank = u32::from_le_bytes(take(stream)?) as usize;
            let length = usize::from(u16::from_le_bytes(take(stream)?)).min(MOST);
            // One line, whatever came.
            let reason = read_all(stream, length as u64)?;
            let reason = String::from_utf8_lossy(&reason).replace(|letter: char| letter.is_control(), " ");
            Ok(Frame::Failed { rank, reason })
        }
        MESSAGE => {
            let [channel, called] = take(stream)?;
            let length = u64::from_le_bytes(take(stream)?);
            Ok(Frame::Message { channel, called, bytes: read_all(stream, length)? })
        }
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

fn take<const N: usize>(stream: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).map(|()| bytes)
}

/// So many bytes. Memory is taken as they come, whatever was promised.
fn read_all(stream: &mut impl Read, length: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length.min(1 << 20) as usize);
    stream.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(Error::from(ErrorKind::UnexpectedEof)) }
}
