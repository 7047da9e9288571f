//! Contents of a folder for the report: a dataset, logs of training runs, and their checkpoints.
//!
//! The folder itself may be a dataset, or have one, logs (`train --log`) and checkpoints (`train --checkpoint`) in it
//! or in its folders. Links, hidden folders and the contents of a dataset or a checkpoint are skipped.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use gsplit_store::document::{self, Document};
use gsplit_store::{Checksum, EpochReport, Error, MadeFrom, ModelScores, entries};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum depth of folders that are searched.
const DEPTH: usize = 3;
/// Maximum number of files and folders that are visited.
const MOST: usize = 100_000;

/// Maximum length of a log's first line in bytes.
const LONGEST_LINE: u64 = 1 << 20;

/// Contents of a folder for the report.
#[derive(Default)]
pub struct Found {
    /// The dataset.
    pub dataset: Option<PathBuf>,
    /// Training runs, by name.
    pub runs: Vec<TrainingRun>,
    /// Parquet files, by name, which may be predictions.
    pub tables: Vec<(String, PathBuf)>,
}

/// A training run.
pub struct TrainingRun {
    /// The path of its log or its checkpoints, relative to the folder.
    pub name: String,
    /// Its epochs, at least one.
    pub epochs: Vec<EpochReport>,
    /// Its last checkpoint.
    pub checkpoint: Option<Checkpoint>,
}

/// The parts of the trainer's `checkpoint.json` that are shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    pub made_from: MadeFrom,
    pub inputs: Inputs,
    pub config: Value,
    pub changed: Vec<String>,
    pub history: Vec<EpochReport>,
    pub scores: Option<ModelScores>,
    pub class_names: Option<Vec<String>>,
    pub tool_version: String,
}

/// The parts of its inputs that are shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Inputs {
    pub partition: Option<(String, Checksum)>,
}

impl TrainingRun {
    /// Value of an option of `train` in its checkpoint's configuration, by its JSON pointer.
    pub fn option(&self, pointer: &str) -> Option<&str> {
        self.checkpoint.as_ref()?.config.pointer(pointer)?.as_str()
    }

    /// Scores compared with the baseline and class by class; `None` without a checkpoint that has them.
    pub fn scores(&self) -> Option<&ModelScores> {
        self.checkpoint.as_ref()?.scores.as_ref()
    }

    /// The name of the class, or its number.
    pub fn class(&self, class: usize) -> String {
        let names = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.class_names.as_ref());
        names.and_then(|names| names.get(class)).cloned().unwrap_or_else(|| class.to_string())
    }
}

impl Document for Checkpoint {
    const FORMAT: &'static str = document::CHECKPOINT;
    const VERSION: u32 = document::CHECKPOINT_VERSION;
}

