//! A run's logs, one record an epoch: JSON lines, CSV, and TensorBoard's event files.
//!
//! A resumed run starts JSONL and CSV anew with the epochs that its checkpoint holds, so both always show one whole run,
//! whatever a killed run had written. TensorBoard reads every event file of a folder: see `tensorboard`.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use crate::report::EpochReport;
use crate::{Result, RunOptions};

mod tensorboard;

use tensorboard::EventFile;

/// All logs of a run.
#[derive(Debug)]
pub struct Logs {
    jsonl: Option<TextLog>,
    csv: Option<TextLog>,
    /// Whether the CSV log has its line of names.
    has_header: bool,
    events: Option<EventFile>,
}

impl Logs {
    /// Opens the logs that `options` name, and writes down `history`, the epochs that a resumed run found done.
    pub fn start(options: &RunOptions, history: &[EpochReport]) -> Result<Self> {
        let text = |path: &Option<PathBuf>| path.as_deref().map(TextLog::create).transpose();
        let (jsonl, csv) = (text(&options.log)?, text(&options.log_csv)?);
        let events = options.tensorboard.as_deref().map(|folder| EventFile::create(folder, history)).transpose()?;
        let mut logs = Self { jsonl, csv, has_header: false, events };
        history.iter().try_for_each(|report| logs.text(report))?;
        Ok(logs)
    }

    /// Appends an epoch.
    pub fn write(&mut self, report: &EpochReport) -> Result<()> {
        self.text(report)?;
        self.events.as_mut().map_or(Ok(()), |events| events.write(report))
    }

    fn text(&mut self, report: &EpochReport) -> Result<()> {
        let line = serde_json::to_string(report).unwrap_or_default();
        if let Some(jsonl) = &mut self.jsonl {
            jsonl.line(&line)?;
        }
        let Some(csv) = &mut self.csv else { return Ok(()) };
        let columns = Columns::of(&line);
        if !std::mem::replace(&mut self.has_header, true) {
            csv.line(&columns.names())?;
        }
        csv.line(&columns.values())
    }
}

/// A file of lines.
#[derive(Debug)]
struct TextLog {
    path: PathBuf,
    file: File,
}

impl TextLog {
    fn create(path: &Path) -> Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(gsplit_store::Error::io(folder))?;
        }
        let file = File::create(path).map_err(gsplit_store::Error::io(path))?;
        Ok(Self { path: path.to_path_buf(), file })
    }

    fn line(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.file, "{line}").map_err(gsplit_store::Error::io(&self.path))?)
    }
}

/// The fields of a report in the order in which they are declared.
struct Columns(Vec<(String, serde_json::Value)>);

impl Columns {
    /// The columns of a line of a JSONL log: a CSV log has the same, whatever they are.
    fn of(line: &str) -> Self {
        serde_json::from_str(line).unwrap_or(Self(Vec::new()))
    }

    fn names(&self) -> String {
        self.0.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(",")
    }

    /// The values; what is null is empty, what has commas or quotes is quoted (RFC 4180).
    fn values(&self) -> String {
        let shown = |value: &serde_json::Value| match value {
            serde_json::Value::Null => String::new(),
            serde_json::Value::String(text) if !text.contains([',', '"', '\n', '\r']) => text.clone(),
            serde_json::Value::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
            other => other.to_string(),
        };
        self.0.iter().map(|(_, value)| shown(value)).collect::<Vec<_>>().join(",")
    }
}

impl<'de> Deserialize<'de> for Columns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Columns;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Columns, A::Error> {
                let mut columns = Vec::new();
                while let Some(column) = map.next_entry()? {
                    columns.push(column);
                }
                Ok(Columns(columns))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests;
