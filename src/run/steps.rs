//! The steps of `gsplit run`, one after another: the arguments of each, which of them have
//! finished, and the record of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};
use gsplit::child::finished;
use gsplit::outputs::Outputs;
use gsplit::ui::Ui;
use gsplit_store::staging::{Staging, Target, make_folder};
use gsplit_store::{Progress, entries, read_text, shell_word};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fresh::{self, Fresh};
use super::score::Score;

/// File next to the steps' outputs in DIR: the commands that made them.
pub const RECORD: &str = "run.json";

/// Key in `begun` for the arguments of the whole run.
const ASKED: &str = "run";

/// Content of [`RECORD`], which is written first, so that a run which was killed at any moment is
/// recognised.
#[derive(Default, Serialize, Deserialize)]
pub struct Record {
    /// The arguments of each step that was begun here, if its output did not exist before: it
    /// belongs to this run.
    begun: BTreeMap<String, Vec<String>>,
    /// The arguments of each step that has finished here.
    #[serde(flatten)]
    finished: BTreeMap<String, Vec<String>>,
}

impl Record {
    /// The record of the run in `out`, if there is one.
    pub fn read(out: &Path) -> anyhow::Result<Option<Self>> {
        let file = out.join(RECORD);
        let Ok(text) = read_text(&file) else { return Ok(None) };
        let problem = || format!("{}: is not of gsplit run: choose another --out", file.display());
        serde_json::from_str(&text).map(Some).with_context(problem)
    }

    /// Whether the run made the file or folder `name`.
    pub fn made(&self, name: &str) -> bool {
        let step =
            MADE.iter().find(|(made, _)| *made == name).and_then(|(_, step)| self.made_by(step));
        let writes =
            |words: &Vec<String>| words.iter().any(|word| word.ends_with(&format!("/{name}")));
        // The step that predicts makes one of several files.
        step.is_some_and(|words| !name.ends_with(".parquet") || writes(words))
    }

    /// The arguments with which `step` made its output.
    pub fn made_by(&self, step: &str) -> Option<&Vec<String>> {
        self.finished.get(step).or_else(|| self.begun.get(step))
    }
}

/// Files and folders in DIR, and the step that makes each.
const MADE: [(&str, &str); 7] = [
    ("dataset", "convert"),
    ("checkpoint", "train"),
    ("training.jsonl", "train"),
    ("predictions.parquet", "infer"),
    ("embeddings.parquet", "infer"),
    ("recommendations.parquet", "infer"),
    ("report.html", "report"),
];

/// Whether `path` is more than the remains of a run that was killed while writing its first record.
fn is_foreign(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name != format!(".{RECORD}.partial").as_str())
}

/// The steps of a run in progress.
pub struct Steps<'a> {
    /// Folder of the run, and the folder that the steps write to until the run is complete.
    out: &'a Path,
    pub work: PathBuf,
    fresh: Option<Fresh>,
    dry_run: bool,
    ui: &'a Ui,
    pub record: Record,
    done: Vec<Value>,
    /// Number of steps begun, and their total.
    begun: usize,
    total: usize,
}

impl<'a> Steps<'a> {
    /// Opens the folder `out` of a run on `input`, unless it exists and is not gsplit's. A `fresh`
    /// run replaces an existing one once it is complete.
    pub fn new(
        input: &Path,
        out: &'a Path,
        fresh: bool,
        dry_run: bool,
        ui: &'a Ui,
    ) -> anyhow::Result<Self> {
        Outputs::new(false).reads("INPUT", input).folder("--out", out)?;
        if !dry_run {
            fresh::complete(out)?;
        }
        let mut record = match Record::read(out)? {
            Some(record) => record,
            None if entries(out).is_ok_and(|paths| paths.iter().any(|path| is_foreign(path))) => {
                bail!(
                    "--out {}: is there, and not of gsplit run: choose another folder",
                    out.display()
                )
            }
            None => Record::default(),
        };
        let has_run = out.join(RECORD).exists();
        let fresh = (fresh && has_run && !dry_run).then(|| Fresh::begin(out)).transpose()?;
        let work = fresh.as_ref().map_or(out.to_path_buf(), |fresh| fresh.work.clone());
        if fresh.is_some() {
            record = Record::read(&work)?.unwrap_or_default();
        }
        Ok(Self { out, work, fresh, dry_run, ui, record, done: Vec::new(), begun: 0, total: 0 })
    }

    /// Begins `total` steps of the run with the arguments `words`; `outdated` is set if its dataset
    /// exists and would be a different one now.
    pub fn start(
        &mut self,
        total: usize,
        words: Vec<String>,
        outdated: Option<String>,
    ) -> anyhow::Result<()> {
        self.total = total;
        if self.dry_run {
            return Ok(());
        }
        let is_same = self.record.begun.get(ASKED) == Some(&words) && outdated.is_none();
        if let Some(fresh) = self.fresh.as_ref().filter(|_| !is_same) {
            fresh.restart()?;
            self.record = Record::default();
        }
        make_folder(&self.work)?;
        self.record.begun.insert(ASKED.into(), words);
        self.save()
    }

