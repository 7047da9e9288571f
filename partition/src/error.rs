//! Errors of partitioning and evaluating, each one line with its remedy.

/// Result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a dataset cannot be partitioned as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The dataset directory refused.
    #[error(transparent)]
    Store(#[from] gsplit_store::Error),
    /// Sampling refused.
    #[error(transparent)]
    Kernel(#[from] gsplit_kernels::KernelError),
    /// An option, or two of them together, make no sense.
    #[error("{0}")]
    Option(String),
    /// More parts than vertices.
    #[error(
        "--parts {parts}: the graph has {vertices} vertices, and no part may be empty; ask for at \
         most that many"
    )]
    TooManyParts {
        /// Parts asked for.
        parts: u32,
        /// Vertices there are.
        vertices: usize,
    },
    /// The symmetrised graph does not fit METIS's 32-bit indices.
    #[error(
        "METIS: the symmetrised graph has {vertices} vertices and {arcs} arcs, METIS takes {} \
         vertices and {} arcs; \
         use --partitioner multilevel",
        crate::adjacency::MAX_VERTICES,
        i32::MAX
    )]
    TooLarge {
        /// Vertices.
        vertices: usize,
        /// Arcs: each adjacent pair in both directions.
        arcs: u64,
    },
    /// METIS failed.
    #[error("METIS: {0}")]
    Metis(String),
    /// SIGTERM reached METIS.
    #[error("METIS: stopped by a signal; run it again")]
    Interrupted,
    /// A file of parts is not one for this graph.
    #[error("{}: {problem}", path.display())]
    Import {
        /// The file.
        path: std::path::PathBuf,
        /// The line or row, the expected and the actual content.
        problem: String,
    },
}
