//! Errors of sampling.

use gsplit_kernels::{CommError, KernelError};

/// Reason why a mini-batch was not sampled. The mini-batch is lost; after [`SampleError::Comm`] the group of ranks is too.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// The sampler refused its input.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The edges give no links to learn.
    #[error("{0}")]
    Links(String),
    /// The group of ranks broke.
    #[error(transparent)]
    Comm(#[from] CommError),
}
