//! The kernels' sources.

use super::Kernel;

/// A file of kernels.
#[derive(Debug)]
pub struct Module {
    /// The operation.
    pub name: &'static str,
    /// CUDA C.
    pub source: &'static str,
}

impl Module {
    /// Its kernel `name`.
    pub(crate) fn kernel(&'static self, name: &'static str) -> Kernel {
        Kernel { module: self, name }
    }
}

/// Headers that kernels may include.
pub(super) const HEADERS: [(&str, &str); 6] = [
    ("device.cuh", include_str!("device.cuh")),
    ("columns.cuh", include_str!("columns.cuh")),
    ("rows.cuh", include_str!("rows.cuh")),
    ("table.cuh", include_str!("table.cuh")),
    ("draw.cuh", include_str!("../sample/draw.cuh")),
    ("sum.cuh", include_str!("../spmm/sum.cuh")),
];

/// All files of kernels.
pub(super) const MODULES: &[&Module] = &[
    &crate::activation::cuda::MODULE,
    &crate::attention::cuda::MODULE,
    &crate::columns::cuda::MODULE,
    &crate::count::cuda::MODULE,
    &crate::edges::cuda::MODULE,
    &crate::gather::cached::MODULE,
    &crate::gather::cuda::MODULE,
    &crate::group::cuda::MODULE,
    &crate::norm::sums::MODULE,
    &crate::reduce::cuda::MODULE,
    &crate::sample::cuda::MODULE,
    &crate::scan::cuda::MODULE,
    &crate::segment::cuda::MODULE,
    &crate::shuffle::cuda::MODULE,
    &crate::split::cuda::MODULE,
    &crate::spmm::cuda::MAX,
    &crate::spmm::cuda::MODULE,
    &crate::spmm::cuda::NARROW,
    &crate::unique::cuda::MODULE,
];
