//! Errors of training, each one line with its remedy.

use std::any::Any;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use gsplit_kernels::{CommError, GpuError, KernelError};
use gsplit_sample::SampleError;
use safetensors::SafeTensorError;

/// Result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why a model cannot be trained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error in the dataset or one of its artifacts.
    #[error(transparent)]
    Store(gsplit_store::Error),
    /// An error in an operator.
    #[error(transparent)]
    Kernel(KernelError),
    /// An error in the communication between ranks.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// An error in libtorch.
    #[error("libtorch: {}", first_line(&.0.to_string()))]
    Torch(tch::TchError),
    /// An error in a GPU, or in a library that it needs.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A GPU does not have enough memory for its rank.
    #[error("{}{what}", .rank.map(|rank| format!("rank {rank}: ")).unwrap_or_default())]
    OutOfMemory {
        /// Rank that the GPU belongs to, if known.
        rank: Option<usize>,
        /// The GPU and the requested memory.
        what: String,
    },
    /// A GPU does not have enough memory for a layer over whole neighbourhoods.
    #[error("layer {layer} over all vertices: {what}: {remedy}")]
    Inference {
        /// Number of the layer; the layer that reads features is 1.
        layer: usize,
        /// Requested and available memory.
        what: String,
        /// Remedy.
        remedy: &'static str,
    },
    /// An invalid option, or a combination of options that is invalid: a usage error.
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
    /// The loss or the norm of its gradient is not a finite number: the weights are worthless from
    /// here on.
    #[error("the {what} is {value} at epoch {epoch}, step {step}")]
    Diverged {
        /// The loss, or the gradient's norm.
        what: &'static str,
        /// NaN or infinite.
        value: f64,
        /// Epoch, from 1.
        epoch: u32,
        /// Mini-batch of the epoch, from 1.
        step: u32,
    },
    /// Gradients in f16 are not finite whatever the scale of the loss.
    #[error(
        "in f16 no gradient is finite, whatever the loss is scaled by: {skipped} mini-batches were \
         left out: train with --dtype \
         bf16, or check the features (f16 ends at 65504)"
    )]
    Overflow {
        /// Number of mini-batches of the run that were left out.
        skipped: u64,
    },
    /// The caller asked to stop. The message says which files were written, if any.
    #[error("interrupted: {0}")]
    Interrupted(String),
    /// An error that ended a training run, with advice that takes the run's options into account.
    #[error("{error}: {advice}")]
    Advised {
        /// The failure.
        error: Box<Error>,
        /// Remedy, and the files that the run has left.
        advice: String,
    },
    /// A rank's thread died.
    #[error("rank {rank} failed: {reason}")]
    Rank {
        /// The rank.
        rank: usize,
        /// The message of its panic.
        reason: String,
    },
}

impl From<gsplit_store::Error> for Error {
    fn from(error: gsplit_store::Error) -> Self {
        match error {
            gsplit_store::Error::Interrupted => Self::Interrupted("nothing was written".into()),
            error => Self::Store(error),
        }
    }
}

impl From<KernelError> for Error {
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::Interrupted => Self::Interrupted("nothing was written".into()),
            error => Self::Kernel(error),
        }
    }
}

impl From<SampleError> for Error {
    fn from(error: SampleError) -> Self {
        match error {
            SampleError::Kernel(error) => error.into(),
            SampleError::Comm(error) => error.into(),
            SampleError::Links(problem) => Self::Option(format!("--task link: {problem}")),
        }
    }
}

impl From<tch::TchError> for Error {
    /// Recognises torch's out-of-memory errors by their message, and names the file in errors about
    /// files.
    fn from(error: tch::TchError) -> Self {
        let error = match error {
            tch::TchError::SafeTensorError { path, err: SafeTensorError::IoError(cause) } => {
                return gsplit_store::Error::io(path)(cause).into();
            }
            tch::TchError::SafeTensorError { path, .. } => {
                let problem =
                    "no tensors as safetensors, or damaged: name an older checkpoint, or train \
                     again"
                        .to_string();
                return Self::Data { path: path.into(), problem };
            }
            error => error,
        };
        match out_of_memory(&error.to_string()) {
            Some(what) => Self::OutOfMemory { rank: None, what },
            None => Self::Torch(error),
        }
    }
}

impl Error {
    /// Adds `rank` to an out-of-memory error; leaves other errors as they are.
    pub(crate) fn of_rank(self, rank: usize) -> Self {
        match self.gpu_memory() {
            Some(what) => Self::OutOfMemory { rank: Some(rank), what },
            None => self,
        }
    }

