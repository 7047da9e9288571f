//! What can go wrong in training, each as one line with its remedy.

use std::path::PathBuf;

use gsplit_kernels::{CommError, GpuError, KernelError};

/// Result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model cannot be trained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The dataset or one of its artifacts refused.
    #[error(transparent)]
    Store(#[from] gsplit_store::Error),
    /// An operator refused.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The group of ranks broke.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// libtorch refused.
    #[error("libtorch: {}", first_line(&.0.to_string()))]
    Torch(#[from] tch::TchError),
    /// A GPU, or what it needs.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// An option, or two of them together, make no sense: a usage error.
    #[error("{0}")]
    Option(String),
    /// The dataset cannot be trained on.
    #[error("{}: {problem}", path.display())]
    Data {
        /// The dataset.
        path: PathBuf,
        /// Expected, found, and what to do.
        problem: String,
    },
    /// The loss is no number.
    #[error(
        "the loss is {loss} at epoch {epoch}, step {step}: lower --lr or check the features; the last checkpoint is kept"
    )]
    Diverged {
        /// NaN or infinite.
        loss: f64,
        /// Epoch, from 1.
        epoch: u32,
        /// Mini-batch of the epoch, from 1.
        step: u32,
    },
    /// A gradient is no number: the weights are spoilt, though the loss before was one.
    #[error(
        "the gradient's norm is {norm} at epoch {epoch}, step {step}: lower --lr, set --clip-norm or check the features; \
         the last checkpoint is kept"
    )]
    Spoilt {
        /// NaN or infinite.
        norm: f64,
        /// Epoch, from 1.
        epoch: u32,
        /// Mini-batch of the epoch, from 1.
        step: u32,
    },
    /// The caller asked to stop.
    #[error("interrupted: the epochs before are kept where --checkpoint was given")]
    Interrupted,
    /// A rank's thread died.
    #[error("rank {rank} failed: {reason}")]
    Rank {
        /// The rank.
        rank: usize,
        /// Its last words.
        reason: String,
    },
}

/// The first line of a message: libtorch appends its stack, sometimes with the line ends escaped.
pub(crate) fn first_line(message: &str) -> &str {
    let end = message.find('\n').unwrap_or(message.len());
    let end = message.find("\\n").map_or(end, |escaped| escaped.min(end));
    &message[..end]
}
