//! One run of a system: `gsplit train` in its own process, so that its peak memory is its own too.

use std::process::{Command, Stdio};

use anyhow::{Context, anyhow};
use gsplit_store::Dataset;
use gsplit_trainer::{Config, EpochReport};
use serde_json::Value;

use crate::train::as_words;
use gsplit::child::finished;
use gsplit::ui::{Ui, complain};

/// Result that a run printed.
pub struct RunResult {
    pub epochs: Vec<EpochReport>,
    /// Feature rows that GPUs kept.
    pub cache: Value,
    /// Peak memory of the process, mapped files included.
    pub peak_rss_mb: Option<f64>,
}

/// Trains on `dataset` with `config`.
pub fn train(dataset: &Dataset, config: &Config, ui: &Ui) -> anyhow::Result<RunResult> {
    let program = std::env::current_exe().context("cannot find gsplit's own executable")?;
    let options = config.options().into_iter().map(|(flag, option)| (flag, option.value));
    let mut command = Command::new(program);
    command.args(["train", "--json"]).args(as_words(options));
    command.args(ui.threads().map(|threads| format!("--threads={threads}")));
    command.arg("--").arg(dataset.path());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = finished(&mut command, "no table; presamples and maps are kept")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let (failures, others): (Vec<&str>, Vec<&str>) =
        errors.lines().partition(|line| line.starts_with("error: "));
    if !output.status.success() {
        let line = failures.first().map(|line| line["error: ".len()..].to_string());
        return Err(anyhow!(
            line.unwrap_or_else(|| format!("gsplit train ended by {}", output.status))
        ));
    }
    others.into_iter().for_each(complain);
    let mut said: Value =
        serde_json::from_slice(&output.stdout).context("gsplit train --json printed no JSON")?;
    let [epochs, cache] = ["epochs", "cache"].map(|key| said["summary"][key].take());
    Ok(RunResult {
        epochs: serde_json::from_value(epochs)?,
        cache,
        peak_rss_mb: said["peak_rss_mb"].as_f64(),
    })
}
