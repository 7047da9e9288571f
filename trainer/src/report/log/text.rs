//! Log of JSON lines, one for each record.
//!
//! A log that is continued is written anew: the epochs that the checkpoint holds, and before each of them the records
//! of its mini-batches, if the old file has them before the very same epoch. Records of a killed run after the
//! checkpoint go, and so do those of another run.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use gsplit_store::staging::{Staging, Target};
use serde::Serialize;

use crate::Result;
use crate::report::EpochReport;

/// Whether a log of JSON lines that begins with `line` is one of ours.
pub fn is_json_log(line: &str) -> bool {
    [r#"{"epoch":"#, r#"{"step":"#].iter().any(|start| line.starts_with(start)) && line.contains(r#""gradient_norm":"#)
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
    /// Starts the file at `path` with `history`, the epochs that a resumed run found done.
    pub fn create(path: &Path, history: &[EpochReport]) -> Result<Self> {
        let epochs: Vec<String> = history.iter().map(json).collect();
        let before = match epochs.is_empty() {
            true => String::new(),
            // What is no text is no log of ours.
            false => gsplit_store::read_text(path).unwrap_or_default(),
        };
        let text = whole(&before, &epochs);
        // The older log is there until its successor is.
        let staging = Staging::begin(Target::file(path), true)?;
        let mut file = File::create(staging.file()).map_err(gsplit_store::Error::io(path))?;
        file.write_all(text.as_bytes()).map_err(gsplit_store::Error::io(path))?;
        staging.commit()?;
        Ok(Self { path: path.to_path_buf(), file })
    }

    /// Appends a record, or nothing.
    pub fn write(&mut self, record: &impl Serialize) -> Result<()> {
        let line = json(record) + "\n";
        let before = self.file.stream_position().map_err(gsplit_store::Error::io(&self.path))?;
        let written = self.file.write_all(line.as_bytes()).inspect_err(|_| {
            // A disk that is full may have taken a part.
            let _ = self.file.set_len(before);
        });
        Ok(written.map_err(gsplit_store::Error::io(&self.path))?)
    }
}

/// The lines `epochs`, each after the records of mini-batches that are right before it in the log `before`.
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