    /// Error of a thread of `rank` that panicked. Torch's operators that return no error panic when
    /// a GPU is out of memory.
    pub(crate) fn of_panic(panic: &(dyn Any + Send), rank: usize) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        match out_of_memory(text) {
            Some(what) => Self::OutOfMemory { rank: Some(rank), what },
            None => Self::Rank { rank, reason: first_line(text).to_string() },
        }
    }

    /// Turns an out-of-memory error into one of `layer` over whole neighbourhoods; leaves other
    /// errors as they are.
    pub(crate) fn of_inference(self, layer: usize, remedy: &'static str) -> Self {
        match self.gpu_memory() {
            Some(what) => Self::Inference { layer, what, remedy },
            None => self,
        }
    }

    /// Requested and available memory, if this is an out-of-memory error of a GPU.
    pub(crate) fn gpu_memory(&self) -> Option<String> {
        match self {
            Self::OutOfMemory { what, .. } => Some(what.clone()),
            Self::Gpu(GpuError::OutOfMemory { ordinal, needed_mib, free_mib }) => Some(format!(
                "GPU {ordinal} is out of memory, {needed_mib} MiB asked for, {free_mib} MiB free"
            )),
            _ => None,
        }
    }
}

/// Requested memory, if `message` is an out-of-memory error from torch or from a kernel inside
/// torch's backward pass.
fn out_of_memory(message: &str) -> Option<String> {
    let line = first_line(message);
    let after = |mark: &str| line.find(mark).map(|at| &line[at + mark.len()..]);
    if let Some(rest) = after("CUDA out of memory. Tried to allocate ") {
        let asked = rest.split_once(". ").map_or(rest, |(asked, _)| asked);
        let number: String =
            after("GPU ").unwrap_or_default().chars().take_while(char::is_ascii_digit).collect();
        return Some(format!("GPU {number} is out of memory, {asked} asked for"));
    }
    // A message of a kernel, or one of ours that has passed through torch's backward pass.
    let told = &line[line.find("GPU ").filter(|_| line.contains(" is out of memory"))?..];
    let told = told.replacen("memory: ", "memory, ", 1);
    let end = told.find("; ").or(told.find(": ")).unwrap_or(told.len());
    Some(told[..end].to_string())
}

/// The first line of a message: libtorch appends its stack, sometimes with the line ends escaped.
pub(crate) fn first_line(message: &str) -> &str {
    let end = message.find('\n').unwrap_or(message.len());
    let end = message.find("\\n").map_or(end, |escaped| escaped.min(end));
    &message[..end]
}

/// Fails once `stop` is true.
pub fn check_stop(stop: Option<&'static AtomicBool>) -> Result<()> {
    match stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
        true => Err(Error::Interrupted("nothing was written".into())),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_a_gpu_has_not_is_told_in_one_line() {
        let torchs = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.10 GiB of which 1.2 GiB \
                      is free. Including non-PyTorch memory, this process has 77.9 GiB memory in \
                      use. Of the allocated memory \
                      50.00 GiB is allocated by PyTorch, and 7.50 GiB is reserved by PyTorch but \
                      unallocated. If reserved \
                      ...\nException raised from malloc at ...";
        let of_torch = "rank 3: GPU 1 is out of memory, 2.00 GiB asked for";
        let error = Error::from(tch::TchError::Torch(torchs.into())).of_rank(3);
        assert_eq!(error.to_string(), of_torch);
        let short = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 is full.";
        let error = Error::from(tch::TchError::Torch(short.into())).of_rank(3);
        assert_eq!(error.to_string(), "rank 3: GPU 1 is out of memory, 2.00 GiB asked for");
        let ours = GpuError::OutOfMemory { ordinal: 2, needed_mib: 900, free_mib: 7 };
        let expected = "rank 0: GPU 2 is out of memory, 900 MiB asked for, 7 MiB free";
        for error in [Error::from(tch::TchError::Torch(ours.to_string())), Error::from(ours)] {
            assert_eq!(error.of_rank(0).to_string(), expected);
        }
        let other = Error::from(tch::TchError::Torch("shapes do not fit".into())).of_rank(1);
        assert!(matches!(other, Error::Torch(_)), "{other}");
        // Already converted once inside torch's backward pass, and raised by an operator that
        // panics.
        let told = Error::from(tch::TchError::Torch(torchs.into())).to_string();
        let panic: Box<dyn Any + Send> =
            Box::new(format!("called `Result::unwrap()` on an `Err` value: Torch({torchs:?})"));
        for error in
            [Error::from(tch::TchError::Torch(told)).of_rank(3), Error::of_panic(&*panic, 3)]
        {
            assert_eq!(error.to_string(), of_torch);
        }
        // Files are named, and say what to do.
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        for (err, expected) in [
            (
                SafeTensorError::IoError(full),
                "run/model.safetensors: the disk is full: free some space there",
            ),
            (
                SafeTensorError::InvalidHeader,
                "run/model.safetensors: no tensors as safetensors, or damaged",
            ),
        ] {
            let error = Error::from(tch::TchError::SafeTensorError {
                path: "run/model.safetensors".into(),
                err,
            });
            assert!(error.to_string().starts_with(expected), "{error}");
        }
        let error = Error::of_panic(&"index 3\nmore", 1);
        assert!(
            matches!(&error, Error::Rank { rank: 1, reason } if reason == "index 3"),
            "{error}"
        );
    }
}
