//! Seconds of an epoch by phase as a picture: a bar a system, stacked.

use gsplit::chart::{Anchor, Area, Bars, Chart, LEGEND_LINE, PHASES, Series, Svg, phases};
use gsplit_trainer::Timings;

use super::side_by_side::Row;

/// Stands in the first line of every picture.
pub const MAKER: &str = "gsplit compare";

const HEIGHT: f64 = 260.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 60.0;
const SLOT: f64 = 78.0;
const MARGIN: f64 = 24.0;

/// Draws `rows`, under `title`.
pub fn chart(rows: &[Row], title: &str) -> String {
    let seconds: Vec<[f64; 5]> = rows.iter().map(|row| of_phases(&row.epoch.timings)).collect();
    let series = |(i, phase): (usize, &&str)| Series::new(phase, i, seconds.iter().map(|seconds| seconds[i]));
    let bars = Bars {
        label: "seconds".into(),
        floor: 0.0,
        groups: rows.iter().map(|row| row.system.name().to_string()).collect(),
        series: PHASES.iter().enumerate().map(series).collect(),
        stacked: true,
    };
    let area = Area { left: LEFT, top: TOP, width: (rows.len() as f64 * SLOT).max(560.0), height: HEIGHT };
    let legend = TOP + HEIGHT + 40.0;
    let height = legend + PHASES.len() as f64 * LEGEND_LINE + MARGIN;
    let mut svg = Svg::file(MAKER, LEFT + area.width + MARGIN, height);
    svg.text((LEFT, 24.0), Anchor::Start, title);
    svg.text((LEFT, 42.0), Anchor::Start, "seconds of an epoch, mean of the ranks");
    bars.draw(&mut svg, area);
    svg.legend((LEFT, legend), &bars.legend());
    svg.finish()
}

fn of_phases(t: &Timings) -> [f64; 5] {
    phases([t.sample_s, t.load_s, t.compute_s, t.exchange_s, t.wait_s])
}