    fn save(&self) -> anyhow::Result<()> {
        let file = self.work.join(RECORD);
        let staging = Staging::begin(Target::file(&file), true)?;
        fs::write(staging.file(), serde_json::to_string_pretty(&self.record)?)
            .map_err(gsplit_store::Error::io(&file))?;
        staging.commit()?;
        Ok(())
    }

    /// Records that `step` is about to make `output`, unless that exists and is not from this run.
    fn begin(&mut self, step: &str, words: &[String], output: &Path) -> anyhow::Result<()> {
        if output.exists() && self.record.made_by(step).is_none() {
            return Ok(());
        }
        self.record.begun.insert(step.into(), words.into());
        self.save()
    }

    /// Whether the dataset, which differs by `outdated` from the one the input would give now, may
    /// be replaced: it was made here, and nothing was trained on it.
    pub fn replaces(&self, dataset: &Path, outdated: Option<&str>) -> anyhow::Result<bool> {
        let Some(difference) = outdated.filter(|_| dataset.exists()) else { return Ok(false) };
        if self.record.made_by("convert").is_some() && !self.work.join("checkpoint").exists() {
            return Ok(true);
        }
        let (dataset, out) = (dataset.display(), self.out.display());
        bail!(
            "{dataset}: already there, but {difference}: pass --fresh to replace the run in {out}, \
             or choose another --out"
        )
    }

    pub fn say(&self, line: &str) {
        self.ui.note(line);
    }

    /// Runs a step, which reuses its finished output; with `force` it replaces an `output` that it
    /// made here with other arguments.
    pub fn step(
        &mut self,
        name: &'static str,
        words: Vec<String>,
        output: Option<&Path>,
        force: bool,
    ) -> anyhow::Result<()> {
        let shown = shown(name, &words);
        self.begun += 1;
        if self.dry_run {
            self.ui.say(&shown);
            self.done.push(json!({ "step": name, "command": shown }));
            return Ok(());
        }
        output.map_or(Ok(()), |output| self.begin(name, &words, output))?;
        self.say(&format!("── {} of {}: {shown}", self.begun, self.total));
        let program = std::env::current_exe()
            .context("cannot find gsplit's own executable")?
            .with_file_name("gsplit");
        let mut command = Command::new(program);
        command.arg(name).args(&words).args(force.then_some("--force")).args(self.ui.options());
        if self.ui.is_json() {
            command.stdout(Stdio::piped());
        }
        let started = Instant::now();
        let output =
            finished(&mut command, "what steps have finished is kept; the same command goes on")?;
        if !output.status.success() {
            self.say(&format!(
                "{name} failed. Fix the error above and run the same command again, which keeps \
                 finished steps, or pass --fresh to run anew."
            ));
            // The step has printed the reason.
            self.ui.json(&serde_json::from_slice(&output.stdout).unwrap_or_default());
            std::process::exit(output.status.code().unwrap_or(1));
        }
        self.record.finished.insert(name.to_string(), words);
        self.save()?;
        let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        self.done.push(
            json!({ "step": name, "command": shown, "seconds": started.elapsed().as_secs_f64(), "result": result }),
        );
        Ok(())
    }

    /// Moves a fresh run into its place, and prints where the results are and the score of the
    /// model.
    pub fn end(mut self, dataset: &Path, result: &Path) -> anyhow::Result<()> {
        let checkpoint = self.work.join("checkpoint");
        let score = if self.dry_run { None } else { Score::of(&checkpoint)? };
        let mut said = json!({
            "dataset": dataset, "checkpoint": checkpoint, "result": result, "score": score, "steps": self.done,
        });
        if let Some(fresh) = self.fresh.take() {
            let [work, out] = [&*self.work, self.out].map(|path| path.to_string_lossy());
            let mut record = serde_json::to_value(&self.record)?;
            [&mut record, &mut said].into_iter().for_each(|value| move_paths(value, &work, &out));
            self.record = serde_json::from_value(record)?;
            self.save()?;
            fresh.finish()?;
        }
        if !self.dry_run {
            let place = |key: &str| said[key].as_str().unwrap_or_default().to_string();
            let [dataset, checkpoint, result] = ["dataset", "checkpoint", "result"].map(place);
            let score = score.map_or(String::new(), |score| format!("; {score}"));
            self.say(&format!(
                "dataset {dataset}, model {checkpoint}, {result}, {}/report.html{score}",
                self.out.display()
            ));
        }
        self.ui.json(&said);
        Ok(())
    }
}

/// Replaces the path `from` with `to` in all strings of `value`.
fn move_paths(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) => *text = text.replace(from, to),
        Value::Array(items) => items.iter_mut().for_each(|item| move_paths(item, from, to)),
        Value::Object(fields) => fields.values_mut().for_each(|field| move_paths(field, from, to)),
        _ => {}
    }
}

/// The command line of a step.
fn shown(step: &str, words: &[String]) -> String {
    let words = words.iter().map(shell_word);
    std::iter::once(format!("gsplit {step}")).chain(words).collect::<Vec<_>>().join(" ")
}
