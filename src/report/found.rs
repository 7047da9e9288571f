//! Contents of a folder that can be reported on: a dataset, logs of training runs, and their checkpoints.
//!
//! The folder itself may be a dataset, or have one, logs (`train --log`) and checkpoints (`train --checkpoint`) in it or in its folders.
//! Links, hidden folders and what lies in a dataset or a checkpoint are passed over.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use gsplit_store::document::{self, Document};
use gsplit_store::{Checksum, EpochReport, Error, MadeFrom, ModelScores, entries};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Folders below the one that is named which are looked into, one in the other.
const DEPTH: usize = 3;
/// Files and folders that are looked at.
const MOST: usize = 100_000;

/// Bytes of a log's first line at most.
const LONGEST_LINE: u64 = 1 << 20;

/// Contents of a folder that can be reported on.
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
    /// The path of its log or its checkpoints in the folder.
    pub name: String,
    /// At least one.
    pub epochs: Vec<EpochReport>,
    /// Its last checkpoint.
    pub checkpoint: Option<Checkpoint>,
}

/// Part of the trainer's `checkpoint.json` that is shown.
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

/// Part of its inputs that is shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Inputs {
    pub partition: Option<(String, Checksum)>,
}

impl TrainingRun {
    /// Text of an option of `train` in its checkpoint's configuration.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.checkpoint.as_ref()?.config[name].as_str()
    }

    /// Scores beside the baseline and class by class; `None` without a checkpoint that has them.
    pub fn scores(&self) -> Option<&ModelScores> {
        self.checkpoint.as_ref()?.scores.as_ref()
    }

    /// The class as people know it.
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
    /// Looks into `folder`, whose runs may be of the dataset `elsewhere`.
    ///
    /// # Errors
    /// Nothing, several datasets, or a log or checkpoint that cannot be read.
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
            // The log of the very run, if there is one.
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

/// Artifacts seen on the way.
#[derive(Default)]
struct Scan {
    datasets: Vec<PathBuf>,
    logs: Vec<PathBuf>,
    tables: Vec<PathBuf>,
    /// The newest checkpoint of each folder with some.
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
            // Those of a run are called by their epochs, so that the newest comes last.
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

/// The epochs of a log; `None` of a file that begins otherwise, or has none.
fn read_log(path: &Path) -> Result<Option<Vec<EpochReport>>> {
    let mut first = String::new();
    let start = gsplit_store::open_file(path).map_err(Error::io(path))?.take(LONGEST_LINE);
    // What is no text is no log.
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
        // A record of `--log-every`: the epoch's own has all its mini-batches.
        if record.get("step").is_none() {
            epochs.push(serde_json::from_value(record).with_context(expected)?);
        }
    }
    Ok((!epochs.is_empty()).then_some(epochs))
}
