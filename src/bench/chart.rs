//! Seconds of an epoch by phase as a picture: a bar a system, stacked.

use gsplit_partition::evaluate::svg::{Anchor, COLOURS, Svg, number, ticks};
use gsplit_trainer::EpochReport;

use super::side_by_side::Row;

/// Stands in the first line of every picture.
pub const MAKER: &str = "gsplit compare";

const HEIGHT: f64 = 260.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 60.0;
const SLOT: f64 = 78.0;
const BAR: f64 = 46.0;
const LEGEND_LINE: f64 = 20.0;
const MARGIN: f64 = 24.0;

/// From the bottom of a bar upwards.
const PHASES: [&str; 5] = ["sample", "load", "compute", "exchange", "wait"];

/// Draws `rows`, under `title`.
pub fn chart(rows: &[Row], title: &str) -> String {
    let bars: Vec<[f64; 5]> = rows.iter().map(|row| phases(&row.epoch)).collect();
    let highest = bars.iter().map(|bar| bar.iter().sum()).fold(0.0, f64::max);
    let ticks = ticks(0.0, highest);
    let scale = HEIGHT / ticks.last().copied().unwrap_or(1.0);
    let (bottom, end) = (TOP + HEIGHT, LEFT + (rows.len() as f64 * SLOT).max(560.0));
    let legend = bottom + 40.0;
    let mut svg = Svg::page(MAKER, end + MARGIN, legend + PHASES.len() as f64 * LEGEND_LINE + MARGIN);
    svg.text((LEFT, 24.0), Anchor::Start, title);
    svg.text((LEFT, 42.0), Anchor::Start, "seconds of an epoch, mean of the ranks");
    for tick in ticks {
        let y = bottom - tick * scale;
        svg.line([LEFT, y, end, y], "#dddddd");
        svg.text((LEFT - 6.0, y + 4.0), Anchor::End, &number(tick));
    }
    for (at, (row, bar)) in rows.iter().zip(&bars).enumerate() {
        let (x, mut y) = (LEFT + (at as f64 + 0.5) * SLOT, bottom);
        for ((phase, seconds), colour) in PHASES.iter().zip(bar).zip(COLOURS) {
            y -= seconds * scale;
            let title = format!("{}, {phase}: {seconds:.3} s", row.system.name());
            svg.rectangle([x - BAR / 2.0, y, BAR, seconds * scale], (colour, 1.0), &title);
        }
        svg.text((x, bottom + 18.0), Anchor::Middle, row.system.name());
    }
    svg.line([LEFT, bottom, end, bottom], "#333333");
    for (at, (phase, colour)) in PHASES.iter().zip(COLOURS).enumerate() {
        let y = legend + at as f64 * LEGEND_LINE;
        svg.rectangle([LEFT, y, 12.0, 12.0], (colour, 1.0), phase);
        svg.text((LEFT + 18.0, y + 10.5), Anchor::Start, phase);
    }
    svg.finish()
}

/// Seconds of each phase: waiting is a part of the exchange, and drawn apart.
fn phases(epoch: &EpochReport) -> [f64; 5] {
    let t = &epoch.timings;
    let wait = t.wait_s.min(t.exchange_s);
    [t.sample_s, t.load_s, t.compute_s, t.exchange_s - wait, wait]
}
