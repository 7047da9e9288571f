//! Training runs: loss and valid score by epoch, and the times and the work of the last epoch.

use std::collections::{BTreeMap, BTreeSet};

use gsplit::ui::bytes;
use gsplit_store::{EpochReport, shell_path};

use super::chart::{Line, chart};
use super::found::{Found, TrainingRun};
use super::page::Page;
use super::scores::shown;

/// Adds the section.
pub fn show(page: &mut Page, found: &Found) {
    let runs = &found.runs;
    if runs.is_empty() {
        let dataset = found.dataset.as_ref().map_or_else(|| "DATASET".into(), shell_path);
        let why = format!(
            "no run is here: gsplit train {dataset} --log runs/run.jsonl --checkpoint runs/run, then report on a folder with both"
        );
        return page.leave_out("Training", why);
    }
    page.section("Training", |page| {
        let head = ["run", "epochs", "last loss", "best epoch", "its valid", "its test"];
        let caption = "Runs; the best epoch is that of the best valid score: the highest, of an error the least";
        page.table(caption, &head, &runs.iter().map(of_run).collect::<Vec<_>>());
        page.add(r#"<div class="charts">"#);
        let lines = |of: fn(&EpochReport) -> Option<f64>| -> Vec<Line> {
            let line = |(i, run): (usize, &TrainingRun)| Line {
                name: run.name.clone(),
                colour: Some(i),
                points: run.epochs.iter().filter_map(|epoch| Some((epoch.epoch, of(epoch)?))).collect(),
            };
            runs.iter().enumerate().map(line).collect()
        };
        page.add(&chart("Loss by epoch", "mean loss", &lines(|epoch| Some(epoch.loss))));
        let mut valid = lines(|epoch| epoch.valid);
        if valid.iter().any(|line| !line.points.is_empty()) {
            let metrics: BTreeSet<&str> = runs.iter().map(|run| run.scores().map_or("score", |of| &of.metric)).collect();
            let metric = if metrics.len() == 1 { metrics.first().copied() } else { None }.unwrap_or("score");
            valid.extend(baselines(runs));
            page.add(&chart(&format!("Valid {metric} by epoch"), metric, &valid));
        }
        page.add("</div>");
        page.fold("Loss and valid score in numbers", |page| numbers(page, runs));
        let head = "run, sample, load, compute, exchange, of it waiting, wall time, edges, rows loaded, rows exchanged, sent";
        let caption = "The last epoch: seconds of the mean rank (sampling and loading during the computation of another mini-batch \
                       count too), and the work of all ranks";
        page.table(caption, &head.split(", ").collect::<Vec<_>>(), &runs.iter().filter_map(last).collect::<Vec<_>>());
    });
}

fn of_run(run: &TrainingRun) -> [String; 6] {
    let best = EpochReport::best(&run.epochs);
    [
        run.name.clone(),
        run.epochs.len().to_string(),
        run.epochs.last().map(|last| format!("{:.5}", last.loss)).unwrap_or_default(),
        best.map_or_else(|| "-".into(), |best| best.epoch.to_string()),
        shown(best.and_then(|best| best.valid)),
        shown(best.and_then(|best| best.test)),
    ]
}

/// Returns a line for each baseline of `runs`, from the first epoch to the last.
fn baselines(runs: &[TrainingRun]) -> Vec<Line> {
    let epochs = || runs.iter().flat_map(|run| &run.epochs).map(|epoch| epoch.epoch);
    let (first, last) = (epochs().min().unwrap_or(1), epochs().max().unwrap_or(1));
    let mut lines: Vec<Line> = Vec::new();
    for baseline in runs.iter().filter_map(|run| run.scores()?.baseline.as_ref()) {
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
        for epoch in &run.epochs {
            let row = rows.entry(epoch.epoch).or_insert_with(|| vec![String::new(); 2 * runs.len()]);
            row[2 * i] = format!("{:.5}", epoch.loss);
            row[2 * i + 1] = shown(epoch.valid);
        }
    }
    let heads = runs.iter().flat_map(|run| ["loss", "valid"].map(|of| format!("{of} of {}", run.name)));
    let head: Vec<String> = ["epoch".to_string()].into_iter().chain(heads).collect();
    let rows = rows.into_iter().map(|(epoch, cells)| [vec![epoch.to_string()], cells].concat());
    page.table("Loss and valid score by epoch", &head, &rows.collect::<Vec<_>>());
}

fn last(run: &TrainingRun) -> Option<Vec<String>> {
    let epoch = run.epochs.last()?;
    let (t, work) = (&epoch.timings, &epoch.work);
    let seconds = [t.sample_s, t.load_s, t.compute_s, t.exchange_s, t.wait_s, epoch.seconds];
    let mut row = vec![run.name.clone()];
    row.extend(seconds.map(|seconds| format!("{seconds:.3}")));
    row.extend([work.edges, work.rows_loaded, work.rows_exchanged].map(|count| count.to_string()));
    row.push(bytes(work.bytes_sent));
    Some(row)
}
