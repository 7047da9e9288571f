//! A run's logs: JSON lines and TensorBoard's event files. One record per epoch and, if requested,
//! one per `--log-every` mini-batches (`steps`).
//!
//! A resumed run rewrites the JSON lines from the epochs in its checkpoint, so that they always
//! show one whole run, whatever a killed run had written (`text`). TensorBoard reads every event
//! file of a folder: see `tensorboard`.

use crate::Result;
use crate::config::RunConfig;
use crate::report::EpochReport;

mod steps;
mod tensorboard;
mod text;

pub use steps::{StepLog, StepRecord, Window};
use tensorboard::EventFile;
pub use tensorboard::foreign_events;
use text::TextLog;
pub use text::is_json_log;

/// All logs of a run.
#[derive(Debug)]
pub struct Logs {
    text: Option<TextLog>,
    events: Option<EventFile>,
    /// Events of mini-batches, which have a separate axis.
    step_events: Option<EventFile>,
}

impl Logs {
    /// Opens the logs that `run` names, and writes `history`, the epochs done before a resume,
    /// which took `steps` mini-batches.
    pub fn start(run: &RunConfig, history: &[EpochReport], steps: u64) -> Result<Self> {
        let text = run.log.as_deref().map(|path| TextLog::create(path, history)).transpose()?;
        let (mut events, mut step_events) = (None, None);
        if let Some(folder) = &run.tensorboard {
            let below = folder.join("steps");
            // Older records in that folder become void, even if this run adds none.
            if run.log_every > 0 || below.is_dir() {
                step_events = Some(EventFile::create(&below, steps + 1)?.0);
            }
            let (mut file, is_first) = EventFile::create(folder, history.len() as u64 + 1)?;
            if is_first {
                history.iter().try_for_each(|report| file.write(report))?;
            }
            events = Some(file);
        }
        Ok(Self { text, events, step_events })
    }

    /// Appends an epoch.
    pub fn write(&mut self, report: &EpochReport) -> Result<()> {
        self.text.iter_mut().try_for_each(|log| log.write(report))?;
        self.events.as_mut().map_or(Ok(()), |events| events.write(report))
    }

    /// Appends a record of mini-batches.
    pub fn write_step(&mut self, record: &StepRecord) -> Result<()> {
        self.text.iter_mut().try_for_each(|log| log.write(record))?;
        self.step_events.as_mut().map_or(Ok(()), |events| events.write_step(record))
    }
}

#[cfg(test)]
mod tests;
