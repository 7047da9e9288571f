//! The steps of `gsplit run`, one after another: what each was asked for, what is finished, and the record of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};
use gsplit::outputs::Outputs;
use gsplit::ui::{Ui, usage};
use gsplit_store::staging::{Staging, Target, make_folder};
use gsplit_store::{Progress, entries, read_text, shell_word};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::child::finished;

/// File beside the steps' outputs in DIR: the commands that made them.
const RECORD: &str = "run.json";

/// Content of [`RECORD`]: that is there from the start, so that a run which was killed at any moment is known to be one.
#[derive(Default, Serialize, Deserialize)]
pub struct Record {
    /// The words of each step that was begun here, if what it makes was not there before: it is of this run's making.
    #[serde(default)]
    begun: BTreeMap<String, Vec<String>>,
    /// The words of each step that has finished here.
    #[serde(flatten)]
    pub finished: BTreeMap<String, Vec<String>>,
}

impl Record {
    /// The words by which `step` made what is there.
    pub fn made_by(&self, step: &str) -> Option<&Vec<String>> {
        self.finished.get(step).or_else(|| self.begun.get(step))
    }
}

/// Whether it is more than what a run leaves that was killed while it wrote its first record.
fn is_foreign(path: &PathBuf) -> bool {
    path.file_name().is_some_and(|name| name != format!(".{RECORD}.partial").as_str())
}

/// The steps as they run, one after another.
pub struct Steps<'a> {
    out: &'a Path,
    dry_run: bool,
    ui: &'a Ui,
    pub record: Record,
    done: Vec<Value>,
    /// Steps that were begun, and all that there are.
    pub begun: usize,
    pub total: usize,
}

impl<'a> Steps<'a> {
    /// Makes the folder, unless it is there and of somebody else's.
    pub fn new((input, out): (&Path, &'a Path), dry_run: bool, total: usize, ui: &'a Ui) -> anyhow::Result<Self> {
        let file = out.join(RECORD);
        Outputs::new(false).reads("INPUT", input).folder("--out", out)?;
        let record = match read_text(&file) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("{}: is not of gsplit run: choose another --out", file.display()))?,
            Err(_) if entries(out).is_ok_and(|paths| paths.iter().any(is_foreign)) => {
                bail!("--out {}: is there, and not of gsplit run: choose another folder", out.display())
            }
            Err(_) => Record::default(),
        };
        let steps = Self { out, dry_run, ui, record, done: Vec::new(), begun: 0, total };
        if !dry_run {
            make_folder(out)?;
            steps.save()?;
        }
        Ok(steps)
    }

    fn save(&self) -> anyhow::Result<()> {
        let file = self.out.join(RECORD);
        let staging = Staging::begin(Target::file(&file), true)?;
        fs::write(staging.file(), serde_json::to_string_pretty(&self.record)?)
            .map_err(gsplit_store::Error::io(&file))?;
        staging.commit()?;
        Ok(())
    }

    /// Records that `step` is about to make `output`, unless somebody else's is there.
    pub fn begin(&mut self, step: &str, words: &[String], output: &Path) -> anyhow::Result<()> {
        if self.dry_run || (output.exists() && self.record.made_by(step).is_none()) {
            return Ok(());
        }
        self.record.begun.insert(step.into(), words.into());
        self.save()
    }

    /// Whether the dataset was made here by other `words` than these: then it may be replaced, as long as nothing was trained on it.
    pub fn replaces(&self, dataset: &Path, words: &[String]) -> anyhow::Result<bool> {
        let Some(before) = self.record.made_by("convert").filter(|before| dataset.exists() && *before != words) else {
            return Ok(false);
        };
        if self.out.join("checkpoint").exists() {
            let (out, before) = (self.out.display(), shown("convert", before));
            return Err(usage(format!(
                "--out {out}: holds a model of the dataset that `{before}` made: choose another folder, or give the same options"
            )));
        }
        Ok(true)
    }

    pub fn say(&self, line: &str) {
        self.ui.note(line);
    }

    /// Runs a step, which takes over what it finished before; with `force` it replaces what it made here by other words.
    pub fn step(&mut self, name: &'static str, words: Vec<String>, force: bool) -> anyhow::Result<()> {
        let shown = shown(name, &words);
        self.begun += 1;
        if self.dry_run {
            self.ui.say(&shown);
            self.done.push(json!({ "step": name, "command": shown }));
            return Ok(());
        }
        self.say(&format!("── {} of {}: {shown}", self.begun, self.total));
        let program = std::env::current_exe().context("cannot find gsplit's own executable")?.with_file_name("gsplit");
        let mut command = Command::new(program);
        command.arg(name).args(&words).args(force.then_some("--force")).args(self.ui.options());
        if self.ui.is_json() {
            command.stdout(Stdio::piped());
        }
        let started = Instant::now();
        let output = finished(&mut command, "what steps have finished is kept; the same command goes on")?;
        if !output.status.success() {
            self.say(&format!("{name} failed: once it is mended, the same command goes on from here"));
            // It has said why.
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

    pub fn end(&self, dataset: &Path, result: &Path) {
        let out = self.out.display();
        if !self.dry_run {
            self.say(&format!("dataset {}, model {out}/checkpoint, {}", dataset.display(), result.display()));
        }
        self.ui.json(&json!({
            "dataset": dataset, "checkpoint": format!("{out}/checkpoint"), "result": result, "steps": self.done,
        }));
    }
}

/// The command line of a step.
pub fn shown(step: &str, words: &[String]) -> String {
    let words = words.iter().map(shell_word);
    std::iter::once(format!("gsplit {step}")).chain(words).collect::<Vec<_>>().join(" ")
}
