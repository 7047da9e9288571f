//! The evaluation as a picture: GSplit's Figure 5 for the maps at hand.
//!
//! Returns: an SVG document, two panels of bars, cross-edge share above and edge imbalance below. A group of bars is a
//! layer, the last group all layers; a bar is a map, its height the mean over mini-batches, its whisker the 5th to the 95th
//! percentile. Every bar carries its numbers as a title, which viewers show on hovering.

use super::svg::{Anchor, COLOURS, Svg, number, ticks};
use super::{Evaluation, LayerEvaluation, MapEvaluation, Spread};

/// Stands in the first line of every picture.
pub const MAKER: &str = "gsplit evaluate";

const BAR_WIDTH: f64 = 22.0;
const GROUP_GAP: f64 = 28.0;
/// Room for a group's name.
const MIN_GROUP_WIDTH: f64 = 110.0;
/// Room for the title.
const MIN_WIDTH: f64 = 640.0;
const PANEL_HEIGHT: f64 = 220.0;
const BETWEEN_PANELS: f64 = 54.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 84.0;
const LEGEND_LINE: f64 = 20.0;
const MARGIN: f64 = 24.0;
/// The random partition is grey.
const RANDOM: &str = "#999999";

/// One of the two pictures.
struct Panel {
    label: &'static str,
    /// Value at the foot of the bars.
    floor: f64,
    /// What the axis counts in, as 0.01 for percent.
    unit: f64,
    of: fn(&LayerEvaluation) -> Spread,
}

const PANELS: [Panel; 2] = [
    Panel { label: "cross edges, % of the sampled", floor: 0.0, unit: 0.01, of: |layer| layer.cross_share },
    Panel { label: "sampled edges, heaviest rank / mean", floor: 1.0, unit: 1.0, of: |layer| layer.edge_imbalance },
];

/// Draws `evaluation`, under the name of its dataset.
pub fn plot(evaluation: &Evaluation, dataset: &str) -> String {
    let (setting, maps) = (&evaluation.setting, &evaluation.maps);
    let groups = group_names(setting.fanouts.len());
    let group_width = (maps.len() as f64 * BAR_WIDTH + GROUP_GAP).max(MIN_GROUP_WIDTH);
    let width = (groups.len() as f64 * group_width).max(MIN_WIDTH);
    let legend = TOP + PANELS.len() as f64 * (PANEL_HEIGHT + BETWEEN_PANELS);

    let mut svg = Svg::page(MAKER, LEFT + width + MARGIN, legend + maps.len() as f64 * LEGEND_LINE + MARGIN);
    svg.text((LEFT, 24.0), Anchor::Start, &format!("{dataset}: partitions on fresh mini-batches"));
    svg.text((LEFT, 42.0), Anchor::Start, &setting.to_string());
    svg.text((LEFT, 60.0), Anchor::Start, "bars: means over mini-batches; whiskers: 5th to 95th percentile");
    for (i, panel) in PANELS.iter().enumerate() {
        let top = TOP + i as f64 * (PANEL_HEIGHT + BETWEEN_PANELS);
        panel.draw(&mut svg, maps, &groups, (top, width));
    }
    for (i, map) in maps.iter().enumerate() {
        let y = legend + i as f64 * LEGEND_LINE;
        let parts = if map.parts == 1 { "1 part".into() } else { format!("{} parts", map.parts) };
        let label = format!("{}, {parts}", name(map));
        svg.rectangle([LEFT, y, 12.0, 12.0], colour(map, i), &label);
        svg.text((LEFT + 18.0, y + 10.5), Anchor::Start, &label);
    }
    svg.finish()
}

impl Panel {
    /// The panel whose upper edge lies at `top`, `width` wide.
    fn draw(&self, svg: &mut Svg, maps: &[MapEvaluation], groups: &[String], (top, width): (f64, f64)) {
        let spread = |map: &MapEvaluation, group: usize| (self.of)(map.layers.get(group).unwrap_or(&map.all));
        let spreads = maps.iter().flat_map(|map| (0..groups.len()).map(move |group| spread(map, group)));
        let highest = spreads.map(|spread| spread.p95.max(spread.mean)).fold(self.floor, f64::max);
        let ticks = ticks(self.floor / self.unit, highest / self.unit);
        let height = ticks.last().map_or(1.0, |&last| last * self.unit - self.floor);
        let (end, bottom) = (LEFT + width, top + PANEL_HEIGHT);
        let y = |value: f64| bottom - (value - self.floor) / height * PANEL_HEIGHT;

        for &tick in &ticks {
            let y = y(tick * self.unit);
            svg.line([LEFT, y, end, y], "#dddddd");
            svg.text((LEFT - 6.0, y + 4.0), Anchor::End, &number(tick));
        }
        svg.upward_text((20.0, top + PANEL_HEIGHT / 2.0), self.label);
        for (group, label) in groups.iter().enumerate() {
            let centre = LEFT + (group as f64 + 0.5) * width / groups.len() as f64;
            svg.text((centre, bottom + 18.0), Anchor::Middle, label);
            for (i, map) in maps.iter().enumerate() {
                let x = centre + (i as f64 + 0.5 - maps.len() as f64 / 2.0) * BAR_WIDTH;
                let Spread { mean, p5, p95, .. } = spread(map, group);
                let [shown, low, high] = [mean, p5, p95].map(|value| format!("{:.3}", value / self.unit));
                let title = format!("{}, {label}: {shown}, 5th to 95th percentile {low} to {high}", name(map));
                svg.rectangle([x - 9.5, y(mean), 19.0, bottom - y(mean)], colour(map, i), &title);
                whisker(svg, x, y(p5), y(p95));
            }
        }
        svg.line([LEFT, bottom, end, bottom], "#333333");
    }
}

fn whisker(svg: &mut Svg, x: f64, low: f64, high: f64) {
    svg.line([x, low, x, high], "#333333");
    for y in [low, high] {
        svg.line([x - 3.0, y, x + 3.0, y], "#333333");
    }
}

fn name(map: &MapEvaluation) -> &str {
    map.key.as_deref().unwrap_or("random")
}

/// Colour and opacity: where there are more maps than colours, they come again, paler.
fn colour(map: &MapEvaluation, i: usize) -> (&'static str, f64) {
    match map.key {
        None => (RANDOM, 1.0),
        Some(_) => (COLOURS[i % COLOURS.len()], if i < COLOURS.len() { 1.0 } else { 0.5 }),
    }
}

/// The layers from the seeds' downwards, and all of them.
fn group_names(layers: usize) -> Vec<String> {
    let layer = |layer| match layer {
        1 => "layer 1 (seeds)".into(),
        _ if layer == layers => format!("layer {layer} (input)"),
        _ => format!("layer {layer}"),
    };
    (1..=layers).map(layer).chain(["all layers".into()]).collect()
}
