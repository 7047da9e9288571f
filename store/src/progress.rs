//! Progress of long work, for a watcher. Libraries report here and never print.

use std::sync::{Mutex, PoisonError};

/// Unit of a stage's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of a file.
    Bytes,
    /// Things with a name: edges, vertices, batches.
    Items(&'static str),
}

/// A watcher of stages.
pub trait Progress: Sync {
    /// Opens a stage; `total` when it is known. The stage ends when the handle is dropped.
    fn stage(&self, name: &str, total: Option<u64>, unit: Unit) -> Box<dyn Stage>;
    /// Says one line that the user should see once.
    fn note(&self, line: &str);
    /// Says how an input was understood where it could have been understood otherwise: a dataset
    /// records such lines.
    fn decide(&self, line: &str) {
        self.note(line);
    }
}

/// A stage under way.
pub trait Stage: Send + Sync {
    /// Counts `by` more units as done.
    fn advance(&self, by: u64);
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn stage(&self, _name: &str, _total: Option<u64>, _unit: Unit) -> Box<dyn Stage> {
        Box::new(NoProgress)
    }

    fn note(&self, _line: &str) {}
}

impl Stage for NoProgress {
    fn advance(&self, _by: u64) {}
}

/// Keeps the notes, to be read later; watches no stage.
#[derive(Debug, Default)]
pub struct Notes(Mutex<Vec<String>>);

impl Notes {
    /// The lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Progress for Notes {
    fn stage(&self, name: &str, total: Option<u64>, unit: Unit) -> Box<dyn Stage> {
        NoProgress.stage(name, total, unit)
    }

    fn note(&self, line: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
    }
}
