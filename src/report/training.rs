//! Training runs: losses and scores, where the time went, where rows came from, what was sent.

use std::collections::{BTreeMap, BTreeSet};

use gsplit::chart::{Axis, Bars, Colour, Line, Lines, Scale, Series};
use gsplit::ui::bytes;

use gsplit_store::{EpochReport, Work, shell_path};

use super::found::{Found, TrainingRun};
use super::page::Page;

/// Bars of a chart over the epochs; where there are more epochs, a bar is the mean of several.
const BARS: usize = 60;
/// Runs whose epochs are drawn; of the others the table has the means.
const RUNS_DRAWN: usize = 8;
/// Parts of an epoch, from the bottom of a bar upwards.
const PHASES: [&str; 5] = ["sample", "load", "compute", "exchange", "wait"];

/// Adds the sections.
pub fn show(page: &mut Page, found: &Found) {
    let runs = &found.runs;
    if runs.is_empty() {
        let dataset = found.dataset.as_ref().map_or_else(|| "DATASET".into(), shell_path);
        let why = format!(
            "no run is here: gsplit train {dataset} --log runs/run.jsonl --checkpoint runs/run, then report on a folder with both"
        );
        return ["Training", "Phases", "Rows and bytes"]
            .into_iter()
            .for_each(|title| page.leave_out(title, why.clone()));
    }
    page.section("Training", |page| curves(page, runs));
    let drawn = &runs[..runs.len().min(RUNS_DRAWN)];
    page.section("Phases", |page| {
        page.text(
            "Seconds of the mean rank. Sampling and loading that went on while another mini-batch was computed count too, so that a bar \
             may be higher than the epoch was long. Waiting is drawn apart from the exchange that it is a part of.",
        );
        page.table("Seconds of an epoch, means over the epochs", &phase_head(), &runs.iter().map(phase_row).collect::<Vec<_>>());
        page.charts(|page| drawn.iter().for_each(|run| page.chart(&format!("Phases of {}", run.name), &phase_bars(run))));
    });
    page.section("Rows and bytes", |page| {
        page.text(
            "Where no GPU is used, rows of GPUs are those that a cache of the size that was named would have had.",
        );
        page.table(
            "Feature rows that all ranks loaded and exchanged, and bytes sent, means over the epochs",
            &["run", "edges", "rows loaded", "own GPU", "other GPUs", "host", "rows exchanged", "sent"],
            &runs.iter().map(work_row).collect::<Vec<_>>(),
        );
        page.charts(|page| {
            drawn.iter().for_each(|run| page.chart(&format!("Rows of {} by source", run.name), &row_bars(run)))
        });
        sent(page, runs);
    });
    if drawn.len() < runs.len() {
        page.leave_out(
            "Charts of further runs",
            format!("the first {RUNS_DRAWN} are drawn: report on a folder of fewer"),
        );
    }
}

fn curves(page: &mut Page, runs: &[TrainingRun]) {
    let score = |score: Option<f64>| score.map_or_else(|| "-".into(), |score| format!("{score:.4}"));
    let row = |run: &TrainingRun| {
        let (last, best) = (run.epochs.last(), EpochReport::best(&run.epochs));
        vec![
            run.name.clone(),
            run.epochs.len().to_string(),
            run.scores().map_or("not recorded", |scores| &scores.metric).to_string(),
            last.map(|last| format!("{:.5}", last.loss)).unwrap_or_default(),
            best.map_or_else(|| "-".into(), |best| best.epoch.to_string()),
            score(best.and_then(|best| best.valid)),
            score(best.and_then(|best| best.test)),
            format!("{:.2}", mean(run, |epoch| epoch.seconds)),
        ]
    };
    let head = ["run", "epochs", "metric", "last loss", "best epoch", "its valid", "its test", "s/epoch"];
    page.table(
        "Runs; the best epoch is that of the best valid score: the highest, of an error the least",
        &head,
        &runs.iter().map(row).collect::<Vec<_>>(),
    );
    let lines = |label: &str, of: &dyn Fn(&EpochReport) -> Option<f64>| Lines {
        x: Axis::new("epoch", Scale::Whole),
        y: Axis::new(label, Scale::Linear),
        lines: runs.iter().enumerate().map(|(i, run)| Line::new(&run.name, i, points(run, of))).collect(),
    };
    page.charts(|page| {
        page.chart("Loss by epoch", &lines("mean loss", &|epoch| Some(epoch.loss)));
        let metrics: BTreeSet<&str> = runs.iter().map(|run| run.scores().map_or("score", |of| &of.metric)).collect();
        let metric = if metrics.len() == 1 { metrics.first().copied() } else { None }.unwrap_or("score");
        let mut valid = lines(&format!("{metric} of the valid split"), &|epoch| epoch.valid);
        if valid.lines.iter().any(|line| !line.points.is_empty()) {
            valid.lines.extend(baselines(runs));
            page.chart(&format!("Valid {metric} by epoch"), &valid);
        }
    });
}

