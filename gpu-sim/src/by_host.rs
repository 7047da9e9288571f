//! A group whose ranks move nothing from GPU to GPU, whatever theirs could.

use gsplit_kernels::{CommError, Communicator, Seat, SentByRoute};

/// One rank's end of another group, without its [`Communicator::devices`].
pub struct ByHost<'a>(&'a dyn Communicator);

impl<'a> ByHost<'a> {
    /// The ranks of `group`.
    pub fn new(group: &'a dyn Communicator) -> Self {
        Self(group)
    }
}

impl Communicator for ByHost<'_> {
    fn seat(&self) -> Seat {
        self.0.seat()
    }

    fn barrier(&self) -> Result<(), CommError> {
        self.0.barrier()
    }

    fn all_to_all_bytes(
        &self,
        send: &[u8],
        to: &[usize],
        recv: &mut [u8],
        from: &[usize],
    ) -> Result<(), CommError> {
        self.0.all_to_all_bytes(send, to, recv, from)
    }

    fn all_reduce_sum_f32(&self, values: &mut [f32]) -> Result<(), CommError> {
        self.0.all_reduce_sum_f32(values)
    }

    fn all_reduce_sum_f64(&self, values: &mut [f64]) -> Result<(), CommError> {
        self.0.all_reduce_sum_f64(values)
    }

    fn all_reduce_sum_u64(&self, values: &mut [u64]) -> Result<(), CommError> {
        self.0.all_reduce_sum_u64(values)
    }

    fn all_gather_bytes(&self, send: &[u8], recv: &mut [u8]) -> Result<(), CommError> {
        self.0.all_gather_bytes(send, recv)
    }

    fn suspend_timeout(&self, suspended: bool) {
        self.0.suspend_timeout(suspended);
    }

    fn sent(&self) -> SentByRoute {
        self.0.sent()
    }

    fn fail(&self, reason: &str) {
        self.0.fail(reason);
    }
}
