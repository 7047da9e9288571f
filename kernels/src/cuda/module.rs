//! The kernels' sources.

/// A file of kernels.
#[derive(Debug)]
pub(crate) struct Module {
    /// The operation.
    pub name: &'static str,
    /// CUDA C.
    pub source: &'static str,
}

/// What kernels may include.
pub(super) const HEADERS: [(&str, &str); 1] = [("device.cuh", include_str!("device.cuh"))];

/// All files of kernels, which are compiled by a test.
#[cfg(test)]
pub(super) const MODULES: &[&Module] = &[&crate::gather::cached::MODULE, &crate::gather::cuda::MODULE];
