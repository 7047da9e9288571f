//! `gsplit compare LOG...`: training logs side by side.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use gsplit_trainer::EpochReport;
use serde_json::{Value, json};

use gsplit::ui::Ui;

struct LogRow {
    name: String,
    epochs: usize,
    last: EpochReport,
    seconds: f64,
    edges: f64,
    rows_loaded: f64,
    rows_exchanged: f64,
    bytes_sent: f64,
}

/// Reads the logs and prints the table.
pub fn run(logs: &[PathBuf], ui: &Ui) -> anyhow::Result<()> {
    let rows = logs.iter().map(|path| read(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let first = &rows[0];
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max("run".len());
    ui.say(format_args!(
        "{:<width$} {:>6} {:>9} {:>7} {:>7} {:>9} {:>20} {:>20} {:>14} {:>9}",
        "run",
        "epochs",
        "loss",
        "valid",
        "test",
        "s/epoch",
        "edges/epoch",
        "rows loaded/epoch",
        "rows exchanged",
        "MB sent"
    ));
    for row in &rows {
        let share =
            |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.4}"));
        let against = |value: f64, base: f64| format!("{value:.0} ({:.2}x)", value / base.max(1.0));
        ui.say(format_args!(
            "{:<width$} {:>6} {:>9.5} {:>7} {:>7} {:>9.2} {:>20} {:>20} {:>14.0} {:>9.1}",
            row.name,
            row.epochs,
            row.last.loss,
            share(row.last.valid),
            share(row.last.test),
            row.seconds,
            against(row.edges, first.edges),
            against(row.rows_loaded, first.rows_loaded),
            row.rows_exchanged,
            row.bytes_sent / 1e6,
        ));
    }
    let objects: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "run": row.name, "epochs": row.epochs, "loss": row.last.loss, "valid": row.last.valid,
                "test": row.last.test, "seconds": row.seconds, "edges": row.edges, "rows_loaded": row.rows_loaded,
                "rows_exchanged": row.rows_exchanged, "bytes_sent": row.bytes_sent, "sent": row.last.work.sent,
                "exchanged": row.last.work.exchanged,
            })
        })
        .collect();
    ui.json(&json!({ "runs": objects }));
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
    let Some(last) = reports.last().cloned() else {
        bail!("{}: no epoch was finished: compare runs of one epoch or more", path.display());
    };
    let mean = |of: &dyn Fn(&EpochReport) -> f64| {
        reports.iter().map(of).sum::<f64>() / reports.len() as f64
    };
    Ok(LogRow {
        name: path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default(),
        epochs: reports.len(),
        last,
        seconds: mean(&|report| report.seconds),
        edges: mean(&|report| report.work.edges as f64),
        rows_loaded: mean(&|report| report.work.rows_loaded as f64),
        rows_exchanged: mean(&|report| report.work.rows_exchanged as f64),
        bytes_sent: mean(&|report| report.work.bytes_sent as f64),
    })
}