impl Found {
    /// Searches `folder`; its runs may be of the dataset `elsewhere`.
    ///
    /// # Errors
    /// If it finds nothing, several datasets, or a log or checkpoint that cannot be read.
    pub fn within(folder: &Path, elsewhere: Option<&Path>) -> Result<Self> {
        let mut scan = Scan::default();
        scan.folder(folder, DEPTH)?;
        let shown = folder.display();
        let dataset = match (&scan.datasets[..], elsewhere) {
            ([], elsewhere) => elsewhere.map(Path::to_path_buf),
            ([own, ..], Some(_)) => {
                bail!("--dataset: {shown} has a dataset of its own, {}: leave --dataset out", own.display())
            }
            ([only], None) => Some(only.clone()),
            ([first, second, ..], None) => {
                let (first, second) = (first.display(), second.display());
                bail!("{shown}: has several datasets, among them {first} and {second}: name one, or a folder with one")
            }
        };
        let name = |path: &Path| match path.strip_prefix(folder) {
            Ok(below) if !below.as_os_str().is_empty() => below.display().to_string(),
            _ => path.file_name().map_or_else(|| shown.to_string(), |name| name.to_string_lossy().into_owned()),
        };
        let mut runs = Vec::new();
        for path in &scan.logs {
            if let Some(epochs) = read_log(path)? {
                runs.push(TrainingRun { name: name(&path.with_extension("")), epochs, checkpoint: None });
            }
        }
        for (place, path) in &scan.checkpoints {
            let (checkpoint, _) = document::read::<Checkpoint>(path)?;
            let last = checkpoint.history.last();
            // The log of this very run, if there is one.
            match runs.iter_mut().find(|run| last.is_some_and(|last| run.epochs.contains(last))) {
                Some(run) => run.checkpoint = Some(checkpoint),
                None if checkpoint.history.is_empty() => {}
                None => {
                    let epochs = checkpoint.history.clone();
                    runs.push(TrainingRun { name: name(place), epochs, checkpoint: Some(checkpoint) });
                }
            }
        }
        runs.sort_by(|a, b| a.name.cmp(&b.name));
        if dataset.is_none() && runs.is_empty() {
            bail!(
                "{shown}: nothing to report on: expected a dataset directory, logs of `gsplit train --log FILE.jsonl` or \
                 checkpoints of `gsplit train --checkpoint DIR`, in it or below"
            );
        }
        let tables = scan.tables.into_iter().map(|path| (name(&path), path)).collect();
        Ok(Self { dataset, runs, tables })
    }
}

/// Artifacts found so far.
#[derive(Default)]
struct Scan {
    datasets: Vec<PathBuf>,
    logs: Vec<PathBuf>,
    tables: Vec<PathBuf>,
    /// The newest checkpoint of each folder that has any.
    checkpoints: BTreeMap<PathBuf, PathBuf>,
    seen: usize,
}

impl Scan {
    fn folder(&mut self, folder: &Path, depth: usize) -> Result<()> {
        if folder.join("dataset.json").exists() {
            self.datasets.push(folder.to_path_buf());
            return Ok(());
        }
        let checkpoint = folder.join("checkpoint.json");
        if checkpoint.exists() {
            // Checkpoints of a run are named by their epochs, so the newest comes last.
            let place = folder.parent().unwrap_or(folder).to_path_buf();
            self.checkpoints.insert(place, checkpoint);
            return Ok(());
        }
        let entries = entries(folder).map_err(Error::io(folder))?;
        self.seen += entries.len();
        if self.seen > MOST {
            let shown = folder.display();
            bail!("{shown}: more than {MOST} files up to here: name a dataset, or the folder of a training run");
        }
        for path in entries {
            let kind = fs::symlink_metadata(&path).map_err(Error::io(&path))?.file_type();
            let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if kind.is_dir() && depth > 0 && !is_hidden {
                self.folder(&path, depth - 1)?;
            } else if let (true, Some(end)) = (kind.is_file(), path.extension()) {
                match end.to_str() {
                    Some("jsonl") => self.logs.push(path),
                    Some("parquet") => self.tables.push(path),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// The epochs of a log; `None` if the file is not a log or has no epochs.
fn read_log(path: &Path) -> Result<Option<Vec<EpochReport>>> {
    let mut first = String::new();
    let start = gsplit_store::open_file(path).map_err(Error::io(path))?.take(LONGEST_LINE);
    // A file that is not text is not a log.
    let read = BufReader::new(start).read_line(&mut first);
    if read.is_err() || !first.contains(r#""gradient_norm":"#) {
        return Ok(None);
    }
    let text = gsplit_store::read_text(path).map_err(Error::io(path))?;
    let mut epochs: Vec<EpochReport> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let expected = || {
            let shown = path.display();
            format!(
                "{shown}, line {}: expected a line of `gsplit train --log`; move the file away or train again",
                number + 1
            )
        };
        let record: Value = serde_json::from_str(line).with_context(expected)?;
        // A record of `--log-every`; the record of the epoch covers all its mini-batches.
        if record.get("step").is_none() {
            epochs.push(serde_json::from_value(record).with_context(expected)?);
        }
    }
    Ok((!epochs.is_empty()).then_some(epochs))
}
