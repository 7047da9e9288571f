//! Training runs: loss and valid score by epoch.

use std::collections::{BTreeMap, BTreeSet};

use gsplit_store::EpochReport;

use super::chart::{Line, chart};
use super::found::TrainingRun;
use super::page::Page;
use crate::describe::score;

/// Adds the section.
pub fn show(page: &mut Page, runs: &[TrainingRun]) {
    let lines = |of: fn(&EpochReport) -> Option<f64>| -> Vec<Line> {
        let line = |(i, run): (usize, &TrainingRun)| Line {
            name: run.name.clone(),
            colour: Some(i),
            points: run
                .history
                .iter()
                .filter_map(|epoch| Some((epoch.epoch, of(epoch)?)))
                .collect(),
        };
        runs.iter().enumerate().map(line).collect()
    };
    page.section("Training", |page| {
        page.add(r#"<div class="charts">"#);
        page.add(&chart("Loss by epoch", "mean loss", &lines(|epoch| Some(epoch.loss))));
        let mut valid = lines(|epoch| epoch.valid);
        if valid.iter().any(|line| !line.points.is_empty()) {
            let metrics: BTreeSet<&str> = runs
                .iter()
                .map(|run| run.scores.as_ref().map_or("score", |of| &of.metric))
                .collect();
            let metric =
                if metrics.len() == 1 { metrics.first().copied() } else { None }.unwrap_or("score");
            valid.extend(baselines(runs));
            page.add(&chart(&format!("Valid {metric} by epoch"), metric, &valid));
        }
        page.add("</div>");
        page.fold("Loss and valid score in numbers", |page| numbers(page, runs));
    });
}

/// Returns a line for each baseline of `runs`, from the first epoch to the last.
fn baselines(runs: &[TrainingRun]) -> Vec<Line> {
    let epochs = || runs.iter().flat_map(|run| &run.history).map(|epoch| epoch.epoch);
    let (first, last) = (epochs().min().unwrap_or(1), epochs().max().unwrap_or(1));
    let mut lines: Vec<Line> = Vec::new();
    for baseline in runs.iter().filter_map(|run| run.scores.as_ref()?.baseline.as_ref()) {
        let Some(valid) = baseline.valid else { continue };
        let name = format!("{} (baseline)", baseline.name);
        let points = vec![(first, valid), (last, valid)];
        if !lines.iter().any(|line| (&line.name, &line.points) == (&name, &points)) {
            lines.push(Line { name, colour: None, points });
        }
    }
    lines
}

/// Adds the numbers of both charts, a row for each epoch.
fn numbers(page: &mut Page, runs: &[TrainingRun]) {
    let mut rows: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (i, run) in runs.iter().enumerate() {
        for epoch in &run.history {
            let row =
                rows.entry(epoch.epoch).or_insert_with(|| vec![String::new(); 2 * runs.len()]);
            row[2 * i] = format!("{:.5}", epoch.loss);
            row[2 * i + 1] = score(epoch.valid);
        }
    }
    let heads =
        runs.iter().flat_map(|run| ["loss", "valid"].map(|of| format!("{of} of {}", run.name)));
    let head: Vec<String> = ["epoch".to_string()].into_iter().chain(heads).collect();
    let rows = rows.into_iter().map(|(epoch, cells)| [vec![epoch.to_string()], cells].concat());
    page.table("Loss and valid score by epoch", &head, &rows.collect::<Vec<_>>());
}
