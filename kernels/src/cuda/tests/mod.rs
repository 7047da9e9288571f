//! GPUs of this crate's tests.

mod fake;
mod faults;

use super::{Gpu, emulated};

impl Gpu {
    /// An emulated GPU whose threads run in this order.
    pub(crate) fn emulated(order: u32) -> Self {
        emulated::emulated(order)
    }

    /// The GPU of a test: an emulated one, or GPU 0 where `GSPLIT_TEST_GPU` is set.
    pub(crate) fn under_test(order: u32) -> Self {
        emulated::under_test(order)
    }

    /// Loads and stores of emulated kernels since the last call, and their bytes.
    pub(crate) fn accesses() -> [u64; 2] {
        emulated::accesses()
    }

    /// Counts of the host's calls on this stream, if it is emulated.
    pub(crate) fn counts(&self) -> emulated::GpuCounts {
        emulated::counts(self)
    }
}
