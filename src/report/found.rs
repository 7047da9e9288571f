//! Contents of a folder for the report: a dataset, and the newest checkpoint of each training run.
//!
//! The folder itself may be a dataset, or have one and checkpoints (`train --checkpoint`) in it or
//! in its folders. Links, hidden folders and the contents of a dataset or a checkpoint are skipped.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use gsplit_store::document::{self, Document};
use gsplit_store::{Checksum, EpochReport, Error, ModelScores, entries};
use serde::{Deserialize, Serialize};

/// Maximum depth of folders that are searched.
const DEPTH: usize = 3;

/// Contents of a folder for the report.
pub struct Found {
    pub dataset: Option<PathBuf>,
    /// Training runs, by name.
    pub runs: Vec<TrainingRun>,
}

/// A training run: the parts of the trainer's `checkpoint.json` that are shown.
#[derive(Serialize, Deserialize)]
pub struct TrainingRun {
    /// The path of its checkpoints, relative to the folder.
    #[serde(skip)]
    pub name: String,
    pub inputs: Inputs,
    pub history: Vec<EpochReport>,
    pub scores: Option<ModelScores>,
    pub class_names: Option<Vec<String>>,
}

/// The parts of its inputs that are shown.
#[derive(Serialize, Deserialize)]
pub struct Inputs {
    pub partition: Option<(String, Checksum)>,
}

impl TrainingRun {
    /// The name of the class, or its number.
    pub fn class(&self, class: usize) -> String {
        let names = self.class_names.as_ref();
        names.and_then(|names| names.get(class)).cloned().unwrap_or_else(|| class.to_string())
    }
}

impl Document for TrainingRun {
    const FORMAT: &'static str = document::CHECKPOINT;
    const VERSION: u32 = document::CHECKPOINT_VERSION;
}

impl Found {
    /// Searches `folder`; its runs may be of the dataset `elsewhere`.
    pub fn within(folder: &Path, elsewhere: Option<&Path>) -> Result<Self> {
        let mut scan = Scan::default();
        scan.folder(folder, DEPTH)?;
        scan.datasets.extend(elsewhere.map(Path::to_path_buf));
        let shown = folder.display();
        if let [first, second, ..] = &scan.datasets[..] {
            let (first, second) = (first.display(), second.display());
            bail!(
                "{shown}: has several datasets, among them {first} and {second}: name one, or a \
                 folder with one"
            );
        }
        let mut runs = Vec::new();
        for (place, path) in &scan.checkpoints {
            let (mut run, _) = document::read::<TrainingRun>(path)?;
            run.name = match place.strip_prefix(folder) {
                Ok(below) if !below.as_os_str().is_empty() => below.display().to_string(),
                _ => place
                    .file_name()
                    .map_or_else(|| shown.to_string(), |name| name.to_string_lossy().into_owned()),
            };
            runs.extend(Some(run).filter(|run| !run.history.is_empty()));
        }
        if scan.datasets.is_empty() && runs.is_empty() {
            bail!(
                "{shown}: nothing to report on: expected a dataset directory, or checkpoints of \
                 `gsplit train --checkpoint DIR`, \
                 in it or below"
            );
        }
        Ok(Self { dataset: scan.datasets.pop(), runs })
    }
}

/// Artifacts found so far.
#[derive(Default)]
struct Scan {
    datasets: Vec<PathBuf>,
    /// The newest checkpoint of each folder that has any.
    checkpoints: BTreeMap<PathBuf, PathBuf>,
}

impl Scan {
    fn folder(&mut self, folder: &Path, depth: usize) -> Result<()> {
        let checkpoint = folder.join("checkpoint.json");
        if folder.join("dataset.json").exists() {
            self.datasets.push(folder.to_path_buf());
        } else if checkpoint.exists() {
            // Checkpoints of a run are named by their epochs, so the newest comes last.
            self.checkpoints.insert(folder.parent().unwrap_or(folder).to_path_buf(), checkpoint);
        } else {
            for path in entries(folder).map_err(Error::io(folder))? {
                let kind = fs::symlink_metadata(&path).map_err(Error::io(&path))?.file_type();
                let is_hidden =
                    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
                if kind.is_dir() && depth > 0 && !is_hidden {
                    self.folder(&path, depth - 1)?;
                }
            }
        }
        Ok(())
    }
}
