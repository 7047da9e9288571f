//! Errors of a dataset directory, each a single line that includes a remedy.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a dataset or one of its artifacts cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system reported an error.
    #[error("{}: {}{}", path.display(), plainly(cause), if cause.kind() == ErrorKind::NotFound { not_found(path) } else { hint(cause) })]
    Io {
        /// The file or directory concerned.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The path does not hold a gsplit dataset.
    #[error("{}: not a gsplit dataset (it has no dataset.json): {}", .0.display(), other_dataset(.0))]
    NotADataset(PathBuf),
    /// A file exists, but its content does not match its format or the manifest.
    #[error("{}: {problem}; run `gsplit verify` and rebuild what it names", path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Description of the expected and the found content.
        problem: String,
    },
    /// The artifact was written by another version of the format.
    #[error("{}: format {found}, this gsplit reads {expected}: {}", path.display(), if *newer { "upgrade gsplit" } else { "rebuild it, or use the gsplit that wrote it" })]
    Version {
        /// The document.
        path: PathBuf,
        /// Format and version that this build reads.
        expected: String,
        /// Format and version in the file.
        found: String,
        /// Whether the version in the file is a later one.
        newer: bool,
    },
    /// A finished artifact already exists at the output path.
    #[error("{}: already there, made with other input or options: choose another path or key, or pass --force to rebuild it", .0.display())]
    Exists(PathBuf),
    /// A finished artifact that was made differently already exists at the output path.
    #[error("{}: already there, but {difference}: choose another path or key, or pass --force to rebuild it", path.display())]
    Differs {
        /// The artifact.
        path: PathBuf,
        /// The difference, as a clause.
        difference: String,
    },
    /// Something that gsplit did not make is at the output path.
    #[error("{}: is {found}, and not gsplit's own: gsplit does not touch it; move it elsewhere, or name another path", path.display())]
    Foreign {
        /// The output path.
        path: PathBuf,
        /// Kind of the thing that was found.
        found: &'static str,
    },
    /// The artifact to be replaced was not made by gsplit, or is something else.
    #[error("{}: holds no {document} of gsplit's, so even --force will not replace it: name another path, or remove it yourself", path.display())]
    NotReplaced {
        /// The path to be replaced.
        path: PathBuf,
        /// The file that it would have if gsplit had made it.
        document: &'static str,
    },
    /// Another process, or another part of this one, is writing the same artifact.
    #[error("{}: another gsplit is writing it{}: wait for it, or stop it", path.display(), process.map(|process| format!(" (process {process})")).unwrap_or_default())]
    Busy {
        /// The artifact.
        path: PathBuf,
        /// The process that is writing, if known.
        process: Option<u32>,
    },
    /// Outputs could not be made visible, and the previous state could not be restored either.
    #[error("{}; {}: run the same command again, which {} them first", without_hint(cause), left_halfway(older), if older.is_empty() { "removes" } else { "restores" })]
    Halfway {
        /// The first failure.
        cause: Box<Error>,
        /// Paths that hold older outputs until then.
        older: Vec<PathBuf>,
    },
    /// Both an output and the one that it replaces exist, and nothing shows which of them should
    /// stay.
    #[error("{}: an earlier run that replaced it did not end, and its older version is still there, {}: move one of the two elsewhere", path.display(), older.display())]
    Unsettled {
        /// The output.
        path: PathBuf,
        /// Path of the older output.
        older: PathBuf,
    },
    /// An output is visible, but the folder around it could not be flushed.
    #[error("{}: is written, but may be lost if the machine stops now: {}", path.display(), without_hint(cause))]
    NotDurable {
        /// The output.
        path: PathBuf,
        /// The failure.
        cause: Box<Error>,
    },
    /// A presample or partition belongs to another graph or to an older version of this one.
    #[error("{}: made from {made_from}, but {used_with} is another graph or was rebuilt since: make it again for this dataset, with --force", path.display())]
    Mismatch {
        /// The derived artifact.
        path: PathBuf,
        /// Name and checksum that it records.
        made_from: String,
        /// Name and checksum of the dataset it was to be used with.
        used_with: String,
    },
    /// The dataset lacks a part that the caller needs.
    #[error("{}: has no {what}: {remedy}", path.display())]
    Missing {
        /// The dataset.
        path: PathBuf,
        /// The part: features, labels, a split, a presample ...
        what: String,
        /// How to get it.
        remedy: String,
    },
    /// Several artifacts of a kind exist, and the option that chooses one was not given.
    #[error("choose a {kind} with --{kind}: {keys}")]
    Several {
        /// Kind of the artifacts, and name of the option.
        kind: &'static str,
        /// Their keys.
        keys: String,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// The caller handed over arrays that contradict each other or the format's limits.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// Wraps an I/O error with the path it concerns.
    pub fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.as_ref().to_path_buf();
        move |cause| Error::Io { path, cause }
    }

    /// Creates [`Error::Corrupt`]. `problem` may quote the file; control characters, e.g. line
    /// ends, are escaped.
    pub(crate) fn corrupt(path: impl AsRef<Path>, problem: impl Into<String>) -> Error {
        let mut problem = problem.into();
        if problem.contains(char::is_control) {
            let escaped = |c: char| {
                if c.is_control() { c.escape_default().to_string() } else { c.to_string() }
            };
            problem = problem.chars().map(escaped).collect();
        }
        Error::Corrupt { path: path.as_ref().to_path_buf(), problem }
    }
}