/// Lines at the baselines of `runs`, one for several that have the same.
fn baselines(runs: &[TrainingRun]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for run in runs {
        let Some(baseline) = run.scores().and_then(|scores| scores.baseline.as_ref()) else { continue };
        let line = Line {
            name: format!("{} (baseline)", baseline.name),
            colour: Colour::Grey,
            points: points(run, &|_| baseline.valid),
        };
        match lines.iter_mut().find(|other| other.points.first().map(|[_, y]| y) == line.points.first().map(|[_, y]| y))
        {
            Some(longer) if longer.points.len() >= line.points.len() => {}
            Some(shorter) => *shorter = line,
            None => lines.push(line),
        }
    }
    lines
}

fn points(run: &TrainingRun, of: &dyn Fn(&EpochReport) -> Option<f64>) -> Vec<[f64; 2]> {
    run.epochs.iter().filter_map(|epoch| Some([f64::from(epoch.epoch), of(epoch)?])).collect()
}

fn mean(run: &TrainingRun, of: impl Fn(&EpochReport) -> f64) -> f64 {
    run.epochs.iter().map(of).sum::<f64>() / run.epochs.len().max(1) as f64
}

/// A stacked bar an epoch, or for several, of what `of` tells of an epoch.
fn by_epoch<const N: usize>(
    run: &TrainingRun,
    label: &str,
    names: [&str; N],
    of: impl Fn(&EpochReport) -> [f64; N],
) -> Bars {
    let together = run.epochs.len().div_ceil(BARS).max(1);
    let chunks: Vec<&[EpochReport]> = run.epochs.chunks(together).collect();
    let values = |i: usize| {
        let mean = |chunk: &&[EpochReport]| chunk.iter().map(|epoch| of(epoch)[i]).sum::<f64>() / chunk.len() as f64;
        chunks.iter().map(mean).collect::<Vec<_>>()
    };
    Bars {
        label: label.into(),
        floor: 0.0,
        groups: chunks.iter().map(|chunk| chunk[0].epoch.to_string()).collect(),
        series: names.iter().enumerate().map(|(i, name)| Series::new(name, i, values(i))).collect(),
        stacked: true,
    }
}

/// Seconds of each of [`PHASES`]. Waiting, which a log counts as a part of the exchange, is separate.
fn of_phases(epoch: &EpochReport) -> [f64; 5] {
    let t = &epoch.timings;
    let wait = t.wait_s.min(t.exchange_s);
    [t.sample_s, t.load_s, t.compute_s, t.exchange_s - wait, wait]
}

fn phase_bars(run: &TrainingRun) -> Bars {
    by_epoch(run, "seconds by epoch", PHASES, of_phases)
}

fn phase_head() -> Vec<&'static str> {
    ["run"].into_iter().chain(PHASES).chain(["wall time"]).collect()
}

fn phase_row(run: &TrainingRun) -> Vec<String> {
    let seconds = |seconds: f64| format!("{seconds:.3}");
    let phases = (0..PHASES.len()).map(|i| seconds(mean(run, |epoch| of_phases(epoch)[i])));
    [run.name.clone()].into_iter().chain(phases).chain([seconds(mean(run, |epoch| epoch.seconds))]).collect()
}

/// Rows loaded from the own GPU's memory, other GPUs' and the host's.
fn sources(epoch: &EpochReport) -> [f64; 3] {
    let Work { rows_loaded, rows_cached, rows_from_peers, .. } = epoch.work;
    let host = rows_loaded.saturating_sub(rows_cached.saturating_add(rows_from_peers));
    [rows_cached, rows_from_peers, host].map(|rows| rows as f64)
}

fn row_bars(run: &TrainingRun) -> Bars {
    by_epoch(run, "rows loaded by epoch", ["own GPU", "other GPUs", "host"], sources)
}

fn work_row(run: &TrainingRun) -> Vec<String> {
    let count = |of: &dyn Fn(&EpochReport) -> f64| format!("{:.0}", mean(run, of));
    vec![
        run.name.clone(),
        count(&|epoch| epoch.work.edges as f64),
        count(&|epoch| epoch.work.rows_loaded as f64),
        count(&|epoch| sources(epoch)[0]),
        count(&|epoch| sources(epoch)[1]),
        count(&|epoch| sources(epoch)[2]),
        count(&|epoch| epoch.work.rows_exchanged as f64),
        bytes(mean(run, |epoch| epoch.work.bytes_sent as f64) as u64),
    ]
}

/// Bytes and messages by part of a mini-batch and route.
fn sent(page: &mut Page, runs: &[TrainingRun]) {
    let mut rows = Vec::new();
    for run in runs {
        let mut sums: BTreeMap<(&str, &str), [u64; 2]> = BTreeMap::new();
        for sent in run.epochs.iter().flat_map(|epoch| &epoch.work.sent) {
            let sum = sums.entry((&sent.phase, &sent.route)).or_default();
            *sum = [sum[0].saturating_add(sent.bytes), sum[1].saturating_add(sent.messages)];
        }
        let epochs = run.epochs.len().max(1) as u64;
        rows.extend(sums.into_iter().map(|((phase, route), [sent, messages])| {
            [run.name.clone(), phase.into(), route.into(), bytes(sent / epochs), (messages / epochs).to_string()]
        }));
    }
    if rows.is_empty() {
        page.text("Nothing was sent between ranks.");
    } else {
        let head = ["run", "for", "through", "sent", "messages"];
        page.table("What ranks sent to each other, means over the epochs", &head, &rows);
    }
}
