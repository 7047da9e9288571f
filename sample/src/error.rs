//! Errors of sampling.

use gsplit_kernels::{CommError, KernelError};

/// Reason why a mini-batch was not sampled. The mini-batch is lost; after [`SampleError::Comm`] the
/// group of ranks is too.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// The sampler refused its input.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The edges cannot be learned from: there are none, or more than 32 bits can count.
    #[error("{0}")]
    Links(String),
    /// Communication within the group of ranks failed.
    #[error(transparent)]
    Comm(#[from] CommError),
}
