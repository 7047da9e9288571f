//! Errors of preparation, each one line with its remedy.

use std::path::{Path, PathBuf};

/// Result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why raw input cannot be converted, or a dataset not be pre-sampled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The dataset directory refused.
    #[error(transparent)]
    Store(#[from] gsplit_store::Error),
    /// The sampler refused.
    #[error(transparent)]
    Kernel(#[from] gsplit_kernels::KernelError),
    /// The GPU cannot do it. The text says why, and what to do.
    #[error("--device cuda: {0}")]
    Gpu(String),
    /// The operating system refused to read the raw input.
    #[error("{}: {cause}{}", path.display(), hint(path, cause))]
    Io {
        /// The file or directory concerned.
        path: PathBuf,
        /// The system's error. It is part of the message; as a `source` it would be said twice.
        cause: std::io::Error,
    },
    /// The raw input is not what its format or its own header promises.
    #[error("{}{}: {problem}", path.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Input {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1, where there are lines.
        line: Option<u64>,
        /// Expected, found, and what to do.
        problem: String,
    },
    /// Vertices of the edges that the table of vertices does not list.
    #[error(
        "{}: {missing} of {vertices} vertices have edges and no row, for example {id}: pass \
         --schema missing-rows=fill, or drop for a graph without them",
        table.display()
    )]
    NoRow {
        /// The table.
        table: PathBuf,
        /// How many have no row.
        missing: usize,
        /// Vertices in all.
        vertices: u64,
        /// The id of the first.
        id: String,
    },
    /// A cell that is unlike the first rows of its column, by which the column's type was decided.
    #[error("{0}")]
    FirstRows(Box<Error>),
    /// A problem with the input as a whole, such as edges that make no graph.
    #[error("{0}")]
    Graph(String),
    /// An option, or two of them together, make no sense.
    #[error("{0}")]
    Option(String),
}

impl Error {
    /// Wraps an I/O error with the path it concerns.
    pub fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.as_ref().to_path_buf();
        move |cause| Error::Io { path, cause }
    }

    /// A problem with the file at `path` as a whole.
    pub fn input(path: impl AsRef<Path>, problem: impl Into<String>) -> Error {
        Error::Input { path: path.as_ref().to_path_buf(), line: None, problem: problem.into() }
    }

    /// The error as a problem with the file at `path`, if it is one with the input as a whole.
    pub fn at(self, path: impl AsRef<Path>) -> Error {
        match self {
            Error::Graph(problem) => Error::input(path, problem),
            error => error,
        }
    }

    /// A problem with one line of the file at `path`.
    pub fn line(path: impl AsRef<Path>, line: u64, problem: impl Into<String>) -> Error {
        Error::Input {
            path: path.as_ref().to_path_buf(),
            line: Some(line),
            problem: problem.into(),
        }
    }
}

/// The remedy for the I/O errors that have one.
fn hint(path: &std::path::Path, cause: &std::io::Error) -> &'static str {
    match cause.kind() {
        std::io::ErrorKind::NotFound => gsplit_store::not_found(path),
        std::io::ErrorKind::PermissionDenied => ": check the permissions",
        std::io::ErrorKind::IsADirectory => ": expected a file",
        _ => "",
    }
}
