//! Log of JSON lines, one per record.
//!
//! A log that is continued is rewritten: the epochs of the checkpoint, and before each of them the
//! records of its mini-batches, if the old file has them before the very same epoch. Records of a
//! killed run after the checkpoint and records of other runs are removed.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use gsplit_store::staging::{Staging, Target};
use serde::Serialize;

use crate::Result;
use crate::report::EpochReport;

/// True if a log of JSON lines that begins with `line` was written by gsplit.
pub fn is_json_log(line: &str) -> bool {
    [r#"{"epoch":"#, r#"{"step":"#].iter().any(|start| line.starts_with(start))
        && line.contains(r#""gradient_norm":"#)
}

/// `record` as JSON.
fn json(record: &impl Serialize) -> String {
    serde_json::to_string(record).unwrap_or_default()
}

/// A file of JSON lines.
#[derive(Debug)]
pub struct TextLog {
    path: PathBuf,
    file: File,
}

impl TextLog {
    /// Creates the file at `path` with `history`, the epochs done before a resume.
    pub fn create(path: &Path, history: &[EpochReport]) -> Result<Self> {
        let epochs: Vec<String> = history.iter().map(json).collect();
        let before = match epochs.is_empty() {
            true => String::new(),
            // A file that is not text is not one of our logs.
            false => gsplit_store::read_text(path).unwrap_or_default(),
        };
        let text = whole(&before, &epochs);
        // The older log stays until its successor is complete.
        let staging = Staging::begin(Target::file(path), true)?;
        let mut file = File::create(staging.file()).map_err(gsplit_store::Error::io(path))?;
        file.write_all(text.as_bytes()).map_err(gsplit_store::Error::io(path))?;
        staging.commit()?;
        Ok(Self { path: path.to_path_buf(), file })
    }

    /// Appends a record, or nothing if that fails.
    pub fn write(&mut self, record: &impl Serialize) -> Result<()> {
        let line = json(record) + "\n";
        let before = self.file.stream_position().map_err(gsplit_store::Error::io(&self.path))?;
        let written = self.file.write_all(line.as_bytes()).inspect_err(|_| {
            // A full disk may have written a part.
            let _ = self.file.set_len(before);
        });
        Ok(written.map_err(gsplit_store::Error::io(&self.path))?)
    }
}

/// The lines `epochs`, each after the records of mini-batches right before it in the log `before`.
fn whole(before: &str, epochs: &[String]) -> String {
    let (mut old, mut lines) = (before.lines().collect::<Vec<_>>(), Vec::new());
    for epoch in epochs {
        match old.iter().position(|line| line == epoch) {
            Some(at) => lines.extend(old.drain(..=at)),
            None => {
                lines.push(epoch);
                old.clear();
            }
        }
    }
    lines.iter().flat_map(|line| [line, "\n"]).collect()
}
