//! The evaluation as charts: GSplit's Figure 5 for the maps at hand.
//!
//! Two panels of bars, cross-edge share and edge imbalance. A group of bars is a layer, the last group all layers; a bar is a map, its
//! height the mean over mini-batches.

use crate::chart::{Anchor, Area, Bars, Chart, Colour, LEGEND_LINE, Series, Svg};
use gsplit_partition::evaluate::{Evaluation, LayerEvaluation, MapEvaluation};

/// Text in the first line of every picture.
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
const MARGIN: f64 = 24.0;

/// Draws `evaluation`, under the name of its dataset.
pub fn plot(evaluation: &Evaluation, dataset: &str) -> String {
    let (panels, maps) = (panels(evaluation), evaluation.maps.len() as f64);
    let group_width = (maps * BAR_WIDTH + GROUP_GAP).max(MIN_GROUP_WIDTH);
    let width = (panels[0].groups.len() as f64 * group_width).max(MIN_WIDTH);
    let top = |panel: usize| TOP + panel as f64 * (PANEL_HEIGHT + BETWEEN_PANELS);
    let legend = top(panels.len());

    let mut svg = Svg::file(MAKER, LEFT + width + MARGIN, legend + maps * LEGEND_LINE + MARGIN);
    svg.text((LEFT, 24.0), Anchor::Start, &format!("{dataset}: partitions on fresh mini-batches"));
    svg.text((LEFT, 42.0), Anchor::Start, &evaluation.setting.to_string());
    svg.text((LEFT, 60.0), Anchor::Start, "means over mini-batches");
    for (i, panel) in panels.iter().enumerate() {
        panel.draw(&mut svg, Area { left: LEFT, top: top(i), width, height: PANEL_HEIGHT });
    }
    svg.legend((LEFT, legend), &panels[0].legend());
    svg.finish()
}

/// The two panels: cross edges, and imbalance.
pub fn panels(evaluation: &Evaluation) -> [Bars; 2] {
    let panel = |label: &str, floor: f64, of: &dyn Fn(&LayerEvaluation) -> f64| Bars {
        label: label.into(),
        floor,
        groups: group_names(evaluation.setting.fanouts.len()),
        series: evaluation.maps.iter().enumerate().map(|(i, map)| series(map, i, of)).collect(),
        stacked: false,
    };
    [
        panel("cross edges, % of the sampled", 0.0, &|layer| 100.0 * layer.cross_share),
        panel("sampled edges, heaviest rank / mean", 1.0, &|layer| layer.edge_imbalance),
    ]
}

fn series(map: &MapEvaluation, i: usize, of: &dyn Fn(&LayerEvaluation) -> f64) -> Series {
    let parts = if map.parts == 1 { "1 part".into() } else { format!("{} parts", map.parts) };
    let (key, colour) = match &map.key {
        Some(key) => (key.as_str(), Colour::Series(i)),
        None => ("random", Colour::Grey),
    };
    let bars = map.layers.iter().chain([&map.all]).map(of).collect();
    Series { name: format!("{key}, {parts}"), colour, bars }
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
