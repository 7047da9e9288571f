//! A group for tests whose ranks move nothing from GPU to GPU, whatever theirs could.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Communicator;
use crate::error::CommError;

/// One rank's end of another group, without its [`Communicator::devices`].
pub struct ByHost<'a> {
    group: &'a dyn Communicator,
    sent: AtomicUsize,
}

impl<'a> ByHost<'a> {
    /// The ranks of `group`.
    pub fn new(group: &'a dyn Communicator) -> Self {
        Self { group, sent: AtomicUsize::new(0) }
    }

    /// Bytes that this rank has passed to all-to-alls since it was last asked.
    pub fn take_sent(&self) -> usize {
        self.sent.swap(0, Ordering::Relaxed)
    }
}

impl Communicator for ByHost<'_> {
    fn rank(&self) -> usize {
        self.group.rank()
    }

    fn size(&self) -> usize {
        self.group.size()
    }

    fn name(&self, rank: usize) -> usize {
        self.group.name(rank)
    }

    fn barrier(&self) -> Result<(), CommError> {
        self.group.barrier()
    }

    fn all_to_all_bytes(&self, send: &[u8], to: &[usize], recv: &mut [u8], from: &[usize]) -> Result<(), CommError> {
        self.sent.fetch_add(send.len(), Ordering::Relaxed);
        self.group.all_to_all_bytes(send, to, recv, from)
    }

    fn all_reduce_sum_f32(&self, values: &mut [f32]) -> Result<(), CommError> {
        self.group.all_reduce_sum_f32(values)
    }

    fn all_reduce_sum_f64(&self, values: &mut [f64]) -> Result<(), CommError> {
        self.group.all_reduce_sum_f64(values)
    }

    fn all_reduce_sum_u64(&self, values: &mut [u64]) -> Result<(), CommError> {
        self.group.all_reduce_sum_u64(values)
    }

    fn all_gather_bytes(&self, send: &[u8], recv: &mut [u8]) -> Result<(), CommError> {
        self.group.all_gather_bytes(send, recv)
    }

    fn suspend_timeout(&self, suspended: bool) {
        self.group.suspend_timeout(suspended);
    }

    fn fail(&self, reason: &str) {
        self.group.fail(reason);
    }
}
