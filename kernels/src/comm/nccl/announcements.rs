//! What ranks tell each other before every message: which collective it belongs to, and how long it is.
//!
//! NCCL waits for ever for a rank that is in another collective, or sends another number of bytes. An announcement always
//! arrives where both have come, and says which.
//!
//! A rank may look while one arrives, so it checks itself: a word with the number of the collective, from 1, in its highest byte and
//! the bytes below, and the word's complement. Over zeros, whichever bytes of the two are there, they agree only where both
//! words are whole.

use super::super::exchange::{Exchange, check_message};
use crate::cuda::{DeviceBuffer, Gpu, GpuError};
use crate::error::CommError;

/// Collectives, by what they are told apart.
const COLLECTIVES: [&str; 7] = [
    "barrier",
    "all_to_all",
    "all_reduce_sum_f32",
    "all_reduce_sum_f64",
    "all_reduce_sum_u64",
    "all_gather",
    "device_all_to_all",
];
/// Words of one.
const WORDS: usize = 2;
/// Bits of the first word below the number of the collective.
const BYTES_BITS: u32 = u64::BITS - u8::BITS;
/// Bytes of an announcement.
pub(super) const ANNOUNCEMENT: usize = WORDS * size_of::<u64>();

/// One for each rank and one of each.
#[derive(Debug)]
pub(super) struct Announcements {
    pub outgoing: DeviceBuffer<u64>,
    pub incoming: DeviceBuffer<u64>,
}

impl Announcements {
    /// Room for those of `size` ranks.
    pub fn new(gpu: &Gpu, size: usize) -> Result<Self, GpuError> {
        Ok(Self { outgoing: gpu.zeros(WORDS * size)?, incoming: gpu.zeros(WORDS * size)? })
    }

    /// Writes that `called` has so many `bytes` for each rank, and forgets what was heard.
    pub fn write(&mut self, gpu: &Gpu, called: &str, bytes: &[usize]) -> Result<(), GpuError> {
        let words: Vec<u64> = bytes.iter().flat_map(|&bytes| announced(called, bytes)).collect();
        self.outgoing.slice_mut().upload(gpu, &words)?;
        self.incoming.slice_mut().zero(gpu)
    }

    /// What was heard, once the collective has ended, is compared with what `comm` calls and expects of each rank.
    pub fn check(&self, comm: &dyn Exchange, called: &'static str, expected: &[usize]) -> Result<(), CommError> {
        let failure = |error: GpuError| CommError::Gpu { rank: comm.name(comm.rank()), reason: error.to_string() };
        let heard = self.incoming.to_vec().map_err(failure)?;
        let mut heard = heard.as_chunks().0.iter().enumerate().filter(|&(from, _)| from != comm.rank());
        heard.try_for_each(|(from, words)| match check_announced(comm, called, from, *words, expected)? {
            true => Ok(()),
            false => Err(garbled(comm, called, from)),
        })
    }
}

/// Compares what `from` has announced with what `comm` calls and expects; whether all of it has arrived yet.
pub(super) fn check_announced(
    comm: &dyn Exchange,
    called: &'static str,
    from: usize,
    [word, complement]: [u64; WORDS],
    expected: &[usize],
) -> Result<bool, CommError> {
    if complement != !word {
        return Ok(false);
    }
    let (number, bytes) = (word >> BYTES_BITS, word & !(u64::MAX << BYTES_BITS));
    if number != number_of(called) {
        let [rank, other] = [comm.rank(), from].map(|rank| comm.name(rank));
        let other_called = COLLECTIVES.get((number as usize).wrapping_sub(1)).copied().unwrap_or("another");
        return Err(CommError::Order { rank, called, other, other_called });
    }
    check_message(comm, from, bytes as usize, expected[from]).map(|()| true)
}

/// A collective has ended, but the announcement of `from` is not whole.
fn garbled(comm: &dyn Exchange, called: &str, from: usize) -> CommError {
    let [rank, from] = [comm.rank(), from].map(|rank| comm.name(rank));
    let reason = format!(
        "what rank {from} announced for {called} arrived garbled; see whether the system's log tells of errors of the GPUs \
         or of what joins them"
    );
    CommError::Gpu { rank, reason }
}

/// The announcement of so many `bytes` in `called`.
fn announced(called: &str, bytes: usize) -> [u64; WORDS] {
    let word = number_of(called) << BYTES_BITS | bytes as u64;
    [word, !word]
}

fn number_of(called: &str) -> u64 {
    1 + COLLECTIVES.iter().position(|name| *name == called).unwrap_or(COLLECTIVES.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Threads;

    #[test]
    fn an_announcement_counts_once_all_of_its_bytes_are_there() {
        let comm = Threads::group(2).remove(0);
        for (called, bytes) in [("barrier", 0), ("all_gather", 4), ("device_all_to_all", 0xff_0001_2345)] {
            let words = announced(called, bytes);
            let whole: &[u8] = bytemuck::cast_slice(&words);
            for there in 0..1u32 << ANNOUNCEMENT {
                let byte = |at: usize| if there >> at & 1 == 1 { whole[at] } else { 0 };
                let partly: [u8; ANNOUNCEMENT] = std::array::from_fn(byte);
                let counts = check_announced(&comm, called, 1, bytemuck::cast(partly), &[0, bytes]);
                assert_eq!(counts, Ok(partly == whole), "{called}: {partly:x?}");
            }
        }
    }
}
