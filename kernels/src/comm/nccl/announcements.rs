//! What ranks tell each other before every message: which collective it belongs to, and how long it is.
//!
//! NCCL waits for ever for a rank that is in another collective, or sends another number of bytes. An announcement always
//! arrives where both have come, and says which.

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
/// Words of one: the number of the collective, from 1, and the bytes.
const WORDS: usize = 2;
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
        let number = number_of(called);
        let words: Vec<u64> = bytes.iter().flat_map(|&bytes| [number, bytes as u64]).collect();
        self.outgoing.slice_mut().upload(gpu, &words)?;
        self.incoming.slice_mut().zero(gpu)
    }

    /// What was heard, once the collective has ended, is compared with what `comm` calls and expects of each rank.
    pub fn check(&self, comm: &dyn Exchange, called: &'static str, expected: &[usize]) -> Result<(), CommError> {
        let failure = |error: GpuError| CommError::Gpu { rank: comm.name(comm.rank()), reason: error.to_string() };
        let heard = self.incoming.to_vec().map_err(failure)?;
        let mut heard = heard.as_chunks().0.iter().enumerate().filter(|&(from, _)| from != comm.rank());
        heard.try_for_each(|(from, words)| check_announced(comm, called, from, *words, expected).map(drop))
    }
}

/// Compares what `from` has announced with what `comm` calls and expects; whether it has announced anything yet.
pub(super) fn check_announced(
    comm: &dyn Exchange,
    called: &'static str,
    from: usize,
    [number, bytes]: [u64; WORDS],
    expected: &[usize],
) -> Result<bool, CommError> {
    let Some(at) = number.checked_sub(1) else { return Ok(false) };
    if number != number_of(called) {
        let [rank, other] = [comm.rank(), from].map(|rank| comm.name(rank));
        let other_called = COLLECTIVES.get(at as usize).copied().unwrap_or("another");
        return Err(CommError::Order { rank, called, other, other_called });
    }
    check_message(comm, from, bytes as usize, expected[from]).map(|()| true)
}

fn number_of(called: &str) -> u64 {
    1 + COLLECTIVES.iter().position(|name| *name == called).unwrap_or(COLLECTIVES.len()) as u64
}
