//! `gsplit compare LOG...`: training logs side by side.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use gsplit_trainer::EpochReport;
use serde::Serialize;
use serde_json::{Value, json};

use gsplit::describe::score;
use gsplit::ui::Ui;

#[derive(Serialize)]
struct LogRow {
    run: String,
    epochs: usize,
    loss: f64,
    valid: Option<f64>,
    test: Option<f64>,
    seconds: f64,
    edges: f64,
    rows_loaded: f64,
    rows_exchanged: f64,
    bytes_sent: f64,
    /// Numbers of the last epoch, as its record has them.
    sent: Value,
    exchanged: Value,
}

/// Reads the logs and prints the table.
pub fn run(logs: &[PathBuf], ui: &Ui) -> anyhow::Result<()> {
    let rows = logs.iter().map(|path| read(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let first = &rows[0];
    let against = |value: f64, base: f64| format!("{value:.0} ({:.2}x)", value / base.max(1.0));
    let cells = |row: &LogRow| {
        vec![
            row.run.clone(),
            row.epochs.to_string(),
            format!("{:.5}", row.loss),
            score(row.valid),
            score(row.test),
            format!("{:.2}", row.seconds),
            against(row.edges, first.edges),
            against(row.rows_loaded, first.rows_loaded),
            format!("{:.0}", row.rows_exchanged),
            format!("{:.1}", row.bytes_sent / 1e6),
        ]
    };
    let heads = "run, epochs, loss, valid, test, s/epoch, edges/epoch, rows loaded/epoch, rows exchanged, MB sent";
    ui.columns(heads, rows.iter().map(cells));
    ui.json(&json!({ "runs": rows }));
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<LogRow> {
    let text = gsplit_store::read_text(path).map_err(gsplit_store::Error::io(path))?;
    let mut reports: Vec<EpochReport> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let expected = || {
            format!(
                "{}, line {}: expected a line of `gsplit train --log`",
                path.display(),
                number + 1
            )
        };
        let record: Value = serde_json::from_str(line).with_context(expected)?;
        // A record of `--log-every`; the record of the epoch covers all its mini-batches.
        if record.get("step").is_none() {
            reports.push(serde_json::from_value(record).with_context(expected)?);
        }
    }
    let Some(last) = reports.last() else {
        bail!("{}: no epoch was finished: compare runs of one epoch or more", path.display());
    };
    let mean = |of: &dyn Fn(&EpochReport) -> f64| {
        reports.iter().map(of).sum::<f64>() / reports.len() as f64
    };
    Ok(LogRow {
        run: path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default(),
        epochs: reports.len(),
        loss: last.loss,
        valid: last.valid,
        test: last.test,
        sent: json!(last.work.sent),
        exchanged: json!(last.work.exchanged),
        seconds: mean(&|report| report.seconds),
        edges: mean(&|report| report.work.edges as f64),
        rows_loaded: mean(&|report| report.work.rows_loaded as f64),
        rows_exchanged: mean(&|report| report.work.rows_exchanged as f64),
        bytes_sent: mean(&|report| report.work.bytes_sent as f64),
    })
}