/// Message of `error`, without the remedy if it is an I/O error.
fn without_hint(error: &Error) -> String {
    match error {
        Error::Io { path, cause } => format!("{}: {}", path.display(), plainly(cause)),
        other => other.to_string(),
    }
}

/// Clause about the outputs of a run that ended half-way.
fn left_halfway(older: &[PathBuf]) -> String {
    match older {
        [] => "some of the outputs that belong together are visible and others are not".into(),
        older => {
            let places: Vec<String> =
                older.iter().map(|place| place.display().to_string()).collect();
            format!("older outputs are kept in {}", places.join(", "))
        }
    }
}

/// The remedy for a path that does not exist.
pub fn not_found(path: &Path) -> &'static str {
    match path == Path::new("-") {
        true => ": gsplit reads files, not standard input: save it to a file first",
        false => ": check the path",
    }
}

/// The remedy for a path that is not a dataset: if it is the folder of a run, the dataset in it.
fn other_dataset(path: &Path) -> String {
    let inner = path.join("dataset");
    match inner.join("dataset.json").is_file() {
        true => format!("it is the folder of a run: name {}", inner.display()),
        false => "make one with `gsplit convert` or `gsplit generate`".into(),
    }
}

/// Text of `cause`, in plain words if the disk is full.
fn plainly(cause: &std::io::Error) -> String {
    match cause.kind() {
        ErrorKind::StorageFull => "the disk is full".into(),
        ErrorKind::QuotaExceeded => "your quota of the disk is full".into(),
        _ => cause.to_string(),
    }
}

/// The remedy for the I/O errors that have one.
fn hint(cause: &std::io::Error) -> &'static str {
    use ErrorKind as K;
    match cause.kind() {
        K::StorageFull | K::QuotaExceeded => {
            ": free some space there or write elsewhere; what was finished before is untouched"
        }
        K::FileTooLarge => {
            ": a limit on the length of files is reached (ulimit -f, or the file system's): raise \
             it or write elsewhere"
        }
        K::PermissionDenied | K::ReadOnlyFilesystem => ": check the permissions or write elsewhere",
        K::AlreadyExists | K::NotADirectory => {
            ": something is there that is no folder; name another path"
        }
        K::IsADirectory => ": expected a file; name another path",
        K::InvalidFilename => ": choose a shorter name",
        K::InvalidData => ": expected a text file",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_quoted_in_one_line() {
        let line = Error::corrupt("a.json", "unknown field `wo\n\u{1b}rds`").to_string();
        assert!(line.contains(r"unknown field `wo\n\u{1b}rds`"), "{line}");
    }
}
