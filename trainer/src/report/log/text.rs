//! Logs of one line a record: JSON lines and CSV.
//!
//! A log that is continued is written anew: the epochs that the checkpoint holds, and before each of them the records
//! of its mini-batches, if the old file has them before the very same epoch. Records of a killed run after the
//! checkpoint go, and so do those of another run.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use crate::Result;
use crate::report::EpochReport;

/// How a record becomes a line.
#[derive(Debug)]
pub enum Format {
    /// A JSON object.
    Json,
    /// The values of these columns, empty where a record has none of the name (RFC 4180).
    Csv(Vec<String>),
}

impl Format {
    /// CSV with the columns of all `records`, in their order, each once; lists are for JSON alone.
    pub fn csv(records: &[String]) -> Self {
        let mut names: Vec<String> = Vec::new();
        for (name, value) in records.iter().flat_map(|record| Columns::of(record).0) {
            if !names.contains(&name) && !value.is_array() {
                names.push(name);
            }
        }
        Self::Csv(names)
    }

    fn line(&self, record: &impl Serialize) -> String {
        let json = json(record);
        match self {
            Self::Json => json,
            Self::Csv(names) => Columns::of(&json).values(names),
        }
    }

    fn header(&self) -> Option<String> {
        match self {
            Self::Json => None,
            Self::Csv(names) => Some(names.join(",")),
        }
    }
}

/// Whether a log of JSON lines that begins with `line` is one of ours.
pub fn is_json_log(line: &str) -> bool {
    [r#"{"epoch":"#, r#"{"step":"#].iter().any(|start| line.starts_with(start)) && line.contains(r#""gradient_norm":"#)
}

/// Whether a CSV log that begins with `line` is one of ours.
pub fn is_csv_log(line: &str) -> bool {
    line.strip_prefix("step,").unwrap_or(line).starts_with("epoch,loss,gradient_norm,")
}

/// `record` as JSON.
pub fn json(record: &impl Serialize) -> String {
    serde_json::to_string(record).unwrap_or_default()
}

/// A file of lines.
#[derive(Debug)]
pub struct TextLog {
    path: PathBuf,
    file: File,
    format: Format,
}

impl TextLog {
    /// Starts the file at `path` with `history`, the epochs that a resumed run found done.
    pub fn create(path: &Path, format: Format, history: &[EpochReport]) -> Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(gsplit_store::Error::io(folder))?;
        }
        let epochs: Vec<String> = history.iter().map(|report| format.line(report)).collect();
        let before = match epochs.is_empty() {
            true => String::new(),
            // What is no text is no log of ours.
            false => gsplit_store::read_text(path).unwrap_or_default(),
        };
        let header = format.header();
        let text = whole(&before, header.as_deref(), &epochs);
        let mut file = File::create(path).map_err(gsplit_store::Error::io(path))?;
        file.write_all(text.as_bytes()).map_err(gsplit_store::Error::io(path))?;
        Ok(Self { path: path.to_path_buf(), file, format })
    }

    /// Appends a record.
    pub fn write(&mut self, record: &impl Serialize) -> Result<()> {
        let line = self.format.line(record) + "\n";
        Ok(self.file.write_all(line.as_bytes()).map_err(gsplit_store::Error::io(&self.path))?)
    }
}

/// `header` and `epochs`, with what stands right before each of these in `before`, a log under the same header.
fn whole(before: &str, header: Option<&str>, epochs: &[String]) -> String {
    let mut old = before.lines();
    let same_header = header.is_none_or(|header| old.next() == Some(header));
    let mut old: Vec<&str> = if same_header { old.collect() } else { Vec::new() };
    let mut lines: Vec<&str> = header.into_iter().collect();
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

/// The fields of a record in the order in which they are declared.
pub struct Columns(Vec<(String, serde_json::Value)>);

impl Columns {
    /// The columns of a line of a JSONL log: a CSV log has the same, whatever they are.
    pub fn of(line: &str) -> Self {
        serde_json::from_str(line).unwrap_or(Self(Vec::new()))
    }

    /// The values of the columns `names`; what is null or not there is empty, what has commas or quotes is quoted.
    pub fn values(&self, names: &[String]) -> String {
        let shown = |value: &serde_json::Value| match value {
            serde_json::Value::Null => String::new(),
            serde_json::Value::String(text) if !text.contains([',', '"', '\n', '\r']) => text.clone(),
            serde_json::Value::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
            other => other.to_string(),
        };
        let value = |name: &String| self.0.iter().find(|(column, _)| column == name).map(|(_, value)| shown(value));
        names.iter().map(|name| value(name).unwrap_or_default()).collect::<Vec<_>>().join(",")
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
