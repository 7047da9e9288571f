//! Predicted seconds of an epoch by phase as a picture: a bar a candidate, stacked.

use gsplit::chart::{Anchor, Area, Bars, Chart, LEGEND_LINE, Series, Svg};

use super::cost::Phase;
use super::found::Ranked;

/// Text in the first line of every picture.
pub const MAKER: &str = "gsplit plan";

const HEIGHT: f64 = 260.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 60.0;
const SLOT: f64 = 78.0;
const MARGIN: f64 = 24.0;

const PHASES: [(&str, Phase); 4] =
    [("sample", Phase::Sample), ("load", Phase::Load), ("compute", Phase::Compute), ("exchange", Phase::Exchange)];

/// Draws `ranked`, under `title`.
pub fn chart(ranked: &[Ranked<'_>], title: &str) -> String {
    let series = |(i, (name, phase)): (usize, &(&str, Phase))| {
        Series::new(name, i, ranked.iter().map(|row| row.cost.of(*phase) * row.candidate.steps as f64))
    };
    let groups: Vec<String> = ranked.iter().map(Ranked::name).collect();
    let area = Area { left: LEFT, top: TOP, width: (groups.len() as f64 * SLOT).max(560.0), height: HEIGHT };
    let series = PHASES.iter().enumerate().map(series).collect();
    let bars = Bars { label: "seconds".into(), floor: 0.0, groups, series, stacked: true };
    let legend = TOP + HEIGHT + 40.0;
    let height = legend + bars.series.len() as f64 * LEGEND_LINE + MARGIN;
    let mut svg = Svg::file(MAKER, LEFT + area.width + MARGIN, height);
    let line = "predicted seconds of an epoch by phase; phases may go on at the same time";
    svg.text((LEFT, 24.0), Anchor::Start, title);
    svg.text((LEFT, 42.0), Anchor::Start, line);
    bars.draw(&mut svg, area);
    svg.legend((LEFT, legend), &bars.legend());
    svg.finish()
}
