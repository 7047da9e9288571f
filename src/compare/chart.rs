//! Seconds of an epoch by phase as a picture: a bar a system, stacked.

use gsplit::chart::{Anchor, Area, Bars, Chart, LEGEND_LINE, PHASES, Series, Svg, phases};

use super::side_by_side::SystemRow;

/// Stands in the first line of every picture.
pub const MAKER: &str = "gsplit compare";

const HEIGHT: f64 = 260.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 60.0;
const SLOT: f64 = 78.0;
const MARGIN: f64 = 24.0;

/// Draws `rows`, under `title`.
pub fn chart(rows: &[SystemRow], title: &str) -> String {
    let seconds: Vec<[f64; 5]> = rows.iter().map(|row| phases(&row.epoch.timings)).collect();
    let series = |(i, phase): (usize, &&str)| Series::new(phase, i, seconds.iter().map(|seconds| seconds[i]));
    let groups = rows.iter().map(|row| row.system.name().to_string()).collect();
    let series = PHASES.iter().enumerate().map(series).collect();
    stacked(MAKER, [title, "seconds of an epoch, mean of the ranks"], groups, series)
}

/// Draws seconds: a bar for each of `groups`, a piece of it for each of `series`, under two `lines`. `maker` stands in the first line.
pub fn stacked(maker: &str, lines: [&str; 2], groups: Vec<String>, series: Vec<Series>) -> String {
    let area = Area { left: LEFT, top: TOP, width: (groups.len() as f64 * SLOT).max(560.0), height: HEIGHT };
    let bars = Bars { label: "seconds".into(), floor: 0.0, groups, series, stacked: true };
    let legend = TOP + HEIGHT + 40.0;
    let height = legend + bars.series.len() as f64 * LEGEND_LINE + MARGIN;
    let mut svg = Svg::file(maker, LEFT + area.width + MARGIN, height);
    svg.text((LEFT, 24.0), Anchor::Start, lines[0]);
    svg.text((LEFT, 42.0), Anchor::Start, lines[1]);
    bars.draw(&mut svg, area);
    svg.legend((LEFT, legend), &bars.legend());
    svg.finish()
}
