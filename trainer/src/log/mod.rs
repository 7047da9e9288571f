//! A run's logs, one record an epoch: JSON lines, CSV, and TensorBoard's event files.
//!
//! A resumed run starts JSONL and CSV anew with the epochs that its checkpoint holds, so both always show one whole run,
//! whatever a killed run had written. TensorBoard reads every event file of a folder: see `tensorboard`.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::report::EpochReport;
use crate::{Result, RunOptions};

mod tensorboard;

use tensorboard::EventFile;

/// All logs of a run.
#[derive(Debug)]
pub struct Logs {
    jsonl: Option<TextLog>,
    csv: Option<TextLog>,
    events: Option<EventFile>,
}

impl Logs {
    /// Opens the logs that `options` name, and writes down `history`, the epochs that a resumed run found done.
    pub fn start(options: &RunOptions, history: &[EpochReport]) -> Result<Self> {
        let text = |path: &Option<PathBuf>| path.as_deref().map(TextLog::create).transpose();
        let (jsonl, mut csv) = (text(&options.log)?, text(&options.log_csv)?);
        if let Some(csv) = &mut csv {
            csv.line(&columns().map(|(name, _)| name).join(","))?;
        }
        let events = options.tensorboard.as_deref().map(|folder| EventFile::create(folder, history)).transpose()?;
        let mut logs = Self { jsonl, csv, events };
        history.iter().try_for_each(|report| logs.text(report))?;
        Ok(logs)
    }

    /// Appends an epoch.
    pub fn write(&mut self, report: &EpochReport) -> Result<()> {
        self.text(report)?;
        self.events.as_mut().map_or(Ok(()), |events| events.write(report))
    }

    fn text(&mut self, report: &EpochReport) -> Result<()> {
        if let Some(jsonl) = &mut self.jsonl {
            jsonl.line(&serde_json::to_string(report).unwrap_or_default())?;
        }
        if let Some(csv) = &mut self.csv {
            csv.line(&columns().map(|(_, value)| value(report)).join(","))?;
        }
        Ok(())
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

type Value = fn(&EpochReport) -> String;

/// The columns of a CSV log, named as the keys of a JSONL log. What was not evaluated is empty.
fn columns() -> [(&'static str, Value); 16] {
    fn shown(value: Option<f64>) -> String {
        value.map(|value| value.to_string()).unwrap_or_default()
    }
    [
        ("epoch", |report| report.epoch.to_string()),
        ("loss", |report| report.loss.to_string()),
        ("gradient_norm", |report| report.gradient_norm.to_string()),
        ("learning_rate", |report| report.learning_rate.to_string()),
        ("train", |report| report.train.to_string()),
        ("valid", |report| shown(report.valid)),
        ("test", |report| shown(report.test)),
        ("sample_s", |report| report.timings.sample_s.to_string()),
        ("load_s", |report| report.timings.load_s.to_string()),
        ("compute_s", |report| report.timings.compute_s.to_string()),
        ("exchange_s", |report| report.timings.exchange_s.to_string()),
        ("seconds", |report| report.seconds.to_string()),
        ("evaluate_s", |report| report.evaluate_s.to_string()),
        ("edges", |report| report.edges.to_string()),
        ("rows_loaded", |report| report.rows_loaded.to_string()),
        ("rows_exchanged", |report| report.rows_exchanged.to_string()),
    ]
}

#[cfg(test)]
mod tests;
